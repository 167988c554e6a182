package driverkit

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestContextErrorHasNoOtherClass(t *testing.T) {
	t.Parallel()
	ended, end := context.WithCancel(t.Context())
	end()
	timedOut, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	t.Cleanup(cancel)
	refused := errors.New("refused")
	type row struct {
		reason string
		ctx    context.Context
		err    error
		same   bool // returned as it is
		is     error
		text   string
	}
	expect.Each(t, map[string]row{
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
		"the context's, of an entry": {
			"it was cut off before all was seen", timedOut, registry.ForeignEntry(context.DeadlineExceeded), false,
			context.DeadlineExceeded, "context deadline exceeded: context deadline exceeded",
		},
		"the context's, of several": {
			"it may have been made of some", timedOut, registry.SeveralEntries(context.DeadlineExceeded), false,
			context.DeadlineExceeded, "context deadline exceeded: context deadline exceeded",
		},
		"the context's, of an agent": {
			"nor is it the agent's", timedOut, registry.OfAgent(context.DeadlineExceeded), false,
			context.DeadlineExceeded, "context deadline exceeded: context deadline exceeded",
		},
	}, func(t *testing.T, tc row) {
		got := contextError(tc.ctx, tc.err)
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
		if !tc.same && (delayed || named || registry.CodeOf(got) == registry.CodeTerminal || registry.CodeOf(got) == registry.CodeNotRegistered || registry.CodeOf(got) == registry.CodeNotApplied) {
			t.Errorf("got error %v with a class of its own\nreason: %s", got, tc.reason)
		}
	})
}
