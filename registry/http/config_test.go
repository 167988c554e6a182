package httpregistry_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	httpregistry "github.com/rollcall-dev/rollcall/registry/http"
)

func TestNewNamesTheFieldThatIsWrong(t *testing.T) {
	t.Parallel()
	const good = "https://registry.example.com/base"
	empty, twoLines := writeFile(t, "token", " \n"), writeFile(t, "token", "hunter2\nhunter3\n")
	noPEM := writeFile(t, "ca.crt", "not a certificate")
	cert, token, password := newCertificate(t), writeFile(t, "token", goodToken), writeFile(t, "password", goodPassword)
	at := func(endpoint string) registry.Config { return registry.Config{Endpoint: endpoint} }
	withToken := func(path string) registry.Config {
		return registry.Config{Endpoint: good, Auth: registry.Auth{TokenFile: path}}
	}
	withAuth := func(auth registry.Auth) registry.Config { return registry.Config{Endpoint: good, Auth: auth} }
	withCert := func(endpoint, cert, key string) registry.Config {
		return registry.Config{Endpoint: endpoint, TLS: registry.TLS{CertFile: cert, KeyFile: key}}
	}
	withCA := func(endpoint, path string) registry.Config {
		return registry.Config{Endpoint: endpoint, TLS: registry.TLS{CAFile: path}}
	}
	for name, tc := range map[string]struct {
		reason string
		cfg    registry.Config
		field  string
		says   string
	}{
		"no endpoint":    {"there is no default", at(""), "endpoint", "is missing"},
		"no scheme":      {"a bare host is ambiguous", at("registry.example.com"), "endpoint", "must begin with http:// or https://"},
		"host and port":  {"its host is read as a scheme", at("registry.example.com:80"), "endpoint", "must begin with http:// or https://"},
		"other scheme":   {"only HTTP is spoken", at("tcp://registry.example.com"), "endpoint", "must begin with http:// or https://"},
		"no host":        {"there is nobody to call", at("https:///base"), "endpoint", "has no host"},
		"only a port":    {"there is nobody to call", at("http://:8080"), "endpoint", "has no host"},
		"port too large": {"no call could succeed", at("http://registry:80800"), "endpoint", "a port is 1 to 65535"},
		"port zero":      {"no call could succeed", at("http://registry:0"), "endpoint", "a port is 1 to 65535"},
		"garbage":        {"no call could succeed", at("http://regi stry"), "endpoint", "is not a URL"},
		"password":       {"configuration is no place for a secret", at("https://me:hunter2@registry"), "endpoint", "the files that auth names"},
		"bad password":   {"the error must not repeat it", at("https://me:hunter2%zz@registry"), "endpoint", "is not a URL"},
		"query":          {"the list has its own", at(good + "?a=b"), "endpoint", "must not have a query"},
		"empty query":    {"the list has its own", at(good + "?"), "endpoint", "must not have a query"},
		"fragment":       {"it is never sent", at(good + "#a"), "endpoint", "must not have a fragment"},

		"missing token file": {"a Secret was not mounted", withToken("/does/not/exist"), "auth.tokenFile", "must be a file that the manager can read"},
		"empty token file":   {"no token would be sent", withToken(empty), "auth.tokenFile", "is empty"},
		"two tokens":         {"a header has one line", withToken(twoLines), "auth.tokenFile", "one token and nothing else"},
		"token directory":    {"a Secret's folder was given", withToken("/"), "auth.tokenFile", "is a directory"},
		"missing ca file":    {"a Secret was not mounted", withCA(good, "/does/not/exist"), "tls.caFile", "must be a PEM file that the manager can read"},
		"ca file, not PEM":   {"nobody would be trusted", withCA(good, noPEM), "tls.caFile", "no certificate in PEM form"},
		"ca file over http":  {"it promises what is not there", withCA("http://registry", noPEM), "tls.caFile", "endpoint is not https://"},
		"another scheme":     {"one of them would be open to all", at(good + ",http://registry"), "endpoint", "http and https"},
		"empty address":      {"a comma too many", at(good + ","), "endpoint", "empty address"},

		"certificate without key": {"one is of no use without the other", withCert(good, cert.CertFile, ""), "tls.keyFile", "is missing"},
		"key without certificate": {"one is of no use without the other", withCert(good, "", cert.KeyFile), "tls.certFile", "is missing"},
		"certificate over http": {
			"nobody would ask for it", withCert("http://registry", cert.CertFile, cert.KeyFile), "tls.certFile", "endpoint is not https://",
		},
		"certificate of another key": {
			"no handshake could succeed", withCert(good, cert.CertFile, newCertificate(t).KeyFile), "tls.certFile", "does not go with",
		},

		"user without password": {"one is of no use without the other", withAuth(registry.Auth{Username: "me"}), "auth.passwordFile", "is missing"},
		"password without user": {
			"one is of no use without the other", withAuth(registry.Auth{PasswordFile: password}), "auth.username", "is missing",
		},
		"token and password": {
			"a request has one Authorization", withAuth(registry.Auth{TokenFile: token, Username: "me", PasswordFile: password}),
			"auth.username", "remove one",
		},
		"colon in the user": {
			"the password would begin there", withAuth(registry.Auth{Username: "me:you", PasswordFile: password}), "auth.username", "colon",
		},
		"missing password file": {
			"a Secret was not mounted", withAuth(registry.Auth{Username: "me", PasswordFile: "/does/not/exist"}),
			"auth.passwordFile", "must be a file that the manager can read",
		},
		"password of two lines": {
			"it is not what was meant", withAuth(registry.Auth{Username: "me", PasswordFile: twoLines}), "auth.passwordFile", "one line",
		},
		"an option": {
			"there are none, and a misspelt one must not be ignored",
			registry.Config{Endpoint: good, Options: json.RawMessage(`{"retries":3}`)}, "options", `"retries"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := httpregistry.New(t.Context(), tc.cfg)
			field, _ := registry.FieldOf(err)
			if err == nil || field != tc.field || !strings.Contains(err.Error(), tc.says) {
				t.Fatalf("New: got error %v, want one of field %s with %q\nreason: %s", err, tc.field, tc.says, tc.reason)
			}
			if strings.Contains(err.Error(), "hunter") {
				t.Errorf("New: the error repeats a secret: %v", err)
			}
		})
	}
}

func TestNewNeedsNoServer(t *testing.T) {
	t.Parallel()
	for name, endpoint := range map[string]string{
		"http": "http://registry.invalid", "https": "https://registry.invalid:8443/a/b/", "IPv6": "http://[fd00::1]:80",
		"several": "https://a.registry.invalid/x, https://b.registry.invalid/x",
	} {
		if _, err := httpregistry.New(t.Context(), registry.Config{Endpoint: endpoint}); err != nil {
			t.Errorf("%s: got error %v, want a driver: the registry may come up later", name, err)
		}
	}
}
