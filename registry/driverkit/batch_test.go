package driverkit_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

func TestPrepareChanges(t *testing.T) {
	t.Parallel()
	named := func(service string, state registry.State) registry.Change {
		return registry.Change{Instance: registry.Instance{Service: service, Address: "10.0.0.1", Port: 80}, State: state}
	}
	unfit := errors.New("unfit")
	asked := []registry.Change{
		named("foreign", registry.Foreign), named("a", registry.InService), named("unfit", registry.Absent), named("b", registry.OutOfService),
	}
	ready, at, errs := driverkit.PrepareChanges(t.Context(), asked, func(c registry.Change) (string, error) {
		if c.Instance.Service == "unfit" {
			return "not ready", unfit
		}
		return c.Instance.Service, nil
	})
	if !slices.Equal(ready, []string{"a", "b"}) || !slices.Equal(at, []int{1, 3}) {
		t.Errorf("got %v at %v ready, want those that can be made, and where they were asked for", ready, at)
	}
	if len(errs) != len(asked) || errs[1] != nil || errs[3] != nil {
		t.Fatalf("got errors %v, want one for each change, and nil for what is ready", errs)
	}
	if got, want := errs[0].Error(), asked[0].Check().Error(); got != want || !registry.IsTerminal(errs[0]) {
		t.Errorf("got error %q for a wrong state, want the check's, %q", got, want)
	}
	if got, want := errs[2].Error(), "deregistering unfit at 10.0.0.1:80: unfit"; got != want || !errors.Is(errs[2], unfit) {
		t.Errorf("got error %q, want %q: it says what was being done", got, want)
	}
}
