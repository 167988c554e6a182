package driverkit_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestTLSError(t *testing.T) {
	t.Parallel()
	alert := func(text string) error { return &net.OpError{Op: "remote error", Err: errors.New("tls: " + text)} }
	type row struct {
		reason string
		err    error
		field  string
	}
	expect.Each(t, map[string]row{
		"unknown authority": {"the file lacks it", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, "tls.caFile"},
		"bare":              {"not every client wraps it", x509.UnknownAuthorityError{}, "tls.caFile"},
		"expired": {
			"another authority would not help: it stays so until the registry has a new one",
			&tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.Expired}}, "endpoint",
		},
		"not fit for a server": {"another authority may", x509.CertificateInvalidError{Reason: x509.IncompatibleUsage}, "tls.caFile"},
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
	}, func(t *testing.T, tc row) {
		err := tc.err
		if err != nil {
			err = fmt.Errorf("Put %q: %w", "https://registry", err)
		}
		got := driverkit.TLSError(err)
		field, _ := registry.FieldOf(got)
		if field != tc.field || (registry.CodeOf(got) == registry.CodeTerminal) != (tc.field != "") || !errors.Is(got, err) {
			t.Errorf("TLSError(%v) is %v: terminal %t, field %q, want %q: %s", err, got, registry.CodeOf(got) == registry.CodeTerminal, field, tc.field, tc.reason)
		}
	})
}
