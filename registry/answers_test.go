package registry_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

func TestTLSError(t *testing.T) {
	t.Parallel()
	alert := func(text string) error { return &net.OpError{Op: "remote error", Err: errors.New("tls: " + text)} }
	for name, tc := range map[string]struct {
		reason string
		err    error
		field  string
	}{
		"unknown authority": {
			"the file lacks it", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, "tls.caFile",
		},
		"bare": {"not every client wraps it", x509.UnknownAuthorityError{}, "tls.caFile"},
		"expired": {
			"another authority would not help: it stays so until the registry has a new one",
			&tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.Expired}}, "endpoint",
		},
		"not fit for a server": {
			"another authority may", x509.CertificateInvalidError{Reason: x509.IncompatibleUsage}, "tls.caFile",
		},
		"another host": {
			"the endpoint names another than the certificate",
			&tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: &x509.Certificate{}, Host: "a"}}, "endpoint",
		},
		"certificate required": {"the server wants ours", alert("certificate required"), "tls.certFile"},
		"bad certificate":      {"the server does not trust ours", alert("bad certificate"), "tls.certFile"},
		"access denied":        {"the server knows ours, and does not let it in", alert("access denied"), "tls.certFile"},
		"another alert":        {"it may have to do with anything", alert("internal error"), ""},
		"of the connection":    {"it passes", &net.OpError{Op: "dial", Err: errors.New("bad certificate file on that machine")}, ""},
		"none":                 {"nothing failed", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := tc.err
			if err != nil {
				err = fmt.Errorf("Put %q: %w", "https://registry", err)
			}
			got := registry.TLSError(err)
			field, _ := registry.FieldOf(got)
			if field != tc.field || registry.IsTerminal(got) != (tc.field != "") || !errors.Is(got, err) {
				t.Errorf("TLSError(%v) is %v: terminal %t, field %q, want %q: %s", err, got, registry.IsTerminal(got), field, tc.field, tc.reason)
			}
		})
	}
}

func TestParseRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, tc := range map[string]struct {
		reason string
		after  time.Duration
		said   bool
	}{
		"7":          {"seconds", 7 * time.Second, true},
		"0":          {"at once is an answer too", 0, true},
		"4000000000": {"nobody waits for a century", time.Hour, true},
		now.Add(time.Minute).Format(http.TimeFormat):  {"an HTTP date", time.Minute, true},
		now.Add(-time.Minute).Format(http.TimeFormat): {"a date that has passed says nothing: a clock is wrong", 0, false},
		now.AddDate(1, 0, 0).Format(http.TimeFormat):  {"nobody waits for a year", time.Hour, true},
		now.Format(http.TimeFormat):                   {"so does the very moment", 0, false},
		"":                                            {"no header", 0, false},
		"-1":                                          {"no number of seconds", 0, false},
		"soon":                                        {"neither of the two", 0, false},
	} {
		if after, said := registry.ParseRetryAfter(value, now); after != tc.after || said != tc.said {
			t.Errorf("%q: got %s, %t, want %s, %t: %s", value, after, said, tc.after, tc.said, tc.reason)
		}
	}
}

func TestExcerpt(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                           "",
		"  no\r\n such\tservice\x00": "no such service",
		"\xff\x1b[31mred":            "? [31mred",
		"größer":                     "größer",
		strings.Repeat("é", 300):     strings.Repeat("é", 300),
		strings.Repeat("é", 301):     strings.Repeat("é", 300) + "…",
	} {
		if got := registry.Excerpt(text); got != want {
			t.Errorf("Excerpt(%q) is %q, want %q", text, got, want)
		}
	}
}
