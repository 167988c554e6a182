package calls

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rollcall-dev/rollcall/registry"
)

func TestARehearsalChangesNothingAndReads(t *testing.T) {
	t.Parallel()
	inner := &capable{}
	var told []string
	reg := Rehearse(Wrap(inner), func(operation string, in registry.Instance) error {
		told = append(told, operation+" "+in.Service)
		return ErrDryRun
	})
	if reg.Heartbeater != nil {
		t.Error("a heartbeat keeps what may have to go: want none")
	}
	reg.Heartbeater = Wrap(inner).Heartbeater // for callsOf
	for operation, call := range callsOf(t, reg) {
		if operation == Heartbeat {
			continue
		}
		inner.got, told = nil, nil
		err := call()
		switch {
		case Changes(operation):
			if !errors.Is(err, ErrDryRun) || len(inner.got) > 0 {
				t.Errorf("%s returned %v and made the calls %q, want %v and none", operation, err, inner.got, ErrDryRun)
			}
			if diff := cmp.Diff([]string{operation + " web"}, told); diff != "" {
				t.Errorf("%s told (-want +got):\n%s", operation, diff)
			}
		case err != nil || !slices.Equal(inner.got, []string{operation}) || len(told) > 0:
			t.Errorf("%s returned %v, made the calls %q and told %q; want the read and nothing told", operation, err, inner.got, told)
		}
	}
}
