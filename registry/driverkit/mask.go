package driverkit

import (
	"net/url"
	"slices"
	"strings"

	"github.com/rollcall-dev/rollcall/registry"
)

// mask hides secrets in others' texts, since a server may repeat what it was sent. The zero value hides nothing.
type mask struct {
	pairs []string // alternately a secret and its replacement
}

// with returns a mask that also replaces each secret by word, as it is and as it is escaped in a form or a URL. An empty secret is
// ignored.
func (m mask) with(word string, secrets ...string) mask {
	pairs := slices.Clone(m.pairs)
	for _, secret := range secrets {
		if secret != "" {
			pairs = append(pairs, secret, word, url.QueryEscape(secret), word)
		}
	}
	return mask{pairs: pairs}
}

// excerpt is [registry.Excerpt] of a server's text, without the secrets.
func (m mask) excerpt(text string) string { return registry.Excerpt(m.hide(text)) }

func (m mask) hide(text string) string { return strings.NewReplacer(m.pairs...).Replace(text) }

// retell returns an error of the same class whose text has no secret: the error of an answer that is not HTTP quotes the server.
func (m mask) retell(err error) error {
	text := err.Error()
	if hidden := m.hide(text); hidden != text {
		return &retold{err: err, text: hidden}
	}
	return err
}

// retold is an error with another text.
type retold struct {
	err  error
	text string
}

func (e *retold) Error() string { return e.text }
func (e *retold) Unwrap() error { return e.err }
