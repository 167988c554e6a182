package main

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/checker"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

const testUID = "uid-1"

func TestCompare(t *testing.T) {
	t.Parallel()
	entry := registry.Entry{State: registry.InService, Instance: registry.Instance{
		Service: "web", Address: "127.100.0.1", Port: 8080, Cluster: clusterName, UID: testUID,
	}}
	normal := checker.Pod{UID: testUID, Sighting: checker.Sighting{
		State: string(appspub.LifecycleStateNormal), Ready: true, Address: entry.Address, Keys: []checker.Key{checker.KeyOf(defaultRegistry, entry.Instance)},
	}}
	moved := func(p *checker.Pod) {
		p.State, p.Keys = "Updating", []checker.Key{checker.KeyOf(secondRegistry, entry.Instance)}
	}
	type row struct {
		reason string
		pods   func(*checker.Pod)
		change func(*registry.Entry)
		// registry is where the entry is; empty: where the pod's is.
		registry string
		want     []grievanceKind
	}
	expect.Each(t, map[string]row{
		"equal":          {reason: "nothing is wrong"},
		"out of service": {reason: "it could serve", change: func(e *registry.Entry) { e.State = registry.OutOfService }, want: []grievanceKind{"lost"}},
		"another's":      {reason: "no pod stands behind it", change: func(e *registry.Entry) { e.UID = "dead" }, want: []grievanceKind{"leaked", "lost"}},
		"old address":    {reason: "the pod is elsewhere", change: func(e *registry.Entry) { e.Address = "127.100.0.9" }, want: []grievanceKind{"leaked", "lost"}},
		"elsewhere":      {reason: "the pod is in another registry", registry: secondRegistry, want: []grievanceKind{"leaked", "lost"}},
		"unlisted":       {reason: "there no manager can find it", registry: unlistedRegistry, want: []grievanceKind{"lost"}},
		"on its way":     {reason: "it may not stay there", pods: func(p *checker.Pod) { p.State = "Updating" }, want: []grievanceKind{"stuck"}},
		"not ready":      {reason: "a pod gets ready in the end", pods: func(p *checker.Pod) { p.Ready = false }, want: []grievanceKind{"stuck"}},
		"departs": {
			reason: "it stays out of service there until the pod is back", pods: moved,
			change: func(e *registry.Entry) { e.State = registry.OutOfService }, want: []grievanceKind{"stuck"},
		},
		"departs in service": {reason: "clients are sent to it", pods: moved, want: []grievanceKind{"leaked", "stuck"}},
		"being deleted":      {reason: "it has to go", pods: func(p *checker.Pod) { p.Deleting = true }, want: []grievanceKind{"stuck"}},
	}, func(t *testing.T, tc row) {
		p, e := normal, entry
		if tc.pods != nil {
			tc.pods(&p)
		}
		if tc.change != nil {
			tc.change(&e)
		}
		var got []grievanceKind
		for _, g := range compare(map[string]checker.Pod{testUID: p}, map[string][]registry.Entry{cmp.Or(tc.registry, defaultRegistry): {e}}) {
			got = append(got, g.kind)
		}
		slices.Sort(got)
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
		}
	})
}

// TestWords: what clients are told of a pod must be so in the end, and a pod that is to end must be out.
func TestWords(t *testing.T) {
	t.Parallel()
	entry := registry.Entry{State: registry.InService, Instance: registry.Instance{
		Service: "web", Address: "127.100.0.1", Port: 8080, UID: testUID, Weight: 100, Metadata: map[string]string{"a": "b"},
	}}
	told := &checker.Attributes{Weight: 100, WarmUp: time.Minute, Metadata: map[string]string{"a": "b"}}
	type row struct {
		reason string
		pod    func(*checker.Pod)
		entry  func(*registry.Entry)
		want   string
		within time.Duration
	}
	expect.Each(t, map[string]row{
		"all so":         {reason: "nothing is wrong"},
		"cold":           {reason: "it has to warm up", entry: func(e *registry.Entry) { e.Weight = 10 }, want: "weight: ", within: repairWithin + time.Minute},
		"other metadata": {reason: "clients are told what was", entry: func(e *registry.Entry) { e.Metadata = nil }, want: "metadata: ", within: repairWithin + time.Minute},
		"not judged":     {reason: "nobody reads it", pod: func(p *checker.Pod) { p.Told = nil }, entry: func(e *registry.Entry) { e.Weight = 1 }},
		"to end":         {reason: "clients are sent to it", pod: func(p *checker.Pod) { p.Ends, p.Ready = true, false }, want: "end: ", within: repairWithin},
		"to end, and out": {reason: "it is out", pod: func(p *checker.Pod) { p.Ends, p.Ready = true, false }, entry: func(e *registry.Entry) {
			e.State = registry.OutOfService
		}},
	}, func(t *testing.T, tc row) {
		e, p := entry, checker.Pod{UID: testUID, Sighting: checker.Sighting{
			State: string(appspub.LifecycleStateNormal), Ready: true, Address: entry.Address, Told: told,
			Keys: []checker.Key{checker.KeyOf(defaultRegistry, entry.Instance)},
		}}
		if tc.pod != nil {
			tc.pod(&p)
		}
		if tc.entry != nil {
			tc.entry(&e)
		}
		got := compare(map[string]checker.Pod{testUID: p}, map[string][]registry.Entry{defaultRegistry: {e}})
		if tc.want == "" && len(got) == 0 {
			return
		}
		if len(got) != 1 || got[0].kind != wrong || !strings.HasPrefix(got[0].text, tc.want) || tc.want == "" || got[0].within != tc.within {
			t.Errorf("%s: got %+v, want %q within %s", tc.reason, got, tc.want, tc.within)
		}
	})
}

// TestGrievanceDeadlines: on a busy machine KWOK is late, and that is no fault of a manager.
func TestGrievanceDeadlines(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		pod    checker.Sighting
		want   time.Duration
	}
	expect.Each(t, map[string]row{
		"a hook":     {"a manager has to release it", checker.Sighting{State: "PreparingUpdate", Ready: true}, moveWithin},
		"Kruise":     {"it moves a pod that is ready at once", checker.Sighting{State: "Updated", Ready: true}, moveWithin},
		"probes":     {"KWOK makes the pod ready", checker.Sighting{State: "Updating"}, settleWithin},
		"a deletion": {"KWOK removes what nothing holds", checker.Sighting{State: "Normal", Deleting: true}, settleWithin},
		"its holder": {"a manager has to free it", checker.Sighting{State: "Normal", Deleting: true, Held: true}, moveWithin},
	}, func(t *testing.T, tc row) {
		live := map[string]checker.Pod{testUID: {UID: testUID, Sighting: tc.pod}}
		got := compare(live, nil)
		if len(got) != 1 || got[0].kind != stuck || got[0].within != tc.want {
			t.Errorf("got %+v, want it stuck after %s: %s", got, tc.want, tc.reason)
		}
	})
}
