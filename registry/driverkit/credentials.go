package driverkit

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/rollcall-dev/rollcall/registry"
)

// ClientTLS reads the files and returns a new client configuration: TLS 1.2 or newer. The error joins those of all files, each with
// its field.
func ClientTLS(files registry.TLS) (*tls.Config, error) {
	roots, rootsErr := readAuthorities(files.CAFile)
	pairs, pairErr := readPair(files.CertFile, files.KeyFile)
	if err := errors.Join(registry.FieldError("tls.caFile", rootsErr), pairErr); err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: pairs}, nil
}

// readAuthorities returns nil, which is the system's, without a path.
func readAuthorities(path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil
	}
	pem, err := readFile(path, "a PEM file")
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate in PEM form", path)
	}
	return roots, nil
}

// readPair returns none without files, and an error with the field of the file that is wrong, if that can be told.
func readPair(certFile, keyFile string) ([]tls.Certificate, error) {
	switch {
	case certFile == "" && keyFile == "":
		return nil, nil
	case certFile == "":
		return nil, registry.FieldError("tls.certFile", errors.New("is missing: set the certificate that belongs to tls.keyFile"))
	case keyFile == "":
		return nil, registry.FieldError("tls.keyFile", errors.New("is missing: set the key of tls.certFile"))
	}
	cert, certErr := readFile(certFile, "a PEM file")
	key, keyErr := readFile(keyFile, "a PEM file")
	if err := errors.Join(registry.FieldError("tls.certFile", certErr), registry.FieldError("tls.keyFile", keyErr)); err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, registry.FieldError("tls.certFile", fmt.Errorf("does not match tls.keyFile: %w", err))
	}
	return []tls.Certificate{pair}, nil
}

// AuthKind is a way to authenticate.
type AuthKind int

const (
	// Token is auth.tokenFile.
	Token AuthKind = iota + 1
	// Password is auth.username and auth.passwordFile.
	Password
	// Document is auth.tokenFile with more than a token, such as JSON with a key.
	Document
)

// Credentials are the contents of the configuration's files. Each is empty if nothing is configured.
type Credentials struct {
	Token, Username, Password string
}

// ReadCredentials reads the files. It returns an error for a field that a driver with only these kinds would ignore, and for a
// user without a password or the other way round. White space around a token is ignored, and a line break at the end of a
// password. The error has the field, and nothing of a file's content.
func ReadCredentials(auth registry.Auth, kinds ...AuthKind) (Credentials, error) {
	if err := accept(auth, kinds); err != nil {
		return Credentials{}, err
	}
	odd, form := func(c rune) bool { return c <= ' ' || c > '~' }, "one token and nothing else: no white space within it, only ASCII"
	if slices.Contains(kinds, Document) {
		odd, form = func(c rune) bool { return c == 0 }, "text"
	}
	token, tokenErr := readSecret(auth.TokenFile, strings.TrimSpace, odd, form)
	password, passwordErr := readSecret(auth.PasswordFile, trimBreaks, func(c rune) bool { return strings.ContainsRune("\r\n\x00", c) },
		"one line with the password and nothing else")
	err := errors.Join(registry.FieldError("auth.tokenFile", tokenErr), registry.FieldError("auth.passwordFile", passwordErr))
	if err != nil {
		return Credentials{}, err
	}
	return Credentials{Token: token, Username: auth.Username, Password: password}, nil
}

func accept(auth registry.Auth, kinds []AuthKind) error {
	var unused []error
	for _, f := range []struct {
		field, value string
		kind         AuthKind
	}{
		{"auth.tokenFile", auth.TokenFile, Token}, {"auth.username", auth.Username, Password},
		{"auth.passwordFile", auth.PasswordFile, Password},
	} {
		if f.value != "" && !slices.Contains(kinds, f.kind) && (f.kind != Token || !slices.Contains(kinds, Document)) {
			unused = append(unused, registry.FieldError(f.field, errors.New("this driver does not use it: remove it")))
		}
	}
	if len(unused) > 0 {
		return errors.Join(unused...)
	}
	return whole(auth)
}

// whole returns an error for half a login, and for two.
func whole(auth registry.Auth) error {
	switch {
	case auth.Username != "" && auth.PasswordFile == "":
		return registry.FieldError("auth.passwordFile",
			errors.New("is missing: set the file with the password of auth.username"))
	case auth.Username == "" && auth.PasswordFile != "":
		return registry.FieldError("auth.username", errors.New("is missing: set the user that auth.passwordFile belongs to"))
	case auth.TokenFile != "" && auth.Username != "":
		return registry.FieldError("auth.username", errors.New("there is auth.tokenFile too: remove one of the two"))
	}
	return nil
}

// readSecret returns the trimmed content of a file, or "" if the path is empty. An odd character is an error.
func readSecret(path string, trim func(string) string, odd func(rune) bool, form string) (string, error) {
	if path == "" {
		return "", nil
	}
	raw, err := readFile(path, "a file")
	if err != nil {
		return "", err
	}
	secret := trim(string(raw))
	switch {
	case secret == "":
		return "", fmt.Errorf("%s is empty", path)
	case strings.ContainsFunc(secret, odd):
		return "", fmt.Errorf("%s must hold %s", path, form)
	}
	return secret, nil
}

func trimBreaks(text string) string { return strings.TrimRight(text, "\r\n") }

func readFile(path, what string) ([]byte, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("must be %s that the manager can read; in a cluster, create the Secret that is mounted there: %w", what, err)
	}
	return raw, nil
}

// Authorization returns a header with Authorization set to a bearer token or to HTTP's basic authentication (RFC 7617), or an empty
// header without credentials. A user name that basic authentication can't carry is an error.
func (c Credentials) Authorization() (http.Header, error) {
	switch {
	case c.Token != "":
		return http.Header{"Authorization": {"Bearer " + c.Token}}, nil
	case c.Username == "":
		return http.Header{}, nil
	case strings.ContainsFunc(c.Username, func(r rune) bool { return r == ':' || r < ' ' || r == '\x7f' }):
		return nil, registry.FieldError("auth.username", errors.New(
			"must not hold a colon or a control character: HTTP could not tell where the password begins"))
	}
	return http.Header{"Authorization": {"Basic " + c.basic()}}, nil
}

func (c Credentials) basic() string {
	return base64.StdEncoding.EncodeToString([]byte(c.Username + ":" + c.Password))
}

// Excerpt is [registry.Excerpt] of a server's text, without the credentials in any form in which they are sent: a server may
// repeat them.
func (c Credentials) Excerpt(text string) string { return c.mask().excerpt(text) }

func (c Credentials) mask() mask {
	m := mask{}.with("[token]", c.Token)
	if c.Password == "" {
		return m
	}
	return m.with("[password]", c.basic(), c.Password)
}
