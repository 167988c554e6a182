package registry

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// maxExcerpt is how much is shown of a server's words, in characters.
const maxExcerpt = 300

// TLSError gives the error of a connection its class where a certificate was refused, by us or by the server, which stays
// wrong until a file is replaced here or there: [Terminal], with the field that is wrong. Any other error is returned as it
// is. A driver whose certificates are for another name than the endpoint's looks for [x509.HostnameError] itself first.
func TLSError(err error) error {
	var (
		otherHost x509.HostnameError
		theirs    *tls.CertificateVerificationError
		unknown   x509.UnknownAuthorityError
		invalid   x509.CertificateInvalidError
	)
	switch {
	case errors.As(err, &otherHost):
		return Terminal(FieldError("endpoint", fmt.Errorf("is not what the registry's certificate is for: %w", err)))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return Terminal(FieldError("endpoint", fmt.Errorf("shows a certificate that has expired or is not valid yet: %w", err)))
	case errors.As(err, &theirs), errors.As(err, &unknown), errors.As(err, &invalid):
		return Terminal(FieldError("tls.caFile", fmt.Errorf("does not vouch for the registry: %w", err)))
	case refusesCertificate(err):
		return Terminal(FieldError("tls.certFile", fmt.Errorf("is not what the registry asks for: %w", err)))
	}
	return err
}

// refusesCertificate knows, of the alerts that a server can end a handshake with (RFC 8446, 6.2), those that speak of the
// client's certificate. Package crypto/tls has no type for them.
func refusesCertificate(err error) bool {
	var remote *net.OpError
	if !errors.As(err, &remote) || remote.Op != "remote error" {
		return false
	}
	alert := remote.Err.Error()
	return strings.Contains(alert, "certificate") || strings.HasSuffix(alert, "access denied")
}

// ParseRetryAfter reads the header of that name of an answer that came now: seconds, or an HTTP date. It returns at most an
// hour, and false where the header is missing or neither of the two. A date that has passed counts for missing: it says
// that a clock is wrong, and nothing of when to come back. The result is for [RetryAfter].
func ParseRetryAfter(value string, now time.Time) (time.Duration, bool) {
	if seconds, err := strconv.ParseUint(strings.TrimSpace(value), 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter), true
	}
	if at, err := http.ParseTime(value); err == nil && at.After(now) {
		return min(at.Sub(now), maxRetryAfter), true
	}
	return 0, false
}

// Excerpt makes a server's text fit for an error: one line of printable characters, not more than 300 of them. Secrets that
// the server may echo are the driver's to take out before, since only it knows how it sent them.
func Excerpt(text string) string {
	text = strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(text, "?"))
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > maxExcerpt {
		return string(runes[:maxExcerpt]) + "…"
	}
	return text
}
