package main

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestAuthorities(t *testing.T) {
	t.Parallel()
	text, err := authorities("v1.2.3")
	expect.NoError(t, err)
	if want := "# The CAs of Mozilla's root program, from " + module + " v1.2.3.\n"; !strings.HasPrefix(string(text), want) {
		t.Errorf("the file does not begin with %q", want)
	}
	got := certificates(t, text)
	for root := range bundle.Roots() {
		has := slices.ContainsFunc(got, func(c *x509.Certificate) bool { return bytes.Equal(c.Raw, root.Certificate) })
		if free := root.Constraint == nil; has != free {
			t.Errorf("a CA that is trusted for all certificates (%t) is in the file: %t", free, has)
		}
	}
	// Two that no list lacks: Let's Encrypt's and Amazon's.
	for _, name := range []string{"ISRG Root X1", "Amazon Root CA 1"} {
		if !slices.ContainsFunc(got, func(c *x509.Certificate) bool { return c.Subject.CommonName == name && c.IsCA }) {
			t.Errorf("the file has %d CAs, and not %s", len(got), name)
		}
	}
}

func certificates(t *testing.T, text []byte) (all []*x509.Certificate) {
	t.Helper()
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		certificate, err := x509.ParseCertificate(block.Bytes)
		expect.NoError(t, err)
		all = append(all, certificate)
	}
	return all
}
