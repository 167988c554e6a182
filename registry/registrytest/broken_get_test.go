package registrytest_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
)

// asking is the harness of a driver whose Get is broken.
func asking(
	get func(d rich, ctx context.Context, in registry.Instance) (registry.State, error),
) func(*testing.T) registrytest.Harness {
	return richly(only(), func(d rich) registry.Registry {
		return brokenRich{rich: d, get: func(ctx context.Context, in registry.Instance) (registry.State, error) {
			return get(d, ctx, in)
		}}
	})
}

func brokenGets() map[string]brokenDriver {
	return map[string]brokenDriver{
		"a Get that reads a cache": {
			reason: "the answer is from before the call whose outcome is in doubt",
			broken: getsFromACache,
			want: []string{
				"ConcurrentGets", "GetIsNeverBehind", "GetOfAnotherIsAbsent", "GetOfOddNames",
				"GetSaysWhatWasAcknowledged", "GetSeesNoOtherRegistrysEntry",
			},
		},
		"a Get that is behind now and then": {
			reason: "a replica answers, which is seldom behind",
			broken: getsFromAReplica,
			want:   []string{"GetIsNeverBehind"},
		},
		"a Get that forgets the mark": {
			reason: "the next pod at the address is in, and holds this one's release up for ever",
			broken: asking(func(d rich, ctx context.Context, in registry.Instance) (registry.State, error) {
				return d.Get(ctx, asMarked(ctx, d, in))
			}),
			want: []string{"GetOfAnotherIsAbsent", "GetSeesNoOtherRegistrysEntry"},
		},
		"a Get that forgets the cluster": {
			reason: "what another cluster wrote is not what this one did",
			broken: asking(func(d rich, ctx context.Context, in registry.Instance) (registry.State, error) {
				in.Cluster = strings.TrimSuffix(in.Cluster, "-other")
				return d.Get(ctx, in)
			}),
			want: []string{"GetOfAnotherIsAbsent"},
		},
		"a Get that knows no out of service": {
			reason: "it says of what is out that it is in, and nothing is released any more",
			broken: asking(func(d rich, ctx context.Context, in registry.Instance) (registry.State, error) {
				state, err := d.Get(ctx, in)
				if state == registry.OutOfService {
					state = registry.InService
				}
				return state, err
			}),
			want: []string{
				"ConcurrentGets", "GetAgreesWithList", "GetIsNeverBehind", "GetOfAnotherIsAbsent", "GetOfOddNames",
				"GetSaysWhatWasAcknowledged",
			},
		},
		"a Get that takes a state it does not know for absent": {
			reason: "a pod with a weight would be released while clients are sent to it",
			broken: asking(func(d rich, ctx context.Context, in registry.Instance) (registry.State, error) {
				if e, _ := find(ctx, d, in); e.Zone == "b" {
					return registry.Absent, nil
				}
				return d.Get(ctx, in)
			}),
			want: []string{"GetAgreesWithList"},
		},
		"a Get that does not escape": {
			reason: "it asks for another entry",
			broken: asking(func(d rich, ctx context.Context, in registry.Instance) (registry.State, error) {
				in.Service = strings.NewReplacer("%20", " ", "+", " ").Replace(in.Service)
				return d.Get(ctx, in)
			}),
			want: []string{"GetOfOddNames"},
		},
		"a Get that brings back what is not there": {
			reason: "it is asked while the pod is on its way out",
			broken: asking(func(d rich, ctx context.Context, in registry.Instance) (registry.State, error) {
				state, err := d.Get(ctx, in)
				if state == registry.Absent && strings.HasSuffix(in.UID, "-3") {
					_ = d.Register(ctx, in)
				}
				return state, err
			}),
			want: []string{"GetChangesNothing"},
		},
		"a Get that mixes up those who ask at once": {
			reason: "one pod is released by another's answer",
			broken: mixesUp,
			want:   []string{"ConcurrentGets"},
		},
		"a Get that ignores its context": {
			reason: "its worker is lost for as long as the registry hangs",
			broken: richly(only(), func(d rich) registry.Registry { return deafGetter{d} }),
			want:   []string{"CancelledContext"},
		},
		"a Get that takes unreachable for absent": {
			reason: "a registry that is down would let every pod go",
			broken: func(t *testing.T) registrytest.Harness {
				h := overStore(newStore(t), asItIs)
				unreachable := h.Unreachable
				only()(&h)
				delete(h.Lacks, registrytest.Unreachable)
				h.Unreachable = func(t registrytest.T) registry.Registry {
					return brokenRich{
						rich: unreachable(t).(rich),
						get: func(context.Context, registry.Instance) (registry.State, error) {
							return registry.Absent, nil
						},
					}
				}
				return h
			},
			want: []string{"UnreachableIsRetryable"},
		},
		"a Get that says absent after a restart": {
			reason: "the registry reads back what it has kept only when it is asked for the list",
			broken: forgetsToGet,
			want:   []string{"GetAfterRestart"},
		},
	}
}

