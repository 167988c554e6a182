package observe

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
)

// What differs for entries that applications write.

// ipv4Only returns the instance of a dual-stack pod that clients may drop or can't reach, see [registry.MetaIPv6], if there is one.
func (f *Facts) ipv4Only() string {
	for _, t := range f.Targets {
		in := t.Instance
		if len(f.Input.Pod.Status.PodIPs) > 1 && !t.Key().ByApp() && !strings.Contains(in.Address, ":") &&
			!strings.HasPrefix(in.Metadata[registry.MetaIPv6], "[") && f.Tracked.ForeignIPv6(t.Key()) {
			return fmt.Sprintf("service %q at %s", in.Service, in.Endpoint())
		}
	}
	return ""
}

// late is until when the contrary may be carried out of what was asked for by another key of what may be the row's entry.
func (f *Facts) late(row plan.Row) (latest time.Time) {
	if !row.ByApp() {
		return latest
	}
	for in, known := range f.Tracked.Known().All() {
		if in == row.Key() || !f.Settings.MayBeOne(in, row.Key()) {
			continue
		}
		if lands := known.LandsUntil(row.Want != lifecycle.InService); lands.After(latest) {
			latest = lands
		}
	}
	return latest
}

// steersIn reports whether the entries of the pod's application under the service are steered there.
func (f *Facts) steersIn(in lifecycle.Key) bool {
	return slices.ContainsFunc(f.Targets, func(t tracker.Target) bool {
		return t.Key().ByApp() && t.Registry == in.Registry && t.Key().Service == in.Service
	})
}

// dropRefused is for a pod that may not use a service name. Taking out for good what its application registered needs no right to the
// name, and gives none. It reports whether the application may have registered it under a name that it may not use.
func (f *Facts) dropRefused() (unsteered bool) {
	f.Targets = slices.DeleteFunc(f.Targets, func(t tracker.Target) bool {
		apps := t.Key().ByApp() || len(f.Tracked.Foreign(t.Key())) > 0
		drops := !apps || !lifecycle.Leaves(f.Input.Pod)
		unsteered = unsteered || drops && apps
		return drops
	})
	return unsteered
}

// passedOn looks up which former endpoints of the pod are another pod's application's now, such as a port of the node that both used.
func (o *Observer) passedOn(ctx context.Context, f *Facts) error {
	if !f.Settings.steers() {
		return nil
	}
	f.PassedOn = map[lifecycle.Key]bool{}
	entries := f.Entries(f.Input, f.Targets)
	instances := entries.Instances()
	for _, t := range f.Targets {
		instances = append(instances, t.Key())
	}
	for _, in := range instances {
		if _, asked := f.PassedOn[in]; asked || !in.ByApp() || entries.Has(in) && (entries.IsTarget(in) || entries.Undescribed) {
			continue
		}
		var err error
		f.PassedOn[in], err = o.State.AnotherHas(ctx, f.Use(in, o.Clock.Now()), in)
		if err != nil {
			return err
		}
	}
	return nil
}
