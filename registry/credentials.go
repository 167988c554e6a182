package registry

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// TLS says how the registry proves who it is, and how we prove who we are.
type TLS struct {
	// CAFile is a PEM file with the authorities to trust; empty means the system's.
	CAFile string
	// CertFile and KeyFile are PEM files with our certificate and its key, for a registry that asks for one. Both or
	// neither.
	CertFile string
	KeyFile  string
}

// Given reports whether any file is named.
func (t TLS) Given() bool { return t != TLS{} }

// ClientConfig reads the files and returns a client's configuration of its own: TLS 1.2 or newer. The error names the
// field of the file that is wrong.
func (t TLS) ClientConfig() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CAFile != "" {
		roots, err := readAuthorities(t.CAFile)
		if err != nil {
			return nil, FieldError("tls.caFile", err)
		}
		c.RootCAs = roots
	}
	switch {
	case t.CertFile == "" && t.KeyFile == "":
		return c, nil
	case t.CertFile == "":
		return nil, FieldError("tls.certFile", errors.New("is missing: tls.keyFile needs the certificate it belongs to"))
	case t.KeyFile == "":
		return nil, FieldError("tls.keyFile", errors.New("is missing: tls.certFile needs its key"))
	}
	pair, err := readPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, err
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}

func readAuthorities(path string) (*x509.CertPool, error) {
	pem, err := readFile(path, "a PEM file")
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate in PEM form", path)
	}
	return roots, nil
}

// readPair says which of the two files is to blame where that can be told.
func readPair(certFile, keyFile string) (tls.Certificate, error) {
	cert, err := readFile(certFile, "a PEM file")
	if err != nil {
		return tls.Certificate{}, FieldError("tls.certFile", err)
	}
	key, err := readFile(keyFile, "a PEM file")
	if err != nil {
		return tls.Certificate{}, FieldError("tls.keyFile", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return tls.Certificate{}, FieldError("tls.certFile", fmt.Errorf("does not go with tls.keyFile: %w", err))
	}
	return pair, nil
}

// Auth says who we are to the registry.
type Auth struct {
	// TokenFile holds a token; surrounding white space is ignored.
	TokenFile string
	// Username is sent with the password in PasswordFile; a line break at the end of the file is ignored.
	Username     string
	PasswordFile string
}

// AuthKind is a way to say who one is.
type AuthKind int

const (
	// AuthToken is Auth.TokenFile.
	AuthToken AuthKind = iota + 1
	// AuthPassword is Auth.Username and Auth.PasswordFile.
	AuthPassword
)

// Accept returns an error for a field that a driver which knows only these kinds would ignore, and for a user without a
// password or the other way round.
func (a Auth) Accept(kinds ...AuthKind) error {
	notTaken := errors.New("this driver does not take it: remove it")
	if a.TokenFile != "" && !slices.Contains(kinds, AuthToken) {
		return FieldError("auth.tokenFile", notTaken)
	}
	if !slices.Contains(kinds, AuthPassword) {
		switch {
		case a.Username != "":
			return FieldError("auth.username", notTaken)
		case a.PasswordFile != "":
			return FieldError("auth.passwordFile", notTaken)
		}
	}
	return a.whole()
}

// whole returns an error for half a login, and for two.
func (a Auth) whole() error {
	switch {
	case a.Username != "" && a.PasswordFile == "":
		return FieldError("auth.passwordFile", errors.New("is missing: auth.username needs the file with its password"))
	case a.Username == "" && a.PasswordFile != "":
		return FieldError("auth.username", errors.New("is missing: auth.passwordFile needs the user it belongs to"))
	case a.TokenFile != "" && a.Username != "":
		return FieldError("auth.username", errors.New("there is auth.tokenFile too: remove one of the two"))
	}
	return nil
}

// Token reads the token, "" where none is configured. The error names the field, and no error repeats what is in the
// file.
func (a Auth) Token() (string, error) {
	if a.TokenFile == "" {
		return "", nil
	}
	raw, err := readFile(a.TokenFile, "a file")
	if err != nil {
		return "", FieldError("auth.tokenFile", err)
	}
	token := string(bytes.TrimSpace(raw))
	switch {
	case token == "":
		return "", FieldError("auth.tokenFile", fmt.Errorf("%s is empty", a.TokenFile))
	case strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' }):
		return "", FieldError("auth.tokenFile", fmt.Errorf(
			"%s must hold one token and nothing else: no white space within it, only ASCII", a.TokenFile))
	}
	return token, nil
}

// Password reads the password, "" where none is configured. The error names the field, and no error repeats what is in
// the file.
func (a Auth) Password() (string, error) {
	if a.PasswordFile == "" {
		return "", nil
	}
	raw, err := readFile(a.PasswordFile, "a file")
	if err != nil {
		return "", FieldError("auth.passwordFile", err)
	}
	password := strings.TrimRight(string(raw), "\r\n")
	switch {
	case password == "":
		return "", FieldError("auth.passwordFile", fmt.Errorf("%s is empty", a.PasswordFile))
	case strings.ContainsAny(password, "\r\n\x00"):
		return "", FieldError("auth.passwordFile", fmt.Errorf("%s must hold one line with the password and nothing else",
			a.PasswordFile))
	}
	return password, nil
}

func readFile(path, what string) ([]byte, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("must be %s that the manager can read: %w", what, err)
	}
	return raw, nil
}

// Files returns every file that the configuration names.
func (c Config) Files() []string {
	var files []string
	for _, path := range []string{c.TLS.CAFile, c.TLS.CertFile, c.TLS.KeyFile, c.Auth.TokenFile, c.Auth.PasswordFile} {
		if path != "" {
			files = append(files, path)
		}
	}
	return files
}
