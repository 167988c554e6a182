package registrytest_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// brokenDriver is broken in one way.
type brokenDriver struct {
	reason string
	broken func(t *testing.T) registrytest.Harness
	want   []string // the cases that fail
}

// TestTheSuiteCatches runs the suite on drivers that are broken in one way each, and wants exactly the cases named with
// them to fail: one that fails for everything names nothing.
func TestTheSuiteCatches(t *testing.T) {
	t.Parallel()
	for name, tc := range allBroken() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			results, err := registrytest.Check(t.Context(), registrytest.Impatient(tc.broken(t), impatience))
			expect.NoError(t, err)
			failed, said := failures(results, tc.want)
			slices.Sort(tc.want)
			if diff := gocmp.Diff(tc.want, failed); diff != "" {
				t.Errorf("failed cases, -want +got:\n%s\nreason: %s\n%s", diff, tc.reason, said)
			}
		})
	}
}

// TestEveryCaseCanFail wants a broken driver for each case: one that can't fail proves nothing.
func TestEveryCaseCanFail(t *testing.T) {
	t.Parallel()
	caught := map[string]bool{}
	for _, tc := range allBroken() {
		for _, name := range tc.want {
			caught[name] = true
		}
	}
	for _, c := range registrytest.Cases() {
		if !caught[c.Name] {
			t.Errorf("no broken driver fails %s", c.Name)
		}
	}
}

func allBroken() map[string]brokenDriver {
	all := brokenBasics()
	maps.Copy(all, brokenDetails())
	maps.Copy(all, brokenCapabilities())
	maps.Copy(all, brokenGets())
	maps.Copy(all, brokenForeign())
	maps.Copy(all, brokenAppEntries())
	return all
}