// deafGetter does not look at its context.
type deafGetter struct{ rich }

func (d deafGetter) Get(ctx context.Context, in registry.Instance) (registry.State, error) {
	return d.rich.Get(context.WithoutCancel(ctx), in)
}

// getsFromACache answers each time with what there was when the instance was first asked for.
func getsFromACache(t *testing.T) registrytest.Harness {
	t.Helper()
	var mu sync.Mutex
	cached := map[string]registry.State{}
	return asking(func(d rich, ctx context.Context, in registry.Instance) (registry.State, error) {
		mu.Lock()
		defer mu.Unlock()
		key := in.Cluster + leaseKey(in)
		if state, known := cached[key]; known {
			return state, nil
		}
		state, err := d.Get(ctx, in)
		if err == nil {
			cached[key] = state
		}
		return state, err
	})(t)
}

// getsFromAReplica answers, when it was asked for an instance many times, once as the time before.
func getsFromAReplica(t *testing.T) registrytest.Harness {
	t.Helper()
	const seldom = 30
	var mu sync.Mutex
	asked, last := map[string]int{}, map[string]registry.State{}
	return asking(func(d rich, ctx context.Context, in registry.Instance) (registry.State, error) {
		state, err := d.Get(ctx, in)
		if err != nil {
			return "", err
		}
		mu.Lock()
		defer mu.Unlock()
		key := leaseKey(in)
		asked[key]++
		if asked[key] == seldom {
			return last[key], nil
		}
		last[key] = state
		return state, nil
	})(t)
}

// mixesUp keeps what it was asked for where the next one who asks puts it too.
func mixesUp(t *testing.T) registrytest.Harness {
	t.Helper()
	return richly(only(), func(d rich) registry.Registry {
		var mu sync.Mutex
		var asked registry.Instance
		return brokenRich{rich: d, get: func(ctx context.Context, in registry.Instance) (registry.State, error) {
			mu.Lock()
			asked = in
			mu.Unlock()
			time.Sleep(time.Millisecond)
			mu.Lock()
			in = asked
			mu.Unlock()
			return d.Get(ctx, in)
		}}
	})(t)
}

// forgetsToGet has a store that is restarted, and a driver that believes it to be empty then.
func forgetsToGet(t *testing.T) registrytest.Harness {
	t.Helper()
	var mu sync.Mutex
	restarted := map[string]bool{}
	now := ""
	h := richly(only(registrytest.Restart), func(d rich) registry.Registry {
		return brokenRich{
			rich: d,
			register: func(ctx context.Context, in registry.Instance) error {
				mu.Lock()
				now = in.Cluster
				mu.Unlock()
				return d.Register(ctx, in)
			},
			get: func(ctx context.Context, in registry.Instance) (registry.State, error) {
				state, err := d.Get(ctx, in)
				mu.Lock()
				defer mu.Unlock()
				if err == nil && restarted[in.Cluster] {
					state = registry.Absent
				}
				return state, err
			},
		}
	})(t)
	restart := h.Restart
	h.Restart = func(t registrytest.T) {
		restart(t)
		mu.Lock()
		defer mu.Unlock()
		restarted[now] = true
	}
	return h
}
