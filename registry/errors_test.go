package registry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestMarks tells each class of errors from the others, through whatever wraps it.
func TestMarks(t *testing.T) {
	t.Parallel()
	classes := map[string]struct {
		mark func(error) error
		is   func(error) bool
	}{
		"terminal":        {registry.Terminal, has(registry.CodeTerminal)},
		"not registered":  {registry.NotRegistered, has(registry.CodeNotRegistered)},
		"not applied":     {registry.NotApplied, has(registry.CodeNotApplied)},
		"foreign entry":   {registry.ForeignEntry, has(registry.CodeForeignEntry)},
		"several entries": {registry.SeveralEntries, has(registry.CodeSeveralEntries)},
		"of an agent":     {registry.OfAgent, registry.IsOfAgent},
		"not yet":         {registry.NotYet, has(registry.CodeNotYet)},
		"retry after": {
			func(err error) error { return registry.RetryAfter(err, time.Minute) },
			func(err error) bool {
				after, delayed := registry.RetryAfterOf(err)
				return delayed && after == time.Minute
			},
		},
		"of a field": {
			func(err error) error { return registry.FieldError("auth.tokenFile", err) },
			func(err error) bool { field, named := registry.FieldOf(err); return named && field == "auth.tokenFile" },
		},
		"with other names": {
			func(err error) error { return registry.OtherNames(err, "web-v2") },
			func(err error) bool { return slices.Equal(registry.OtherNamesOf(err), []string{"web-v2"}) },
		},
	}
	plain := errors.New("refused")
	for name, both := range map[string]error{
		"from when on to retry": registry.RetryAfter(registry.NotYet(plain), time.Minute), "the field": registry.FieldError("auth", registry.NotYet(plain)),
		"the names": registry.OtherNames(registry.NotYet(plain), "web"), "whom to blame": registry.OfAgent(registry.NotYet(plain)),
		"another code before": registry.NotYet(registry.Terminal(plain)),
	} {
		if code := registry.CodeOf(both); code != registry.CodeNotYet {
			t.Errorf("with %s as well: got code %q, want %q", name, code, registry.CodeNotYet)
		}
	}
	for name, class := range classes {
		if err := class.mark(nil); err != nil {
			t.Errorf("%s: the mark made error %v of nil: a call that succeeded would count as failed", name, err)
		}
		marked := class.mark(plain)
		if !errors.Is(marked, plain) || !strings.HasSuffix(marked.Error(), plain.Error()) {
			t.Errorf("%s: got %q, want it to wrap and read as %q", name, marked, plain)
		}
		for _, err := range []error{marked, fmt.Errorf("a: %w", marked), errors.Join(plain, marked)} {
			for other := range classes {
				expect.Equal(t, other == name, classes[other].is(err), "%s, of class %s: %q is it", name, other, err)
			}
		}
		for _, err := range []error{nil, plain, context.DeadlineExceeded} {
			if class.is(err) {
				t.Errorf("%s: %v is taken for marked, and is not", name, err)
			}
		}
	}
}

func has(code registry.Code) func(error) bool {
	return func(err error) bool { return registry.CodeOf(err) == code }
}

func TestRetryAfterIsBounded(t *testing.T) {
	t.Parallel()
	for said, want := range map[time.Duration]time.Duration{
		0: 0, time.Minute: time.Minute, -time.Hour: 0, // a date can have passed
		365 * 24 * time.Hour: time.Hour, // a slip must not strand a pod
	} {
		if got, delayed := registry.RetryAfterOf(registry.RetryAfter(errors.New("busy"), said)); got != want || !delayed {
			t.Errorf("after %s: got %s, want %s", said, got, want)
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
		expect.Equal(t, want, registry.Excerpt(text), "Excerpt(%q)", text)
	}
}
