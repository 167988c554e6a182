package httpregistry

import (
	"encoding/json"
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

// answerError makes an error of an answer that is no acknowledgement, with the class that its status asks for.
func answerError(resp *http.Response, shown credentials) error {
	err := errors.New(describe(resp, shown))
	switch {
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden:
		return registry.Terminal(registry.FieldError(shown.field, err))
	case isTerminal(resp.StatusCode):
		return registry.Terminal(err)
	}
	if after, said := registry.ParseRetryAfter(resp.Header.Get("Retry-After"), time.Now()); said {
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

func describe(resp *http.Response, shown credentials) string {
	text := fmt.Sprintf("the registry answered %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	text = strings.TrimSpace(text)
	if resp.StatusCode >= 300 && resp.StatusCode <= 399 {
		return text + ", and redirects are not followed: set endpoint to where the registry is (Location: " +
			clean(resp.Header.Get("Location"), shown) + ")"
	}
	if said := clean(message(resp.Body), shown); said != "" {
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

// clean makes a server's text fit for a log line: one line, not long, and not our secret, should the server echo it.
func clean(text string, shown credentials) string {
	text = shown.masks.Replace(text)
	return registry.Excerpt(text)
}
