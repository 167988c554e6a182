package driverkit_test

import (
	"crypto/tls"
	"crypto/x509/pkix"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/pki"
)

// newPair is a certificate with its key, and the authority that issued it.
func newPair(t *testing.T) (pki.KeyPair, *pki.Authority) {
	t.Helper()
	authority, err := pki.NewAuthority(t.TempDir(), "test")
	expect.NoError(t, err)
	pair, err := authority.Issue("client", pkix.Name{CommonName: "client"})
	expect.NoError(t, err)
	return pair, authority
}

// expectField wants an error of the field which says something; no field is no error.
func expectField(t *testing.T, err error, field, says, reason string) {
	t.Helper()
	if field == "" {
		if err != nil {
			t.Errorf("got error %v, want none\nreason: %s", err, reason)
		}
		return
	}
	got, _ := registry.FieldOf(err)
	if got != field || !strings.Contains(err.Error(), says) {
		t.Errorf("got error %v of field %q, want one of %q with %q\nreason: %s", err, got, field, says, reason)
	}
	if err != nil && strings.Contains(err.Error(), "hunter") {
		t.Errorf("the error repeats a secret: %v", err)
	}
}

func TestClientTLS(t *testing.T) {
	t.Parallel()
	pair, authority := newPair(t)
	other, _ := newPair(t)
	noPEM := drivertest.File(t, "hunter2")
	const (
		missing = "/does/not/exist"
		unread  = "must be a PEM file that the manager can read"
		apart   = "does not match tls.keyFile"
	)
	type row struct {
		reason      string
		tls         registry.TLS
		field, says string
	}
	expect.Each(t, map[string]row{
		"nothing":             {"the system's authorities, and no certificate", registry.TLS{}, "", ""},
		"authorities":         {"a registry of one's own", registry.TLS{CAFile: authority.CertFile}, "", ""},
		"all":                 {"mTLS", registry.TLS{CAFile: authority.CertFile, CertFile: pair.CertFile, KeyFile: pair.KeyFile}, "", ""},
		"certificate alone":   {"it is of no use without the key", registry.TLS{CertFile: pair.CertFile}, "tls.keyFile", "is missing"},
		"key alone":           {"it is of no use without the certificate", registry.TLS{KeyFile: pair.KeyFile}, "tls.certFile", "is missing"},
		"no authorities file": {"a Secret is missing", registry.TLS{CAFile: missing}, "tls.caFile", unread},
		"none in it":          {"no server would be trusted", registry.TLS{CAFile: noPEM}, "tls.caFile", "no certificate in PEM form"},
		"a key in it":         {"the files were mixed up", registry.TLS{CAFile: pair.KeyFile}, "tls.caFile", "no certificate in PEM form"},
		"no certificate file": {"a Secret is missing", registry.TLS{CertFile: missing, KeyFile: pair.KeyFile}, "tls.certFile", unread},
		"no key file":         {"a Secret is missing", registry.TLS{CertFile: pair.CertFile, KeyFile: missing}, "tls.keyFile", unread},
		"another's key":       {"one was renewed", registry.TLS{CertFile: pair.CertFile, KeyFile: other.KeyFile}, "tls.certFile", apart},
		"no key in its file":  {"no error may repeat it", registry.TLS{CertFile: pair.CertFile, KeyFile: noPEM}, "tls.certFile", apart},
	}, func(t *testing.T, tc row) {
		got, err := driverkit.ClientTLS(tc.tls)
		expectField(t, err, tc.field, tc.says, tc.reason)
		if err != nil {
			return
		}
		if got.MinVersion != tls.VersionTLS12 || got.InsecureSkipVerify {
			t.Errorf("got TLS from version %x, unverified: %t; want 1.2, and verified", got.MinVersion, got.InsecureSkipVerify)
		}
		if (got.RootCAs != nil) != (tc.tls.CAFile != "") || len(got.Certificates) > 0 != (tc.tls.CertFile != "") {
			t.Errorf("got authorities: %t, certificates: %d; want what the files have\nreason: %s",
				got.RootCAs != nil, len(got.Certificates), tc.reason)
		}
	})
}