func brokenBasics() map[string]brokenDriver {
	return map[string]brokenDriver{
		"a driver that forgets the mark when it deregisters": {
			reason: "it removes whatever has the address",
			broken: wrapped(func(b backend) registry.Registry {
				return broken{backend: b, deregister: func(ctx context.Context, in registry.Instance) error {
					return b.Deregister(ctx, asMarked(ctx, b, in))
				}}
			}),
			want: []string{
				"AnotherRegistrysEntryIsSpared", "ConcurrentTakeover", "LateDeregisterSparesLivePod",
				"OtherUIDIsNeverRemoved",
			},
		},
		"a driver that forgets the mark when it fails over": {
			reason: "it takes out whatever has the address",
			broken: wrapped(func(b backend) registry.Registry {
				return broken{backend: b, failOver: func(ctx context.Context, in registry.Instance) error {
					return b.FailOver(ctx, asMarked(ctx, b, in))
				}}
			}),
			want: []string{
				"AnotherRegistrysEntryIsSpared", "ConcurrentTakeover", "LateFailOverSparesLivePod",
				"OtherUIDIsNeverRemoved",
			},
		},
		"a driver that takes the pod's name for its mark": {
			reason: "a pod can be made anew under its name",
			broken: wrapped(func(b backend) registry.Registry {
				return broken{backend: b, deregister: func(ctx context.Context, in registry.Instance) error {
					if held := asMarked(ctx, b, in); held.Pod == in.Pod {
						in = held
					}
					return b.Deregister(ctx, in)
				}}
			}),
			want: []string{"AnotherRegistrysEntryIsSpared", "OtherUIDIsNeverRemoved"},
		},
		"a driver that compares the UID and no more": {
			reason: "two names for one server: moving from one to the other removes the pod",
			broken: wrapped(func(b backend) registry.Registry {
				return broken{backend: b, deregister: func(ctx context.Context, in registry.Instance) error {
					in.Registry = ""
					return b.Deregister(ctx, in)
				}}
			}),
			want: []string{"AnotherRegistrysEntryIsSpared"},
		},
		"a driver that appends at each register": {
			reason: "the entry is there twice, and removed once",
			broken: overSliced(&sliced{appends: true}),
			want: []string{
				"AnotherRegistrysEntryIsSpared", "ConcurrentCalls", "ConcurrentCallsForOneInstance",
				"ConcurrentTakeover", "LateFailOverSparesLivePod", "ListsOursAmongAThousand", "MetadataIsKept",
				"RegisterPutsBack", "RegisterPutsBackAgainAndAgain", "RegisterTakesOverAddress",
				"RegisterTwiceIsOne", "TwoOwnersApart", "TwoOwnersAtOneAddress", "WeightIsKept", "ZoneIsKept",
			},
		},
		"a driver that never overwrites": {
			reason: "the dead pod's entry keeps the live one out",
			broken: wrapped(func(b backend) registry.Registry {
				return broken{backend: b, register: func(ctx context.Context, in registry.Instance) error {
					return b.Register(ctx, asMarked(ctx, b, in))
				}}
			}),
			want: []string{
				"AnotherRegistrysEntryIsSpared", "ConcurrentTakeover", "LateDeregisterSparesLivePod",
				"LateFailOverSparesLivePod", "MetadataIsKept", "RegisterTakesOverAddress", "WeightIsKept",
				"ZoneIsKept",
			},
		},
		"a driver whose deregister fails over": {
			reason: "an orphan stays for each pod that ever was",
			broken: wrapped(func(b backend) registry.Registry { return broken{backend: b, deregister: b.FailOver} }),
			want: []string{
				"AnotherRegistrysEntryIsSpared", "ConcurrentCalls", "ConcurrentCallsForOneInstance",
				"DeregisterAbsent", "DeregisterRemoves", "IPv6", "InputNotChanged", "ListsOursAmongAThousand",
				"OddMarks", "OddServiceNames", "RegisterTakesOverAddress", "RemovalSparesOthers",
				"RestartedProcessDeregisters", "TwoOwnersApart",
			},
		},
		"a driver for which absent is an error": {
			reason: "a removal that is made again never succeeds",
			broken: wrapped(func(b backend) registry.Registry {
				return broken{backend: b, deregister: func(ctx context.Context, in registry.Instance) error {
					if _, known := find(ctx, b, in); !known {
						return errors.New("404 no such instance")
					}
					return b.Deregister(ctx, in)
				}}
			}),
			want: []string{"ConcurrentCallsForOneInstance", "DeregisterAbsent", "TwoOwnersApart", "TwoOwnersAtOneAddress"},
		},
		"a driver that removes all of an address": {
			reason: "the pod's other ports and services go with it",
			broken: wrapped(func(b backend) registry.Registry {
				return broken{backend: b, deregister: func(ctx context.Context, in registry.Instance) error {
					return removesByAddress(ctx, b, in)
				}}
			}),
			want: []string{
				"AnotherRegistrysEntryIsSpared", "ConcurrentTakeover", "LateDeregisterSparesLivePod",
				"OddServiceNames", "OtherUIDIsNeverRemoved", "RemovalSparesOthers",
			},
		},
		"a driver that ignores its context": {
			reason: "its worker is lost for as long as the registry hangs",
			broken: wrapped(func(b backend) registry.Registry { return broken{backend: b, deaf: true} }),
			want:   []string{"CancelledContext"},
		},
		"a driver that waits for its registry for ever": {
			reason: "its worker is lost for as long as the registry hangs",
			broken: neverAnswers,
			want:   []string{"CancelWhileWaiting", "DeadlineIsKept"},
		},
		"a driver that tidies names up": {
			reason: "what it writes is not what it was given",
			broken: wrapped(func(b backend) registry.Registry {
				return broken{backend: b, register: func(ctx context.Context, in registry.Instance) error {
					in.Service, in.Pod = strings.ToLower(in.Service), strings.TrimSpace(in.Pod)
					return b.Register(ctx, in)
				}}
			}),
			want: []string{"InputNotChanged", "OddServiceNames"},
		},
		"a driver that does not escape": {
			reason: "what comes after a slash is lost",
			broken: wrapped(func(b backend) registry.Registry {
				return broken{backend: b, register: func(ctx context.Context, in registry.Instance) error {
					in.UID, _, _ = strings.Cut(in.UID, "/")
					return b.Register(ctx, in)
				}}
			}),
			want: []string{"OddMarks"},
		},
		"a driver that leaves the failed-over in rotation": {
			reason: "OpenKruise updates a pod that clients are sent to",
			broken: wrapped(func(b backend) registry.Registry {
				return broken{backend: b, failOver: func(ctx context.Context, _ registry.Instance) error { return ctx.Err() }}
			}),
			want: []string{
				"ConcurrentCalls", "ConcurrentCallsForOneInstance", "FailOverKeepsKnown", "FailOverTakesOutOfRotation",
				"FailOverTwice", "IPv6", "InputNotChanged", "LateDeregisterSparesLivePod", "LateFailOverSparesLivePod",
				"ListsOursAmongAThousand", "MetadataIsKept", "MetadataIsNotShared", "OddMarks", "OddMetadata",
				"OddServiceNames", "RegisterPutsBackAgainAndAgain", "RemovalSparesOthers", "RestartedProcessFailsOver",
				"TwoOwnersApart", "WeightIsKept", "ZoneIsKept",
			},
		},
		"a driver whose fail over removes": {
			reason: "the registry has a state for it, and the driver claims it",
			broken: wrapped(func(b backend) registry.Registry {
				return broken{backend: b, failOver: b.Deregister}
			}),
			want: []string{
				"ConcurrentCalls", "ConcurrentCallsForOneInstance", "FailOverKeepsKnown", "FailOverTwice", "IPv6",
				"InputNotChanged", "LateDeregisterSparesLivePod", "LateFailOverSparesLivePod",
				"ListsOursAmongAThousand", "MetadataIsKept", "MetadataIsNotShared", "OddMarks", "OddMetadata",
				"OddServiceNames", "RegisterPutsBackAgainAndAgain", "RemovalSparesOthers", "RestartedProcessFailsOver",
				"TwoOwnersApart", "WeightIsKept", "ZoneIsKept",
			},
		},
		"a driver that puts an unknown one in service when it fails over": {
			reason: "a pod that was never ready gets traffic",
			broken: wrapped(func(b backend) registry.Registry {
				return broken{backend: b, failOver: func(ctx context.Context, in registry.Instance) error {
					if _, known := find(ctx, b, in); !known {
						return b.Register(ctx, in)
					}
					return b.FailOver(ctx, in)
				}}
			}),
			want: []string{"FailOverOfUnknown", "TwoOwnersAtOneAddress"},
		},
		"a driver that acknowledges before it has done": {
			reason: "OpenKruise goes on while clients still see the old state",
			broken: wrapped(func(b backend) registry.Registry {
				l := &late{}
				return broken{backend: b, register: func(ctx context.Context, in registry.Instance) error {
					return l.register(ctx, b, in)
				}}
			}),
			want: []string{
				"AnotherRegistrysEntryIsSpared", "ConcurrentCalls", "ConcurrentTakeover", "FailOverKeepsKnown",
				"FailOverTwice", "IPv6", "InputNotChanged", "LateDeregisterSparesLivePod",
				"LateFailOverSparesLivePod", "ListIsACopy", "ListIsOnlyThisClusters", "ListsOursAmongAThousand",
				"MetadataIsKept", "MetadataIsNotShared", "OddMarks", "OddMetadata", "OddServiceNames",
				"OtherUIDIsNeverRemoved", "RegisterAfterRemovalPutsBack", "RegisterIsVisibleAtOnce",
				"RegisterPutsBackAgainAndAgain", "RegisterTakesOverAddress", "RemovalSparesOthers",
				"RestartedProcessDeregisters", "RestartedProcessFailsOver", "TwoOwnersApart",
				"TwoOwnersAtOneAddress", "WeightIsKept", "ZoneIsKept",
			},
		},
		"a driver that relies on its memory": {
			reason: "after a restart it knows nothing and removes nothing",
			broken: wrapped(func(b backend) registry.Registry { return newRemembering(b) }),
			want: []string{
				"IPv6", "OddMarks", "OddMetadata", "OddServiceNames", "RegisterPutsBackAgainAndAgain",
				"RestartedProcessDeregisters", "RestartedProcessFailsOver",
			},
		},
		"a driver that removes after it has looked": {
			reason: "the next pod can have registered in between",
			broken: wrapped(func(b backend) registry.Registry {
				return broken{backend: b, deregister: func(ctx context.Context, in registry.Instance) error {
					return removesUnderTheHand(ctx, b, in)
				}}
			}),
			want: []string{"ConcurrentTakeover"},
		},
		"a driver that reads and writes with no lock": {
			reason: "of two calls at once one is lost",
			broken: overSliced(&sliced{unlocked: true}),
			want:   []string{"ConcurrentCalls", "ConcurrentTakeover", "ListsOursAmongAThousand"},
		},
		"a driver that lists by a prefix of the cluster": {
			reason: "it would remove what another cluster wrote",
			broken: listsByPrefix,
			want:   []string{"ListIsOnlyThisClusters", "ListsOursAmongAThousand"},
		},
		"a driver that hands out its own list": {
			reason: "who changes it changes the registry for all",
			broken: wrapped(func(b backend) registry.Registry {
				cache := map[string][]registry.Entry{}
				return broken{backend: b, list: func(ctx context.Context, cluster string) (_ []registry.Entry, err error) {
					if cache[cluster] == nil {
						cache[cluster], err = b.List(ctx, cluster)
					}
					return cache[cluster], err
				}}
			}),
			want: []string{"ListIsACopy"},
		},
		"a driver for which an unknown cluster is an error": {
			reason: "a cluster's first start would fail",
			broken: wrapped(func(b backend) registry.Registry {
				return broken{backend: b, list: func(ctx context.Context, cluster string) ([]registry.Entry, error) {
					entries, err := b.List(ctx, cluster)
					if len(entries) == 0 {
						err = cmp.Or(err, errors.New("404 no such cluster"))
					}
					return entries, err
				}}
			}),
			want: []string{"ListOfUnknownCluster"},
		},
		"a driver that takes unreachable for terminal": {
			reason: "a restart of the registry would be taken for a wrong configuration",
			broken: unreachableIsTerminal,
			want:   []string{"UnreachableIsRetryable"},
		},
		"a driver that takes refused for passing": {
			reason: "no error would say that the credentials are wrong",
			broken: refusedIsRetryable,
			want:   []string{"RefusedIsTerminal"},
		},
		"a driver that retries by itself": {
			reason: "it multiplies the storm that made the registry fail",
			broken: retriesByItself,
			want:   []string{"FailureIsNotRetried"},
		},
		"a driver that panics": {
			reason: "a panic is a failure of the case, not the end of the suite",
			broken: wrapped(func(b backend) registry.Registry {
				return broken{backend: b, list: func(context.Context, string) ([]registry.Entry, error) { panic("oh") }}
			}),
			want: []string{
				"ListIsACopy", "ListIsOnlyThisClusters", "ListOfUnknownCluster", "ListsOursAmongAThousand",
			},
		},
	}
}

// failures returns the sorted names of the cases that failed, and what those said that are not expected to.
func failures(results []registrytest.Result, expected []string) (names []string, said string) {
	var b strings.Builder
	for _, r := range results {
		if r.Outcome != registrytest.Failed {
			continue
		}
		names = append(names, r.Case.Name)
		if !slices.Contains(expected, r.Case.Name) {
			fmt.Fprintf(&b, "%s: %s\n", r.Case.Name, strings.Join(r.Messages, "\n"))
		}
	}
	slices.Sort(names)
	return names, b.String()
}
