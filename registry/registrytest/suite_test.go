package registrytest_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// overMemory is the harness of a wrapper of one memory registry. A wrapper is made anew for each process.
func overMemory(t *testing.T, wrap func(backend) registry.Registry) registrytest.Harness {
	t.Helper()
	store := newMemory(t)
	return registrytest.Harness{
		Open:  func(registrytest.T, string) registry.Registry { return wrap(store) },
		Truth: store.List,
		Lacks: map[registrytest.Capability]string{
			registrytest.Getting:          "the wrapper asks for nothing",
			registrytest.Probing:          "the memory registry gives clients everything at once",
			registrytest.Heartbeats:       "nothing expires in the memory registry",
			registrytest.Batching:         "the wrapper has no batches",
			registrytest.Closing:          "the wrapper holds nothing open",
			registrytest.Unreachable:      "there is nothing between the driver and the registry",
			registrytest.Refusing:         "the memory registry refuses nothing",
			registrytest.WrongCredentials: "the memory registry asks for none",
			registrytest.Stalled:          "there is nothing between the driver and the registry",
			registrytest.Failing:          "the memory registry never fails",
			registrytest.Restart:          "the memory registry ends with its process",
		},
	}
}

// bare is a registry without the capabilities that it has besides.
type bare struct{ backend }

// backend is what the plain drivers are made of.
type backend interface {
	registry.Registry
	registry.Lister
}

func newMemory(t *testing.T) backend {
	t.Helper()
	return newMemoryFor(t)
}

func TestAPlainWrapperPasses(t *testing.T) {
	t.Parallel()
	registrytest.Run(t, overMemory(t, func(b backend) registry.Registry { return b }))
}

// poor is a driver with the contract's least: no list, no out-of-service state, and no place for anything but the mark.
type poor struct{ backend backend }

func (p poor) Register(ctx context.Context, in registry.Instance) error {
	in.Weight, in.Zone, in.Metadata = 0, "", nil
	return p.backend.Register(ctx, in)
}
func (p poor) FailOver(ctx context.Context, in registry.Instance) error {
	return p.backend.Deregister(ctx, in)
}
func (p poor) Deregister(ctx context.Context, in registry.Instance) error {
	return p.backend.Deregister(ctx, in)
}

func poorHarness(t *testing.T) registrytest.Harness {
	t.Helper()
	h := overMemory(t, func(b backend) registry.Registry { return poor{b} })
	h.Lacks[registrytest.Listing] = "the poor registry can't list"
	h.Lacks[registrytest.OutOfServiceState] = "the poor registry knows no state"
	for _, c := range []registrytest.Capability{registrytest.Weight, registrytest.Zone, registrytest.Metadata} {
		h.Lacks[c] = "the poor registry has no place for it"
	}
	return h
}

