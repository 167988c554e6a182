package driverkit_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

func TestBatch(t *testing.T) {
	t.Parallel()
	named := func(service string, state registry.State) registry.Change {
		return registry.Change{Instance: registry.Instance{Service: service, Address: "10.0.0.1", Port: 80}, State: state}
	}
	unfit, refused := errors.New("unfit"), errors.New("refused")
	asked := []registry.Change{
		named("foreign", registry.Foreign), named("a", registry.InService), named("unfit", registry.Absent), named("b", registry.OutOfService),
	}
	prepare := func(c registry.Change) (string, error) {
		if c.Instance.Service == "unfit" {
			return "not ready", unfit
		}
		return c.Instance.Service, nil
	}
	errs := driverkit.Batch(t.Context(), asked, prepare, func(ready []string) []error {
		if !slices.Equal(ready, []string{"a", "b"}) {
			t.Errorf("got %v ready, want those that can be made", ready)
		}
		return []error{nil, refused}
	})
	if len(errs) != len(asked) || errs[1] != nil {
		t.Fatalf("got errors %v, want one for each change, and nil for what was made", errs)
	}
	if got, want := errs[0].Error(), asked[0].Check().Error(); got != want || registry.CodeOf(errs[0]) != registry.CodeTerminal {
		t.Errorf("got error %q for a wrong state, want the check's, %q", got, want)
	}
	if got, want := errs[2].Error(), "deregistering unfit at 10.0.0.1:80: unfit"; got != want || !errors.Is(errs[2], unfit) {
		t.Errorf("got error %q, want %q: it says what was being done", got, want)
	}
	if got, want := errs[3].Error(), "taking out b at 10.0.0.1:80: refused"; got != want || !errors.Is(errs[3], refused) {
		t.Errorf("got error %q, want %q: it is that of the change at its place", got, want)
	}
	_ = driverkit.Batch(t.Context(), asked[2:3], prepare, func([]string) []error {
		t.Error("a batch of nothing was sent")
		return nil
	})
	short := driverkit.Batch(t.Context(), asked, prepare, func([]string) []error { return []error{nil} })
	if short[1] != nil || short[3] == nil || registry.CodeOf(short[3]) == registry.CodeTerminal {
		t.Errorf("got errors %v, want one that passes for the change that nothing was said of", short)
	}
}
