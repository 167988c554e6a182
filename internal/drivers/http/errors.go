package httpregistry

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
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
func answerError(resp *http.Response, shown credentials) error {
	err := errors.New(describe(resp, shown))
	switch {
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden:
		return registry.Terminal(registry.FieldError(shown.field, err))
	case isTerminal(resp.StatusCode):
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

// connectionError gives an error of a call that got no answer its class. What has to do with certificates stays wrong until
// a file is replaced, here or at the server; anything else is a matter of time.
func connectionError(err error) error {
	var unknown x509.UnknownAuthorityError
	var otherHost x509.HostnameError
	switch {
	case errors.As(err, &unknown):
		return registry.Terminal(registry.FieldError("tls.caFile", fmt.Errorf("does not vouch for the registry: %w", err)))
	case errors.As(err, &otherHost):
		return registry.Terminal(registry.FieldError("endpoint", fmt.Errorf("is not what the registry's certificate is for: %w", err)))
	case certificateRefused(err):
		return registry.Terminal(registry.FieldError("tls.certFile", fmt.Errorf("is not what the registry asks for: %w", err)))
	}
	return err
}

// certificateRefused knows, of the alerts that a server can end a handshake with (RFC 8446, 6.2), those that speak of the
// client's certificate. Package crypto/tls has no type for them.
func certificateRefused(err error) bool {
	var remote *net.OpError
	if !errors.As(err, &remote) || remote.Op != "remote error" {
		return false
	}
	switch strings.TrimPrefix(remote.Err.Error(), "tls: ") {
	case "certificate required", "bad certificate", "unsupported certificate", "revoked certificate", "expired certificate",
		"unknown certificate", "unknown certificate authority", "access denied":
		return true
	}
	return false
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
