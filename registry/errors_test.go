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
	for name, tc := range map[string]struct {
		reason   string
		err      error
		terminal bool
		after    time.Duration
		hasAfter bool
	}{
		"nil":               {reason: "no error has no class", err: nil},
		"plain":             {reason: "unknown means retryable", err: plain},
		"context":           {reason: "a time-out is retryable", err: context.DeadlineExceeded},
		"terminal":          {reason: "it is marked", err: registry.Terminal(plain), terminal: true},
		"wrapped terminal":  {reason: "wrapping keeps the class", err: fmt.Errorf("a: %w", registry.Terminal(plain)), terminal: true},
		"joined terminal":   {reason: "joining keeps the class", err: errors.Join(plain, registry.Terminal(plain)), terminal: true},
		"retry after":       {reason: "it is marked", err: registry.RetryAfter(plain, time.Minute), after: time.Minute, hasAfter: true},
		"wrapped":           {reason: "wrapping keeps the delay", err: fmt.Errorf("a: %w", registry.RetryAfter(plain, time.Minute)), after: time.Minute, hasAfter: true},
		"retry at once":     {reason: "zero is a delay that was said", err: registry.RetryAfter(plain, 0), hasAfter: true},
		"retry in a year":   {reason: "a slip must not strand a pod", err: registry.RetryAfter(plain, 365*24*time.Hour), after: time.Hour, hasAfter: true},
		"retry in the past": {reason: "a date can have passed", err: registry.RetryAfter(plain, -time.Hour), hasAfter: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			after, has := registry.RetryAfterOf(tc.err)
			if got := registry.IsTerminal(tc.err); got != tc.terminal || after != tc.after || has != tc.hasAfter {
				t.Errorf("got terminal %t, retry after %s %t; want %t, %s %t\nreason: %s",
					got, after, has, tc.terminal, tc.after, tc.hasAfter, tc.reason)
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

func TestMarksOfOptionalCalls(t *testing.T) {
	t.Parallel()
	plain := errors.New("refused")
	for name, tc := range map[string]struct {
		reason                    string
		err                       error
		notRegistered, notApplied bool
		terminal                  bool
		field                     string
	}{
		"nil":            {reason: "no error has no mark", err: nil},
		"plain":          {reason: "nothing was said", err: plain},
		"not registered": {reason: "it is marked", err: registry.NotRegistered(plain), notRegistered: true},
		"wrapped":        {reason: "wrapping keeps the mark", err: fmt.Errorf("a: %w", registry.NotRegistered(plain)), notRegistered: true},
		"not applied":    {reason: "it is marked", err: registry.NotApplied(plain), notApplied: true},
		"joined":         {reason: "joining keeps the mark", err: errors.Join(plain, registry.NotApplied(plain)), notApplied: true},
		"terminal and a field": {
			reason: "wrong credentials are both", err: registry.Terminal(registry.FieldError("auth.tokenFile", plain)),
			terminal: true, field: "auth.tokenFile",
		},
		"not applied because of what is terminal": {
			reason: "that another change is refused says nothing of this one",
			err:    registry.NotApplied(fmt.Errorf("another change: %w", plain)), notApplied: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			field, _ := registry.FieldOf(tc.err)
			if registry.IsNotRegistered(tc.err) != tc.notRegistered || registry.IsNotApplied(tc.err) != tc.notApplied ||
				registry.IsTerminal(tc.err) != tc.terminal || field != tc.field {
				t.Errorf("got not registered %t, not applied %t, terminal %t, field %q of %v\nreason: %s",
					registry.IsNotRegistered(tc.err), registry.IsNotApplied(tc.err), registry.IsTerminal(tc.err), field, tc.err, tc.reason)
			}
		})
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
