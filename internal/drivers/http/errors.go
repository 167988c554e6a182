package httpregistry

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/rollcall-dev/rollcall/registry"
)

const (
	// maxErrorBody bounds what is read of an error's body, in bytes, and maxMessage what is shown of it, in characters.
	maxErrorBody = 16 << 10
	maxMessage   = 300
	// maxRetryAfter bounds what a server can make us wait: a slip of the pen there must not strand a pod for a year.
	maxRetryAfter = time.Hour
)

// answerError makes an error of an answer that is no acknowledgement, with the class that its status asks for.
func answerError(resp *http.Response, token string) error {
	err := errors.New(describe(resp, token))
	if isTerminal(resp.StatusCode) {
		return registry.Terminal(err)
	}
	if after, said := retryAfter(resp.Header.Get("Retry-After"), time.Now()); said {
		return registry.RetryAfter(err, after)
	}
	return err
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

func describe(resp *http.Response, token string) string {
	text := fmt.Sprintf("the registry answered %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	text = strings.TrimSpace(text)
	if resp.StatusCode >= 300 && resp.StatusCode <= 399 {
		return text + ", and redirects are not followed: set endpoint to where the registry is (Location: " +
			clean(resp.Header.Get("Location"), token) + ")"
	}
	if said := clean(message(resp.Body), token); said != "" {
		return text + ": " + said
	}
	return text
}

// message returns what the server says, from {"error": …} or else from the text as it is.
func message(body io.Reader) string {
	raw, _ := io.ReadAll(io.LimitReader(body, maxErrorBody)) // what could be read of it is better than nothing
	var problem struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(raw, &problem) == nil && problem.Error != "" {
		return problem.Error
	}
	return string(raw)
}

// clean makes a server's text fit for a log line: one line, not long, and not our token, should the server echo it.
func clean(text, token string) string {
	if token != "" {
		text = strings.ReplaceAll(text, token, "[token]")
	}
	text = strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(text, "?"))
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > maxMessage {
		return string(runes[:maxMessage]) + "…"
	}
	return text
}

// retryAfter reads the header of that name: seconds, or an HTTP date. Anything else is as if it were not there.
func retryAfter(value string, now time.Time) (time.Duration, bool) {
	if seconds, err := strconv.ParseUint(strings.TrimSpace(value), 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter), true
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(at.Sub(now), 0), maxRetryAfter), true
	}
	return 0, false
}
