package registrytest_test

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestADriverWithTheLeastPasses skips each case that needs what the driver, its registry or the harness lacks, and says why.
func TestADriverWithTheLeastPasses(t *testing.T) {
	t.Parallel()
	h := poorHarness(t)
	why := maps.Clone(h.Lacks)
	for _, c := range []registrytest.Capability{"Lister", "Getter", "Prober", "Heartbeater", "Batcher", "AppEntrySteerer", "Closer"} {
		why[c] = "the driver has no such methods"
	}
	for _, c := range []registrytest.Capability{
		"Unreachable", "Refusing", "LoginPage", "WrongCredentials", "Stalled", "LosingAnswers", "Metered", "Failing", "Restart", "Foreign", "Copy", "App", "ShortLease",
		"Placed", "RefusedPlace",
	} {
		why[c] = "the harness has no such function"
	}
	results, err := registrytest.Check(t, h)
	expect.NoError(t, err)
	for _, r := range results {
		said, want := strings.Join(r.Messages, "\n"), []string{}
		for _, need := range r.Needs {
			if why[need] != "" {
				want = append(want, r.Name+" skipped: lacks "+string(need)+": "+why[need])
			}
		}
		if passed := r.Outcome == registrytest.Passed; passed != (len(want) == 0) || !passed && !slices.Contains(want, said) {
			t.Errorf("%s %s: %s\nwant one of %q, or that it passes where there is none", r.Name, r.Outcome, said, want)
		}
	}
}

func TestABadHarnessIsRefused(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		spoil  func(*registrytest.Harness)
		want   string
	}
	expect.Each(t, map[string]row{
		"no Open": {reason: "there would be nothing to test", spoil: func(h *registrytest.Harness) { h.Open = nil }, want: "Open is nil"},
		"a reason that is empty": {
			reason: "a skip says why",
			spoil:  func(h *registrytest.Harness) { h.Lacks[registrytest.Weight] = "" },
			want:   "no reason for Weight",
		},
		"a capability that is misspelt": {
			reason: "it would skip nothing and look as if it did",
			spoil:  func(h *registrytest.Harness) { h.Lacks["Tag"] = "none" },
			want:   `"Tag", which is not a capability`,
		},
	}, func(t *testing.T, tc row) {
		h := newStore(t).harness(asItIs)
		tc.spoil(&h)
		_, err := registrytest.Check(t, h)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("Check: got error %v, want one with %q\nreason: %s", err, tc.want, tc.reason)
		}
	})
}

// TestADriverThatCantListNeedsTruth has a harness without a way to see what the registry holds.
func TestADriverThatCantListNeedsTruth(t *testing.T) {
	t.Parallel()
	h := poorHarness(t)
	h.Truth = nil
	results, err := registrytest.Check(t, h)
	expect.NoError(t, err)
	for _, r := range results {
		if said := strings.Join(r.Messages, "\n"); r.Outcome == registrytest.Passed ||
			r.Outcome == registrytest.Failed && !strings.Contains(said, "set Truth") {
			t.Errorf("%s: got %s, want it to ask for Truth", r.Name, said)
		}
	}
}

// TestRestartsComeFirst has cases that restart the registry not meet any other.
func TestRestartsComeFirst(t *testing.T) {
	t.Parallel()
	var under, restarts atomic.Int64
	t.Cleanup(func() { // after the cases, which are parallel
		if restarts.Load() == 0 {
			t.Error("nothing was restarted")
		}
	})
	h := newStore(t).harness(asItIs)
	open, restart := h.Open, h.Restart
	h.Open = func(t testing.TB, cluster string) registry.Registry {
		under.Add(1)
		t.Cleanup(func() { under.Add(-1) })
		return open(t, cluster)
	}
	h.Restart = func(inner testing.TB) {
		before := under.Load()
		restart(inner)
		restarts.Add(1)
		if got := under.Load(); got != before || got > 3 {
			t.Errorf("%d processes were open before a restart and %d after it, want the case's own alone", before, got)
		}
	}
	registrytest.Run(t, h)
}

// TestWhatHasNoPlaceIsLeftOut has a registry with no place for weight, zone, tags and metadata, and drivers that do and don't
// leave them out.
func TestWhatHasNoPlaceIsLeftOut(t *testing.T) {
	t.Parallel()
	leavesOut := func(d sound) registry.Registry {
		return d.brokenBy(changed("Register", func(in *registry.Instance) { in.Weight, in.Zone, in.Tags, in.Metadata = 0, "", nil, nil }))
	}
	type row struct {
		wrap func(sound) registry.Registry
		want []string
	}
	expect.Each(t, map[string]row{
		"left out": {leavesOut, nil},
		"kept":     {asItIs, []string{"GetAgreesWithList", "ListIsACopy", "RestartKeepsEntries"}},
	}, func(t *testing.T, tc row) {
		h := only(newStore(t).harness(tc.wrap), registrytest.Restart)
		for _, c := range []registrytest.Capability{registrytest.Weight, registrytest.Zone, registrytest.Tags, registrytest.Metadata} {
			h.Lacks[c] = "there is no place for it"
		}
		results, err := registrytest.Check(t, registrytest.Impatient(h, time.Second))
		expect.NoError(t, err)
		expectFailures(t, results, tc.want, "what has no place is left out")
	})
}
