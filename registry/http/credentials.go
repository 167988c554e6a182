package httpregistry

import (
	"encoding/base64"
	"errors"
	"strings"

	"github.com/rollcall-dev/rollcall/registry"
)

// credentials are what every request shows.
type credentials struct {
	// header is the value of Authorization, "" for none.
	header string
	// field is the one of the configuration to look at where they are not good.
	field string
	// masks replaces, in what the server says, what nobody else is to read.
	masks *strings.Replacer
}

// readCredentials reads the files. A client's certificate counts where nothing else says who we are.
func readCredentials(cfg registry.Config) (credentials, error) {
	if err := cfg.Auth.Accept(registry.AuthToken, registry.AuthPassword); err != nil {
		return credentials{}, err
	}
	switch {
	case cfg.Auth.TokenFile != "":
		token, err := cfg.Auth.Token()
		if err != nil {
			return credentials{}, err
		}
		return credentials{
			header: "Bearer " + token, field: "auth.tokenFile", masks: strings.NewReplacer(token, "[token]"),
		}, nil
	case cfg.Auth.Username != "":
		return readPassword(cfg.Auth)
	case cfg.TLS.CertFile != "":
		return credentials{field: "tls.certFile", masks: strings.NewReplacer()}, nil
	}
	return credentials{field: "auth", masks: strings.NewReplacer()}, nil
}

// readPassword makes the credentials of HTTP's basic authentication (RFC 7617).
func readPassword(auth registry.Auth) (credentials, error) {
	if strings.ContainsFunc(auth.Username, func(c rune) bool { return c == ':' || c < ' ' || c == '\x7f' }) {
		return credentials{}, registry.FieldError("auth.username", errors.New(
			"must not hold a colon or a control character: HTTP could not tell where the password begins"))
	}
	password, err := auth.Password()
	if err != nil {
		return credentials{}, err
	}
	encoded := base64.StdEncoding.EncodeToString([]byte(auth.Username + ":" + password))
	return credentials{
		header: "Basic " + encoded, field: "auth.passwordFile",
		masks: strings.NewReplacer(encoded, "[password]", password, "[password]"),
	}, nil
}

// hide keeps what nobody else is to read out of an error: that of an answer which is no HTTP quotes the server.
func (c credentials) hide(err error) error {
	text := err.Error()
	masked := c.masks.Replace(text)
	if masked == text {
		return err
	}
	return &maskedError{err: err, text: masked}
}

// maskedError is an error of the same class with another text.
type maskedError struct {
	err  error
	text string
}

func (e *maskedError) Error() string { return e.text }
func (e *maskedError) Unwrap() error { return e.err }
