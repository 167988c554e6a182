package driverkit_test

import (
	"crypto/tls"
	"crypto/x509/pkix"
	"os"
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
	for name, tc := range map[string]struct {
		reason string
		tls    registry.TLS
		field  string
		says   string
	}{
		"nothing":     {reason: "the system's authorities, and no certificate", tls: registry.TLS{}},
		"authorities": {reason: "a registry of one's own", tls: registry.TLS{CAFile: authority.CertFile}},
		"all": {
			reason: "mTLS",
			tls:    registry.TLS{CAFile: authority.CertFile, CertFile: pair.CertFile, KeyFile: pair.KeyFile},
		},
		"certificate alone": {
			reason: "it is of no use without the key", tls: registry.TLS{CertFile: pair.CertFile},
			field: "tls.keyFile", says: "is missing",
		},
		"key alone": {
			reason: "it is of no use without the certificate", tls: registry.TLS{KeyFile: pair.KeyFile},
			field: "tls.certFile", says: "is missing",
		},
		"no authorities file": {
			reason: "a Secret was not mounted", tls: registry.TLS{CAFile: "/does/not/exist"},
			field: "tls.caFile", says: "must be a PEM file that the manager can read",
		},
		"authorities that are none": {
			reason: "no server would be trusted", tls: registry.TLS{CAFile: noPEM},
			field: "tls.caFile", says: "no certificate in PEM form",
		},
		"a key for authorities": {
			reason: "the files were mixed up", tls: registry.TLS{CAFile: pair.KeyFile},
			field: "tls.caFile", says: "no certificate in PEM form",
		},
		"no certificate file": {
			reason: "a Secret was not mounted", tls: registry.TLS{CertFile: "/does/not/exist", KeyFile: pair.KeyFile},
			field: "tls.certFile", says: "must be a PEM file that the manager can read",
		},
		"no key file": {
			reason: "a Secret was not mounted", tls: registry.TLS{CertFile: pair.CertFile, KeyFile: "/does/not/exist"},
			field: "tls.keyFile", says: "must be a PEM file that the manager can read",
		},
		"another's key": {
			reason: "one of the two was renewed", tls: registry.TLS{CertFile: pair.CertFile, KeyFile: other.KeyFile},
			field: "tls.certFile", says: "does not go with tls.keyFile",
		},
		"key that is none": {
			reason: "no error may repeat what is in a key's file", tls: registry.TLS{CertFile: pair.CertFile, KeyFile: noPEM},
			field: "tls.certFile", says: "does not go with tls.keyFile",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
}

func TestClientTLSIsOnesOwn(t *testing.T) {
	t.Parallel()
	first, err := driverkit.ClientTLS(registry.TLS{})
	expect.NoError(t, err)
	first.ServerName = "changed"
	if second, err := driverkit.ClientTLS(registry.TLS{}); err != nil || second.ServerName != "" {
		t.Errorf("got %q, %v; want a configuration that another driver has not changed", second.ServerName, err)
	}
}

func TestReadCredentialsAccepts(t *testing.T) {
	t.Parallel()
	tokenFile, passwordFile := drivertest.File(t, "hunter2"), drivertest.File(t, "hunter2")
	token := registry.Auth{TokenFile: tokenFile}
	password := registry.Auth{Username: "me", PasswordFile: passwordFile}
	both := registry.Auth{TokenFile: tokenFile, Username: "me", PasswordFile: passwordFile}
	type kinds = []driverkit.AuthKind
	for name, tc := range map[string]struct {
		reason string
		auth   registry.Auth
		kinds  kinds
		field  string
		says   string
	}{
		"nothing, for none":     {reason: "there is nothing to ignore", auth: registry.Auth{}},
		"nothing, for both":     {reason: "a registry may be open", auth: registry.Auth{}, kinds: kinds{driverkit.Token, driverkit.Password}},
		"token":                 {reason: "it is taken", auth: token, kinds: kinds{driverkit.Token}},
		"password":              {reason: "it is taken", auth: password, kinds: kinds{driverkit.Password}},
		"token, for either":     {reason: "it is taken", auth: token, kinds: kinds{driverkit.Password, driverkit.Token}},
		"token, for none":       {reason: "it would be ignored", auth: token, field: "auth.tokenFile", says: "remove it"},
		"token, for a password": {reason: "it would be ignored", auth: token, kinds: kinds{driverkit.Password}, field: "auth.tokenFile", says: "remove it"},
		"password, for a token": {reason: "it would be ignored", auth: password, kinds: kinds{driverkit.Token}, field: "auth.username", says: "remove it"},
		"password file, for none": {
			reason: "it would be ignored", auth: registry.Auth{PasswordFile: "/password"}, field: "auth.passwordFile", says: "remove it",
		},
		"user without password": {
			reason: "half a login is none", auth: registry.Auth{Username: "me"}, kinds: kinds{driverkit.Password},
			field: "auth.passwordFile", says: "is missing",
		},
		"password without user": {
			reason: "half a login is none", auth: registry.Auth{PasswordFile: "/password"}, kinds: kinds{driverkit.Password},
			field: "auth.username", says: "is missing",
		},
		"both, for either": {
			reason: "which of them counts would be a guess", auth: both, kinds: kinds{driverkit.Token, driverkit.Password},
			field: "auth.username", says: "remove one of the two",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := driverkit.ReadCredentials(tc.auth, tc.kinds...)
			expectField(t, err, tc.field, tc.says, tc.reason)
		})
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason  string
		content string
		want    string
		says    string // "": no error
	}{
		"plain":              {reason: "the plain case", content: "hunter2", want: "hunter2"},
		"white space around": {reason: "an editor adds a line break", content: "\t hunter2\r\n\n", want: "hunter2"},
		"empty":              {reason: "no token would be sent", content: "", says: "is empty"},
		"blank":              {reason: "no token would be sent", content: " \n", says: "is empty"},
		"two lines":          {reason: "a header has one line", content: "hunter2\nhunter3", says: "one token and nothing else"},
		"a blank within":     {reason: "it would end there", content: "hunter 2", says: "one token and nothing else"},
		"not ASCII":          {reason: "a header is ASCII", content: "hüntér2", says: "one token and nothing else"},
		"a control character": {
			reason: "it would break the header", content: "hunter\x7f2", says: "one token and nothing else",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			auth := registry.Auth{TokenFile: drivertest.File(t, tc.content)}
			got, err := driverkit.ReadCredentials(auth, driverkit.Token)
			if tc.says != "" {
				expectField(t, err, "auth.tokenFile", tc.says, tc.reason)
			} else if err != nil || got.Token != tc.want {
				t.Errorf("got %v, error %v; want %q\nreason: %s", got, err, tc.want, tc.reason)
			}
		})
	}
	_, err := driverkit.ReadCredentials(registry.Auth{TokenFile: t.TempDir()}, driverkit.Token)
	expectField(t, err, "auth.tokenFile", "must be a file that the manager can read", "a Secret's folder was given")
}