func TestADriverWithTheLeastPasses(t *testing.T) {
	t.Parallel()
	results, err := registrytest.Check(t.Context(), poorHarness(t))
	expect.NoError(t, err)
	skipped := map[string]string{}
	for _, r := range results {
		switch r.Outcome {
		case registrytest.Failed:
			t.Errorf("%s failed: %s", r.Case.Name, strings.Join(r.Messages, "\n"))
		case registrytest.Skipped:
			skipped[r.Case.Name] = strings.Join(r.Messages, "\n")
		case registrytest.Passed:
		}
	}
	want := map[string]string{}
	for lack, names := range map[string][]string{
		"OutOfServiceState: the poor registry knows no state":               {"FailOverKeepsKnown"},
		"Listing: the poor registry can't list":                             {"ListIsOnlyThisClusters", "ListOfUnknownCluster", "ListIsACopy", "ListsOursAmongAThousand"},
		"Weight: the poor registry has no place for it":                     {"WeightIsKept"},
		"Zone: the poor registry has no place for it":                       {"ZoneIsKept"},
		"Metadata: the poor registry has no place for it":                   {"MetadataIsKept", "OddMetadata", "MetadataIsNotShared"},
		"Stalled: there is nothing between the driver and the registry":     {"DeadlineIsKept", "CancelWhileWaiting"},
		"Unreachable: there is nothing between the driver and the registry": {"UnreachableIsRetryable"},
		"Refusing: the memory registry refuses nothing":                     {"RefusedIsTerminal"},
		"WrongCredentials: the memory registry asks for none":               {"WrongCredentialsAreNamed"},
		"Failing: the memory registry never fails":                          {"FailureIsNotRetried"},
		"Getting: the wrapper asks for nothing": {
			"GetSaysWhatWasAcknowledged", "GetIsNeverBehind", "GetOfAnotherIsAbsent", "GetOfOddNames", "GetChangesNothing",
			"GetAgreesWithList", "ConcurrentGets", "GetAfterRestart", "GetSeesNoOtherRegistrysEntry",
		},
		"Probing: the memory registry gives clients everything at once": {
			"ProbeAgreesInTheEnd", "ProbeDeniesWhatIsOut", "ProbeChangesNothing",
		},
		"Heartbeats: nothing expires in the memory registry": {
			"HeartbeatKeepsEntry", "HeartbeatTakesOver", "HeartbeatOfUnknown", "HeartbeatOfAnotherUID",
			"HeartbeatKeepsOutOfService", "HeartbeatOfFormerProcess", "HeartbeatRacesWithTheEnd",
		},
		"Batching: the wrapper has no batches": {
			"BatchMakesEachChange", "BatchTwice", "BatchAtItsLimit", "BatchSparesLivePods", "BatchRefusedChange",
			"AnotherRegistrysEntryIsSparedInABatch", "BatchCancelledContext", "BatchUnknownState",
			"ConcurrentBatches", "ConcurrentTakeoverInBatch",
		},
		"ForeignEntries: the harness has no ForeignEntries": {"ForeignEntryShows", "ForeignEntryElsewhere"},
		"Apps: the harness has no Apps": {
			"AppEntryGoesOutAndBack", "AppEntryNotThere", "AppEntryElsewhere", "TwoAppEntries", "AppEntryLeavesNothing",
		},
		"Closing: the wrapper holds nothing open": {"CloseLeavesEntries", "CloseSparesOtherDrivers"},
		"Restart: the memory registry ends with its process": {
			"RestartIsOutlived", "RestartKeepsEntries", "RestartIsNoticedByHeartbeat",
		},
	} {
		for _, name := range names {
			want[name] = name + " skipped: lacks " + lack
		}
	}
	if diff := cmp.Diff(want, skipped); diff != "" {
		t.Errorf("skipped cases, -want +got:\n%s", diff)
	}
}

func TestCasesAreWellFormed(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, c := range registrytest.Cases() {
		if seen[c.Name] {
			t.Errorf("two cases are called %s", c.Name)
		}
		seen[c.Name] = true
		if c.Name == "" || strings.ContainsAny(c.Name, " /#") || c.Why == "" {
			t.Errorf("case %q: want a name that is a subtest's as it stands, and a Why; got Why %q", c.Name, c.Why)
		}
	}
}

func TestABadHarnessIsRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		spoil  func(*registrytest.Harness)
		want   string
	}{
		"no Open": {
			reason: "there would be nothing to test",
			spoil:  func(h *registrytest.Harness) { h.Open = nil },
			want:   "no Open",
		},
		"both Stalled and a reason": {
			reason: "a case that could run must not be skipped",
			spoil: func(h *registrytest.Harness) {
				h.Stalled = func(registrytest.T) registry.Registry { return nil }
			},
			want: "there is a function for Stalled",
		},
		"a reason that is empty": {
			reason: "a skip says why",
			spoil:  func(h *registrytest.Harness) { h.Lacks[registrytest.Failing] = "" },
			want:   "no reason for Failing",
		},
		"a capability that is misspelt": {
			reason: "it would skip nothing and look as if it did",
			spoil:  func(h *registrytest.Harness) { h.Lacks["Listings"] = "none" },
			want:   `"Listings", which is no capability`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := overMemory(t, func(b backend) registry.Registry { return b })
			tc.spoil(&h)
			_, err := registrytest.Check(t.Context(), h)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Check: got error %v, want one with %q\nreason: %s", err, tc.want, tc.reason)
			}
		})
	}
}

func TestADriverMustBeWhatTheHarnessSays(t *testing.T) {
	t.Parallel()
	for _, c := range []registrytest.Capability{
		registrytest.Listing, registrytest.Getting, registrytest.Probing, registrytest.Heartbeats, registrytest.Batching,
		registrytest.Closing,
	} {
		more := overStore(newStore(t), asItIs) // a driver that has everything
		more.Truth = func(context.Context, string) ([]registry.Entry, error) { return nil, nil }
		more.Lacks[c] = "so it says"
		if c == registrytest.Heartbeats {
			more.ShortLease = nil
		}
		results, err := registrytest.Check(t.Context(), more)
		if err != nil {
			t.Fatalf("%s: %v", c, err)
		}
		for _, r := range results {
			if r.Outcome == registrytest.Passed {
				t.Errorf("%s passed, want it to fail: the driver has %s, and the harness says that it lacks it", r.Case.Name, c)
			}
		}
	}
}

