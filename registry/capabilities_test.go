package registry_test

import (
	"context"
	"errors"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
)

// recording writes down which call came.
type recording struct{ calls []string }

func (r *recording) answer(call string, in registry.Instance) error {
	r.calls = append(r.calls, call+" "+in.Pod)
	return errors.New(call)
}

func (r *recording) Register(_ context.Context, in registry.Instance) error {
	return r.answer("Register", in)
}
func (r *recording) FailOver(_ context.Context, in registry.Instance) error {
	return r.answer("FailOver", in)
}
func (r *recording) Deregister(_ context.Context, in registry.Instance) error {
	return r.answer("Deregister", in)
}

func TestAChangeIsACall(t *testing.T) {
	t.Parallel()
	for state, want := range map[registry.State]string{
		registry.InService: "Register", registry.OutOfService: "FailOver", registry.Absent: "Deregister",
	} {
		var reg recording
		err := registry.Change{Instance: marked(), State: state}.Make(t.Context(), &reg)
		if err == nil || err.Error() != want || len(reg.calls) != 1 || reg.calls[0] != want+" web-1" {
			t.Errorf("%s: got calls %v and error %v, want %s and its answer", state, reg.calls, err, want)
		}
	}
}

func TestAChangeToAnUnknownStateIsNoCall(t *testing.T) {
	t.Parallel()
	for _, state := range []registry.State{"", "inservice", "Gone"} {
		var reg recording
		err := registry.Change{Instance: marked(), State: state}.Make(t.Context(), &reg)
		if registry.CodeOf(err) != registry.CodeTerminal || len(reg.calls) != 0 {
			t.Errorf("%q: got calls %v and error %v, want no call and a terminal error", state, reg.calls, err)
		}
	}
}
