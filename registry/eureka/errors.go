package eureka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

// maxErrorBody bounds what is read of an error's body, in bytes.
const maxErrorBody = 16 << 10

// answerError is an answer that is no acknowledgement.
type answerError struct {
	status int
	err    error
}

func (e *answerError) Error() string { return e.err.Error() }
func (e *answerError) Unwrap() error { return e.err }

// hasStatus reports whether the registry answered so.
func hasStatus(err error, status int) bool {
	var a *answerError
	return errors.As(err, &a) && a.status == status
}

// awayError is that of a peer which has not taken the call and will not: another one may.
type awayError struct{ err error }

func (e *awayError) Error() string { return e.err.Error() }
func (e *awayError) Unwrap() error { return e.err }

func isAway(err error) bool {
	var a *awayError
	return errors.As(err, &a)
}

// elsewhere says what a 404 means where Eureka has none: it is not Eureka that answers.
func elsewhere(err error) error {
	if !hasStatus(err, http.StatusNotFound) {
		return err
	}
	return registry.Terminal(registry.FieldError("endpoint",
		fmt.Errorf("%w; its path must be that of Eureka, such as /eureka or /eureka/v2", err)))
}

// gone says what a 404 means for an entry that was there a moment ago. Trying again helps.
func gone(err error) error {
	if !hasStatus(err, http.StatusNotFound) {
		return err
	}
	return fmt.Errorf("the entry went in the middle of the call: %v", err) //nolint:errorlint // its class is that of the status
}

// isSlow holds for an error after which the call may still be under way at the peer: it must not be made elsewhere while
// nobody knows of that, but the next one had better begin elsewhere.
func isSlow(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || hasStatus(err, http.StatusGatewayTimeout)
}

// sendError gives its class to the error of a request that got no answer.
func sendError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return registry.ContextError(ctx, err)
	}
	return &awayError{err: registry.TLSError(err)}
}

// noneLeft is the error of a call that every peer was away for. It passes if one of theirs does.
func noneLeft(failures []error) error {
	var texts []string
	class := failures[0]
	for _, err := range failures {
		texts = append(texts, err.Error())
		if registry.IsTerminal(class) {
			class = err
		}
	}
	if len(failures) == 1 {
		return class
	}
	return &noPeerError{text: strings.Join(texts, "; "), class: class}
}

// noPeerError tells of all peers, and has the class of one.
type noPeerError struct {
	text  string
	class error
}

func (e *noPeerError) Error() string { return e.text }
func (e *noPeerError) Unwrap() error {
	return e.class
}

// answerError gives its class to an answer that is no acknowledgement.
func (p *peer) answerError(resp *http.Response) error {
	var err error = &answerError{status: resp.StatusCode, err: errors.New(p.describe(resp))}
	switch status := resp.StatusCode; {
	case status == http.StatusUnauthorized:
		return registry.Terminal(registry.FieldError(p.login.field(), err))
	case status == http.StatusForbidden:
		return forbidden(resp, err)
	case isTerminal(status):
		return registry.Terminal(err)
	case status >= http.StatusInternalServerError && status != http.StatusGatewayTimeout:
		err = &awayError{err: err}
	}
	if after, said := registry.ParseRetryAfter(resp.Header.Get("Retry-After"), time.Now()); said {
		return registry.RetryAfter(err, after)
	}
	return err
}

// forbidden knows two reasons that nobody would guess. One passes: Netflix's own server gives out no listing for the first
// minutes after a start in which it found no peer (waitTimeInMsWhenSyncEmpty).
func forbidden(resp *http.Response, err error) error {
	if resp.Request.Method == http.MethodGet || resp.Request.Method == http.MethodHead {
		return fmt.Errorf("%w; a server that has just started answers so until it has found its peers", err)
	}
	return registry.Terminal(fmt.Errorf("%w; the user may lack a role, and where the server has Spring Security, "+
		"its CSRF protection must be off for Eureka's paths", err))
}

// isTerminal holds for what stays wrong however often it is tried: redirects, which are not followed, and the client's
// errors, but not those that are a matter of time.
func isTerminal(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return status >= 300 && status <= 499
}

func (p *peer) describe(resp *http.Response) string {
	text := fmt.Sprintf("%s answered %d %s", p.base, resp.StatusCode, http.StatusText(resp.StatusCode))
	text = strings.TrimSpace(text)
	if resp.StatusCode >= 300 && resp.StatusCode <= 399 {
		return text + ", and redirects are not followed: set endpoint to where Eureka is (Location: " +
			p.login.clean(resp.Header.Get("Location")) + ")"
	}
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // what could be read of it is better than nothing
	if said := p.login.clean(string(raw)); said != "" {
		return text + ": " + said
	}
	return text
}

// clean makes a server's text fit for a log line: one line, not long, and not our password, should the server echo it.
func (l login) clean(text string) string {
	for _, secret := range l.secrets() {
		text = strings.ReplaceAll(text, secret, "[password]")
	}
	return registry.Excerpt(text)
}
