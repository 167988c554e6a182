package nacos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

// verdict is what an answer that is no acknowledgement means for what is done next.
type verdict int

const (
	failed    verdict = iota // try again later
	elsewhere                // another address may do better
	refused                  // who we are is not accepted, or may not do this
	noRoute                  // the server has no such path: it is of another version, or not Nacos
	absent                   // there is no such instance
	noService                // there is no such service
	exists                   // the service is there already
	unfit                    // it stays wrong however often it is tried
	wrongKind                // the service is of the other kind: ephemeral, not persistent, or the other way round
)

// answerError is an answer that is no acknowledgement.
type answerError struct {
	verdict    verdict
	status     int // 0 for none at all
	text       string
	retryAfter time.Duration
	delayed    bool
	pending    bool // a change may still be made, after we have heard of it for the last time
	cause      error
}

func (e *answerError) Error() string { return e.text }
func (e *answerError) Unwrap() error { return e.cause }

func verdictOf(err error) verdict {
	if e, ok := errors.AsType[*answerError](err); ok {
		return e.verdict
	}
	return failed
}

// judge says what an answer means. Nacos' status tells only half: v1 has no codes, and versions before 2.4 answer 500 where
// later ones answer 400. So its words count too, as they stand in nacos-naming.
func judge(status, code int, said string) verdict {
	for _, known := range []struct {
		code  int // of com.alibaba.nacos.api.model.v2.ErrorCode
		words string
		means verdict
	}{
		{words: "is ephemeral service, can't", means: wrongKind},
		{words: "is persistent service, can't", means: wrongKind},
		{words: "no ips found for cluster", means: absent},
		{words: "no matched ip found", means: absent},
		{code: 20004, means: absent},
		{code: 21003, means: absent},
		{words: "already exists", means: exists},
		{code: 21007, means: exists},
		{words: "service not found", means: noService},
		{code: 21008, means: noService},
	} {
		if code != 0 && code == known.code || known.words != "" && strings.Contains(said, known.words) {
			return known.means
		}
	}
	return judgeStatus(status)
}

func judgeStatus(status int) verdict {
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return refused
	case status == http.StatusNotFound || status == http.StatusGone || status == http.StatusMethodNotAllowed:
		return noRoute
	case status >= http.StatusInternalServerError:
		return elsewhere
	case isTerminal(status):
		return unfit
	}
	return failed
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

// newAnswerError makes an error of an answer. Secrets are left out of its text.
func newAnswerError(resp *http.Response, body []byte, secrets ...string) error {
	code, said := message(body)
	e := &answerError{
		verdict: judge(resp.StatusCode, code, said), status: resp.StatusCode,
		text: fmt.Sprintf("Nacos answered %d", resp.StatusCode),
	}
	if name := http.StatusText(resp.StatusCode); name != "" {
		e.text += " " + name
	}
	e.retryAfter, e.delayed = registry.ParseRetryAfter(resp.Header.Get("Retry-After"), time.Now())
	switch said := clean(said, secrets...); {
	case resp.StatusCode >= 300 && resp.StatusCode <= 399:
		e.text += ", and redirects are not followed: set endpoint to where Nacos is (Location: " +
			clean(resp.Header.Get("Location"), secrets...) + ")"
	case said != "":
		e.text += ": " + said
	}
	return e
}

// newSilence makes an error of a request that was not answered.
func newSilence(err error, changes bool) error {
	if request := new(url.Error); errors.As(err, &request) {
		err = request.Err // the URL adds nothing but length
	}
	err = registry.TLSError(err)
	return &answerError{
		verdict: elsewhere, text: "no answer from Nacos: " + err.Error(), cause: err,
		pending: changes && errors.Is(err, context.DeadlineExceeded),
	}
}

// isPending reports whether the error is that of a change which may still be made.
func isPending(err error) bool {
	e, ok := errors.AsType[*answerError](err)
	return ok && (e.pending || e.status == http.StatusGatewayTimeout)
}

// message returns the code and the words of an answer: of the envelope, of the page that the server's framework makes, or
// else the text as it is.
func message(body []byte) (code int, said string) {
	var page struct {
		envelope
		Error string `json:"error"`
	}
	if json.Unmarshal(body, &page) != nil {
		return 0, string(body)
	}
	said = page.Message
	var more string
	if json.Unmarshal(page.Data, &more) == nil && more != "" {
		said += ": " + more
	}
	if page.Code != nil {
		code = *page.Code
	}
	return code, said
}

// classified gives an error the class that its caller sees.
func classified(ctx context.Context, in registry.Instance, opts Options, err error) error {
	e, ok := errors.AsType[*answerError](err)
	if !ok || registry.IsTerminal(err) {
		return registry.ContextError(ctx, err)
	}
	switch e.verdict {
	case unfit:
		err = registry.Terminal(err)
	case wrongKind:
		err = registry.Terminal(registry.FieldError("options.ephemeral", wrongKindError(in, opts, err)))
	case noRoute:
		err = registry.FieldError("endpoint", fmt.Errorf(
			"there is no such API, neither v3 nor the older: is the port that of the API (8848, not the console's), "+
				"and the path Nacos' context path, /nacos by default? %w", err))
	default: // passing, or dealt with where it came up
	}
	if e.delayed && !registry.IsTerminal(err) {
		err = registry.RetryAfter(err, e.retryAfter)
	}
	return registry.ContextError(ctx, err)
}

func wrongKindError(in registry.Instance, opts Options, err error) error {
	has, wants := "ephemeral", "persistent"
	if opts.Ephemeral {
		has, wants = wants, has
	}
	return fmt.Errorf("service %s holds %s instances, and Nacos takes no %s ones beside them (alibaba/nacos#10920): set it to "+
		"%t, or use another service name or group, or empty the service and wait until Nacos has removed it: %w",
		in.Service, has, wants, !opts.Ephemeral, err)
}

// clean makes a server's text fit for a log line: one line, not long, and without secrets, should the server echo them.
func clean(text string, secrets ...string) string {
	for _, secret := range secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "[secret]")
			text = strings.ReplaceAll(text, url.QueryEscape(secret), "[secret]") // as it was sent
		}
	}
	return registry.Excerpt(text)
}