func TestReadCredentialsAccepts(t *testing.T) {
	t.Parallel()
	tokenFile, passwordFile := drivertest.File(t, "hunter2"), drivertest.File(t, "hunter2")
	token := registry.Auth{TokenFile: tokenFile}
	password := registry.Auth{Username: "me", PasswordFile: passwordFile}
	both := registry.Auth{TokenFile: tokenFile, Username: "me", PasswordFile: passwordFile}
	type kinds = []driverkit.AuthKind
	either := kinds{driverkit.Password, driverkit.Token}
	type row struct {
		reason      string
		auth        registry.Auth
		kinds       kinds
		field, says string
	}
	expect.Each(t, map[string]row{
		"nothing, for none":       {"there is nothing to ignore", registry.Auth{}, nil, "", ""},
		"nothing, for either":     {"a registry may be open", registry.Auth{}, either, "", ""},
		"token":                   {"it is taken", token, kinds{driverkit.Token}, "", ""},
		"password":                {"it is taken", password, kinds{driverkit.Password}, "", ""},
		"token, for either":       {"it is taken", token, either, "", ""},
		"token, for none":         {"it would be ignored", token, nil, "auth.tokenFile", "remove it"},
		"token, for a password":   {"it would be ignored", token, kinds{driverkit.Password}, "auth.tokenFile", "remove it"},
		"password, for a token":   {"it would be ignored", password, kinds{driverkit.Token}, "auth.username", "remove it"},
		"password file, for none": {"it would be ignored", registry.Auth{PasswordFile: "/password"}, nil, "auth.passwordFile", "remove it"},
		"user without password":   {"half a login is none", registry.Auth{Username: "me"}, either, "auth.passwordFile", "is missing"},
		"password without user":   {"half a login is none", registry.Auth{PasswordFile: "/password"}, either, "auth.username", "is missing"},
		"both, for either":        {"which of them counts would be a guess", both, either, "auth.username", "remove one of the two"},
	}, func(t *testing.T, tc row) {
		_, err := driverkit.ReadCredentials(tc.auth, tc.kinds...)
		expectField(t, err, tc.field, tc.says, tc.reason)
	})
}

// TestSecretFiles reads files of a token and of a password: what a secret is made of differs.
func TestSecretFiles(t *testing.T) {
	t.Parallel()
	const token, password = "auth.tokenFile", "auth.passwordFile"
	type row struct {
		reason  string
		field   string
		content string
		want    string
		says    string // "": no error
	}
	expect.Each(t, map[string]row{
		"token":                     {"the plain case", token, "hunter2", "hunter2", ""},
		"token, white space around": {"an editor adds a line break", token, "\t hunter2\r\n\n", "hunter2", ""},
		"token, empty":              {"no token would be sent", token, "", "", "is empty"},
		"token, blank":              {"no token would be sent", token, " \n", "", "is empty"},
		"token, two lines":          {"a header has one line", token, "hunter2\nhunter3", "", "one token and nothing else"},
		"token, a blank within":     {"it would end there", token, "hunter 2", "", "one token and nothing else"},
		"token, not ASCII":          {"a header is ASCII", token, "hüntér2", "", "one token and nothing else"},
		"token, control character":  {"it would break the header", token, "hunter\x7f2", "", "one token and nothing else"},

		"password":                    {"the plain case", password, "hunter2", "hunter2", ""},
		"password, line break":        {"an editor adds one", password, "hunter2\r\n", "hunter2", ""},
		"password, blanks":            {"it may have them, at its ends too", password, " hunter 2 \n", " hunter 2 ", ""},
		"password, any text":          {"it may be any", password, "hüntér: 名前 🦆", "hüntér: 名前 🦆", ""},
		"password, empty":             {"none would be sent", password, "\n", "", "is empty"},
		"password, two lines":         {"it is not what was meant", password, "hunter2\nhunter3\n", "", "one line"},
		"password, a NUL":             {"it is not what was meant", password, "hunter2\x00", "", "one line"},
		"password, old Mac's breaks":  {"they are line breaks", password, "hunter2\rhunter3", "", "one line"},
		"password, blank line before": {"it is not what was meant", password, "\nhunter2", "", "one line"},
	}, func(t *testing.T, tc row) {
		got, err := readSecret(tc.field, drivertest.File(t, tc.content))
		if tc.says != "" {
			expectField(t, err, tc.field, tc.says, tc.reason)
		} else if err != nil || got != tc.want {
			t.Errorf("got %q, error %v; want %q\nreason: %s", got, err, tc.want, tc.reason)
		}
	})
	for _, field := range []string{token, password} {
		_, err := readSecret(field, t.TempDir())
		expectField(t, err, field, "must be a file that the manager can read", "a Secret's folder was given")
		_, err = readSecret(field, "/does/not/exist")
		expectField(t, err, field, "must be a file that the manager can read", "a Secret was not mounted")
	}
}

// readSecret reads the secret of the configuration's field.
func readSecret(field, file string) (string, error) {
	if field == "auth.tokenFile" {
		got, err := driverkit.ReadCredentials(registry.Auth{TokenFile: file}, driverkit.Token)
		return got.Token, err
	}
	got, err := driverkit.ReadCredentials(registry.Auth{Username: "me", PasswordFile: file}, driverkit.Password)
	return got.Password, err
}
