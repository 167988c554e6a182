package driverkit

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

const (
	// maxWords bounds what is read of an answer that acknowledges nothing, in bytes.
	maxWords = 1 << 20
	// maxIgnored bounds what is read of a body for nothing but using its connection again.
	maxIgnored = 64 << 10

	retryAfter = "Retry-After"
)

// Answer is what a server said to a [Request].
type Answer struct {
	Status int
	Header http.Header
	// Body is whole where the status is 2xx and [Request] has a Limit, nil where it is 2xx without one, and else what could be read
	// of its first mebibyte.
	Body []byte

	read bool   // it is the answer to a request that changes nothing
	by   string // who answered
	what string // what the endpoint should lead to
	mask mask
}

// OK reports whether the status is 2xx.
func (a *Answer) OK() bool { return a.Status >= 200 && a.Status <= 299 }

// Refusal makes an error of an answer that acknowledges nothing. It says who answered which status, and the server's own
// words, as the driver has found them in the body: in one short line, without the secrets. Of a redirect, which no client
// of the kit follows, it says the location in their place.
func (a *Answer) Refusal(words string) *StatusError {
	e := &StatusError{Status: a.Status, read: a.read}
	e.after, e.delayed = parseRetryAfter(a.Header.Get(retryAfter), a.date())
	e.text = strings.TrimSpace(fmt.Sprintf("%s answered %d %s", a.by, a.Status, http.StatusText(a.Status)))
	if a.Status >= 300 && a.Status <= 399 {
		e.text += fmt.Sprintf(", and redirects are not followed: set endpoint to where %s is (Location: %s)",
			a.what, a.mask.excerpt(a.Header.Get("Location")))
	} else if said := a.mask.excerpt(words); said != "" {
		e.text += ": " + said
	}
	return e
}

// date is when the answer was made, by the server's clock where the answer tells: a date in it is of that clock.
func (a *Answer) date() time.Time {
	if date, err := http.ParseTime(a.Header.Get("Date")); err == nil {
		return date
	}
	return time.Now()
}

// StatusError is an answer that acknowledges nothing.
type StatusError struct {
	Status int

	read    bool
	text    string
	after   time.Duration
	delayed bool
}

// Error implements error.
func (e *StatusError) Error() string { return e.text }

// Timeout reports that a gateway may have passed the call on in vain (502, 504, Cloudflare's 524), so that the server may still carry it
// out. The caller waits after that as after a time-out of its own. Nothing is carried out late of a request with GET or HEAD.
func (e *StatusError) Timeout() bool {
	switch e.Status {
	case http.StatusBadGateway, http.StatusGatewayTimeout, statusOriginTimeout:
		return !e.read
	}
	return false
}

// Classified returns the error with the class that its status asks for by itself: [registry.Terminal] where [IsFinal]
// holds, else [registry.RetryAfter] where the server said so, and [Away] for 5xx, unless the call may still be under way; see
// [StatusError.Timeout]. What more the status or the words mean is the driver's to say.
func (e *StatusError) Classified() error {
	var err error = e
	if e.Status >= http.StatusInternalServerError && !e.Timeout() {
		err = Away(err)
	}
	switch {
	case IsFinal(e.Status):
		return registry.Terminal(err)
	case e.delayed:
		return registry.RetryAfter(err, e.after)
	}
	return err
}

// RetryAfter returns when the server said to come back, if it did: in its own words, which [registry.RetryAfter] bounds.
func (e *StatusError) RetryAfter() (time.Duration, bool) { return e.after, e.delayed }

// HasStatus reports whether err is, or wraps, the error of an answer with this status.
func HasStatus(err error, status int) bool {
	e, is := errors.AsType[*StatusError](err)
	return is && e.Status == status
}

// IsFinal holds for a status that stays wrong however often a request is tried: redirects, which are not followed, and the
// client's errors, but not those that are a matter of time (408, 409, 425, 429).
func IsFinal(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return status >= 300 && status <= 499
}

// parseRetryAfter reads the header of that name of an answer that came now: seconds, or an HTTP date. It returns false where the
// header is missing or neither of the two. A date that has passed counts for missing: it says that a clock is wrong, and nothing
// of when to come back.
func parseRetryAfter(value string, now time.Time) (time.Duration, bool) {
	if seconds, err := strconv.ParseUint(strings.TrimSpace(value), 10, 32); err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	if at, err := http.ParseTime(value); err == nil && at.After(now) {
		return at.Sub(now), true
	}
	return 0, false
}

// readBody reads a body to its end, or returns an error where it has more bytes than the limit: half of a list would read
// as if the other half had gone.
func readBody(body io.Reader, limit int64) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(body, limit+1))
	if err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	if int64(len(raw)) > limit {
		return nil, fmt.Errorf("the answer has more than %d bytes", limit)
	}
	return raw, nil
}