func TestPassword(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason  string
		content string
		want    string
		says    string // "": no error
	}{
		"plain":             {reason: "the plain case", content: "hunter2", want: "hunter2"},
		"line break":        {reason: "an editor adds one", content: "hunter2\r\n", want: "hunter2"},
		"blanks":            {reason: "a password may have them, at its ends too", content: " hunter 2 \n", want: " hunter 2 "},
		"any text":          {reason: "a password may be any", content: "hüntér: 名前 🦆", want: "hüntér: 名前 🦆"},
		"empty":             {reason: "none would be sent", content: "\n", says: "is empty"},
		"two lines":         {reason: "it is not what was meant", content: "hunter2\nhunter3\n", says: "one line"},
		"a NUL":             {reason: "it is not what was meant", content: "hunter2\x00", says: "one line"},
		"old Mac's breaks":  {reason: "they are line breaks", content: "hunter2\rhunter3", says: "one line"},
		"blank line before": {reason: "it is not what was meant", content: "\nhunter2", says: "one line"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			auth := registry.Auth{Username: "me", PasswordFile: drivertest.File(t, tc.content)}
			got, err := driverkit.ReadCredentials(auth, driverkit.Password)
			if tc.says != "" {
				expectField(t, err, "auth.passwordFile", tc.says, tc.reason)
			} else if err != nil || got.Password != tc.want {
				t.Errorf("got %v, error %v; want %q\nreason: %s", got, err, tc.want, tc.reason)
			}
		})
	}
	_, err := driverkit.ReadCredentials(registry.Auth{Username: "me", PasswordFile: "/does/not/exist"}, driverkit.Password)
	expectField(t, err, "auth.passwordFile", "must be a file that the manager can read", "a Secret was not mounted")
}

func TestFilesAreReadWhenAsked(t *testing.T) {
	t.Parallel()
	path := drivertest.File(t, "first")
	auth := registry.Auth{TokenFile: path}
	for _, want := range []string{"first", "second"} {
		expect.NoError(t, os.WriteFile(path, []byte(want), 0o600))
		if got, err := driverkit.ReadCredentials(auth, driverkit.Token); got.Token != want || err != nil {
			t.Errorf("got %v, %v; want %q, as the file has it now", got, err, want)
		}
	}
}
