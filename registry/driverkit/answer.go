package driverkit

import (
	"bytes"
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
	// maxWords is how many bytes are read of an answer that is not an acknowledgement.
	maxWords = 1 << 20
	// maxIgnored is how many bytes are read of a body only to use its connection again.
	maxIgnored = 64 << 10

	retryAfter = "Retry-After"
)

// Answer is a server's answer to a [Request].
type Answer struct {
	Status int
	Header http.Header
	// Body is complete if the status is 2xx and [Request] has a Limit, and nil if the status is 2xx without one. Otherwise it is
	// what could be read of its first mebibyte.
	Body []byte

	read bool   // it is the answer to a request that changes nothing
	page bool   // its body is markup
	by   string // who answered
	what string // what the endpoint should lead to
	mask mask
}

// OK reports whether the status is 2xx.
func (a *Answer) OK() bool { return a.Status >= 200 && a.Status <= 299 }

// CheckNoPage is a [Request.Check] for an acknowledgement whose body does not matter. It returns an error for a web page: a proxy can
// answer with one, such as its login, and status 200.
func CheckNoPage(a *Answer) error {
	if !a.page {
		return nil
	}
	return errors.New("the answer is a web page, such as a proxy's login, and not an acknowledgement")
}

// isPage reports whether a body is markup, whatever type it has: some servers call everything HTML, or nothing.
func isPage(body []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n\ufeff"), []byte("<"))
}

// Refusal makes an error of an answer that is not an acknowledgement. It has the server, the status, and the server's own words as
// the driver has found them in the body: in one short line, without the secrets. For a redirect, which no client of the kit
// follows, it has the location instead.
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

// date is when the answer was made, by the server's clock if the answer tells: a date in it is of that clock.
func (a *Answer) date() time.Time {
	if date, err := http.ParseTime(a.Header.Get("Date")); err == nil {
		return date
	}
	return time.Now()
}

// StatusError is an answer that is not an acknowledgement.
type StatusError struct {
	Status int

	read    bool
	text    string
	after   time.Duration
	delayed bool
}

// Error implements error.
func (e *StatusError) Error() string { return e.text }

// Timeout reports that a gateway may have passed the call on without getting an answer (502, 504, Cloudflare's 524), so that the server
// may still carry it out. The caller then waits as after a timeout of its own. A request with GET or HEAD changes nothing later.
func (e *StatusError) Timeout() bool {
	switch e.Status {
	case http.StatusBadGateway, http.StatusGatewayTimeout, statusOriginTimeout:
		return !e.read
	}
	return false
}

// Classified returns the error with the class of its status: [registry.Terminal] if [IsFinal] is true; otherwise
// [registry.RetryAfter] if the server sent that header, and [Away] for 5xx, unless the call may still be under way, see
// [StatusError.Timeout]. The driver decides what else the status or the words mean.
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

// RetryAfter returns after how long the server asks to come back, if it does: unbounded, unlike [registry.RetryAfter].
func (e *StatusError) RetryAfter() (time.Duration, bool) { return e.after, e.delayed }

// HasStatus reports whether err is, or wraps, the error of an answer with this status.
func HasStatus(err error, status int) bool {
	e, is := errors.AsType[*StatusError](err)
	return is && e.Status == status
}

// IsFinal reports whether a retry gets the same status: that of a redirect, which is not followed, or of a client error, except
// for temporary ones (408, 409, 425, 429).
func IsFinal(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return status >= 300 && status <= 499
}

// parseRetryAfter reads the header of that name of an answer that came now: seconds, or an HTTP date. It returns false if the
// header is missing or neither of the two. A date that has passed counts as missing: a clock is wrong, and the date does not show
// when to come back.
func parseRetryAfter(value string, now time.Time) (time.Duration, bool) {
	if seconds, err := strconv.ParseUint(strings.TrimSpace(value), 10, 32); err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	if at, err := http.ParseTime(value); err == nil && at.After(now) {
		return at.Sub(now), true
	}
	return 0, false
}

// readBody reads a body to its end, or returns an error if it has more bytes than the limit: half of a list would read as if the
// other half had gone.
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
