package registry_test

import (
	"context"
	"errors"
	"fmt"
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

func TestContextErrorHasNoOtherClass(t *testing.T) {
	t.Parallel()
	ended, end := context.WithCancel(t.Context())
	end()
	timedOut, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	t.Cleanup(cancel)
	refused := errors.New("refused")
	for name, tc := range map[string]struct {
		reason string
		ctx    context.Context
		err    error
		same   bool // returned as it is
		is     error
		text   string
	}{
		"success in time":  {"nothing is wrong", t.Context(), nil, true, nil, ""},
		"refused in time":  {"it is a verdict", t.Context(), registry.Terminal(refused), true, refused, "refused"},
		"success too late": {"the registry has acknowledged it", ended, nil, true, nil, ""},
		"failure":          {"the context is what ended the call", timedOut, refused, false, context.DeadlineExceeded, "context deadline exceeded: refused"},
		"refused":          {"half of an answer is no verdict", timedOut, registry.Terminal(refused), false, context.DeadlineExceeded, "context deadline exceeded: refused"},
		"field":            {"it names what is not known to be wrong", timedOut, registry.FieldError("endpoint", refused), false, context.DeadlineExceeded, "context deadline exceeded: endpoint: refused"},
		"not registered":   {"a heartbeat that was cut off has found nothing out", ended, registry.NotRegistered(refused), false, context.Canceled, "context canceled: refused"},
		"not applied":      {"the change may still be made", ended, registry.NotApplied(refused), false, context.Canceled, "context canceled: refused"},
		"retry after":      {"the registry's wish is of another call", ended, registry.RetryAfter(refused, time.Hour), false, context.Canceled, "context canceled: refused"},
		"the context's":    {"it says all there is to say", ended, fmt.Errorf("sending: %w", context.Canceled), true, context.Canceled, "sending: context canceled"},
		"the context's, marked": {
			"a time-out is never terminal", timedOut, registry.Terminal(context.DeadlineExceeded), false,
			context.DeadlineExceeded, "context deadline exceeded: context deadline exceeded",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := registry.ContextError(tc.ctx, tc.err)
			switch {
			case got == nil && tc.text == "":
				return
			case got == nil || got.Error() != tc.text || !errors.Is(got, tc.is):
				t.Errorf("got error %v, want %q\nreason: %s", got, tc.text, tc.reason)
			case tc.same != errors.Is(got, tc.err): // nil is no error's
				t.Errorf("got error %v; is the one given: %t\nreason: %s", got, !tc.same, tc.reason)
			}
			_, delayed := registry.RetryAfterOf(got)
			_, named := registry.FieldOf(got)
			if !tc.same && (delayed || named || registry.IsTerminal(got) || registry.IsNotRegistered(got) || registry.IsNotApplied(got)) {
				t.Errorf("got error %v with a class of its own\nreason: %s", got, tc.reason)
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
