package registry_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

func TestErrorClasses(t *testing.T) {
	t.Parallel()
	plain := errors.New("refused")
	type class struct {
		terminal, notRegistered, notApplied bool
		field                               string
		after                               time.Duration
		delayed                             bool
	}
	for name, tc := range map[string]struct {
		reason string
		err    error
		want   class
	}{
		"nil":               {"no error has no class", nil, class{}},
		"plain":             {"unknown means retryable", plain, class{}},
		"context":           {"a time-out is retryable", context.DeadlineExceeded, class{}},
		"terminal":          {"it is marked", registry.Terminal(plain), class{terminal: true}},
		"wrapped terminal":  {"wrapping keeps the class", fmt.Errorf("a: %w", registry.Terminal(plain)), class{terminal: true}},
		"joined terminal":   {"joining keeps the class", errors.Join(plain, registry.Terminal(plain)), class{terminal: true}},
		"retry after":       {"it is marked", registry.RetryAfter(plain, time.Minute), class{after: time.Minute, delayed: true}},
		"retry at once":     {"zero is a delay that was said", registry.RetryAfter(plain, 0), class{delayed: true}},
		"retry in a year":   {"a slip must not strand a pod", registry.RetryAfter(plain, 365*24*time.Hour), class{after: time.Hour, delayed: true}},
		"retry in the past": {"a date can have passed", registry.RetryAfter(plain, -time.Hour), class{delayed: true}},
		"wrapped delay": {
			"wrapping keeps the delay", fmt.Errorf("a: %w", registry.RetryAfter(plain, time.Minute)),
			class{after: time.Minute, delayed: true},
		},
		"not registered":         {"it is marked", registry.NotRegistered(plain), class{notRegistered: true}},
		"wrapped not registered": {"wrapping keeps the mark", fmt.Errorf("a: %w", registry.NotRegistered(plain)), class{notRegistered: true}},
		"not applied":            {"it is marked", registry.NotApplied(plain), class{notApplied: true}},
		"joined not applied":     {"joining keeps the mark", errors.Join(plain, registry.NotApplied(plain)), class{notApplied: true}},
		"terminal and a field": {
			"wrong credentials are both", registry.Terminal(registry.FieldError("auth.tokenFile", plain)),
			class{terminal: true, field: "auth.tokenFile"},
		},
		"not applied because of what is terminal": {
			"that another change is refused says nothing of this one", registry.NotApplied(fmt.Errorf("another change: %w", plain)),
			class{notApplied: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := class{
				terminal: registry.IsTerminal(tc.err), notRegistered: registry.IsNotRegistered(tc.err), notApplied: registry.IsNotApplied(tc.err),
			}
			got.field, _ = registry.FieldOf(tc.err)
			if got.after, got.delayed = registry.RetryAfterOf(tc.err); got != tc.want {
				t.Errorf("got %+v of error %v, want %+v\nreason: %s", got, tc.err, tc.want, tc.reason)
			}
		})
	}
}

func TestMarksOfNilAreNil(t *testing.T) {
	t.Parallel()
	if registry.Terminal(nil) != nil || registry.RetryAfter(nil, time.Second) != nil || registry.FieldError("f", nil) != nil ||
		registry.NotRegistered(nil) != nil || registry.NotApplied(nil) != nil {
		t.Error("a mark made an error of nil: a call that succeeded would count as failed")
	}
}

func TestMarksKeepTheError(t *testing.T) {
	t.Parallel()
	plain := errors.New("refused")
	for name, err := range map[string]error{
		"Terminal": registry.Terminal(plain), "RetryAfter": registry.RetryAfter(plain, time.Second),
		"NotRegistered": registry.NotRegistered(plain), "NotApplied": registry.NotApplied(plain),
	} {
		if !errors.Is(err, plain) || err.Error() != plain.Error() {
			t.Errorf("%s: got %q, want it to wrap and read as %q", name, err, plain)
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
		if got := registry.Excerpt(text); got != want {
			t.Errorf("Excerpt(%q) is %q, want %q", text, got, want)
		}
	}
}