// TestADriverThatCantListNeedsTruth has a harness without a way to see what the registry holds.
func TestADriverThatCantListNeedsTruth(t *testing.T) {
	t.Parallel()
	h := poorHarness(t)
	h.Truth = nil
	results, err := registrytest.Check(t.Context(), h)
	expect.NoError(t, err)
	for _, r := range results {
		if said := strings.Join(r.Messages, "\n"); r.Outcome == registrytest.Passed ||
			r.Outcome == registrytest.Failed && !strings.Contains(said, "needs Truth") {
			t.Errorf("%s: got %s, want it to ask for Truth", r.Case.Name, said)
		}
	}
}

// TestWhatIsAbsentIsSkipped has a harness that says nothing of what it and its driver have not.
func TestWhatIsAbsentIsSkipped(t *testing.T) {
	t.Parallel()
	h := poorHarness(t)
	for _, c := range []registrytest.Capability{
		registrytest.Listing, registrytest.Getting, registrytest.Probing, registrytest.Heartbeats, registrytest.Batching,
		registrytest.Closing, registrytest.Unreachable, registrytest.Refusing, registrytest.WrongCredentials,
		registrytest.Stalled, registrytest.Failing, registrytest.Restart,
	} {
		delete(h.Lacks, c)
	}
	results, err := registrytest.Check(t.Context(), h)
	expect.NoError(t, err)
	said := map[string]string{}
	for _, r := range results {
		if r.Outcome == registrytest.Failed {
			t.Errorf("%s failed: %s", r.Case.Name, strings.Join(r.Messages, "\n"))
		}
		said[r.Case.Name] = strings.Join(r.Messages, "\n")
	}
	for name, want := range map[string]string{
		"GetIsNeverBehind":   "GetIsNeverBehind skipped: lacks Getting: the driver has no such methods",
		"HeartbeatOfUnknown": "HeartbeatOfUnknown skipped: lacks Heartbeats: the driver has no such methods",
		"RefusedIsTerminal":  "RefusedIsTerminal skipped: lacks Refusing: the harness has no Refusing",
		"RestartIsOutlived":  "RestartIsOutlived skipped: lacks Restart: the harness has no Restart",
	} {
		if said[name] != want {
			t.Errorf("got %q, want %q", said[name], want)
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
	h := overStore(newStore(t), asItIs)
	open, restart := h.Open, h.Restart
	h.Open = func(t registrytest.T, cluster string) registry.Registry {
		under.Add(1)
		t.Cleanup(func() { under.Add(-1) })
		return open(t, cluster)
	}
	h.Restart = func(inner registrytest.T) {
		before := under.Load()
		restart(inner)
		restarts.Add(1)
		if got := under.Load(); got != before || got > 3 {
			t.Errorf("%d processes were open before a restart and %d after it, want the case's own alone", before, got)
		}
	}
	registrytest.Run(t, h)
}

// TestWhatHasNoPlaceIsLeftOut has a registry with no place for weight, zone and metadata, and drivers that do and don't
// leave them out.
func TestWhatHasNoPlaceIsLeftOut(t *testing.T) {
	t.Parallel()
	leavesOut := func(d rich) registry.Registry {
		return brokenRich{rich: d, register: func(ctx context.Context, in registry.Instance) error {
			in.Weight, in.Zone, in.Metadata = 0, "", nil
			return d.Register(ctx, in)
		}}
	}
	for name, tc := range map[string]struct {
		wrap func(rich) registry.Registry
		want []string
	}{
		"left out": {leavesOut, nil},
		"kept":     {asItIs, []string{"GetAgreesWithList", "ListIsACopy", "RestartKeepsEntries"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := richly(only(registrytest.Restart), tc.wrap)(t)
			for _, c := range []registrytest.Capability{registrytest.Weight, registrytest.Zone, registrytest.Metadata} {
				h.Lacks[c] = "there is no place for it"
			}
			results, err := registrytest.Check(t.Context(), h)
			expect.NoError(t, err)
			failed, said := failures(results, tc.want)
			if diff := cmp.Diff(tc.want, failed); diff != "" {
				t.Errorf("failed cases, -want +got:\n%s\n%s", diff, said)
			}
		})
	}
}
