package registrytest_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
)

// brokenDetails are broken in what the cases beyond the first version look at, and have no further capabilities.
func brokenDetails() map[string]brokenDriver {
	return map[string]brokenDriver{
		"a driver that takes one name for one pod": {
			reason: "two clusters run the same workload, and a pod may have two services and ports",
			broken: onePodPerName,
			want:   []string{"RemovalSparesOthers", "TwoOwnersApart"},
		},
		"a driver that makes the cluster a part of the identity": {
			reason: "the address has two entries, and traffic for the old one's sake",
			broken: identityByCluster,
			want:   []string{"TwoOwnersAtOneAddress"},
		},
		"a driver whose fail over forgets the weight": {
			reason: "FailOver changes the state alone",
			broken: registersAs("FailOver", func(in *registry.Instance) { in.Weight = 0 }),
			want:   []string{"WeightIsKept"},
		},
		"a driver with whole hundreds for weights": {
			reason: "its registry counts otherwise",
			broken: registersAs("Register", func(in *registry.Instance) { in.Weight -= in.Weight % 100 }),
			want:   []string{"WeightIsKept"},
		},
		"a driver that tidies the zone up": {
			reason: "it is another zone then",
			broken: registersAs("Register", func(in *registry.Instance) { in.Zone = strings.ToLower(in.Zone) }),
			want:   []string{"ZoneIsKept"},
		},
		"a driver that keeps a zone which is not said any more": {
			reason: "where nothing is known, nothing is said",
			broken: wrapped(func(b backend) registry.Registry {
				return broken{backend: b, register: func(ctx context.Context, in registry.Instance) error {
					if e, known := find(ctx, b, in); known && in.Zone == "" {
						in.Zone = e.Zone
					}
					return b.Register(ctx, in)
				}}
			}),
			want: []string{"ZoneIsKept"},
		},
		"a driver that adds to the metadata": {
			reason: "what is not said any more must go",
			broken: addsToMetadata,
			want:   []string{"MetadataIsKept"},
		},
		"a driver whose metadata is short": {
			reason: "what is cut off is not what was given",
			broken: registersAs("Register", func(in *registry.Instance) {
				in.Metadata = maps.Clone(in.Metadata)
				for key, value := range in.Metadata {
					in.Metadata[key] = value[:min(len(value), 255)]
				}
			}),
			want: []string{"OddMetadata"},
		},
		"a driver that keeps the caller's map": {
			reason: "the caller goes on to use it",
			broken: keepsTheMap,
			want:   []string{"MetadataIsNotShared"},
		},
		"a driver whose first fail over is its last": {
			reason: "an instance is updated more than once in its life",
			broken: failsOverOnce,
			want:   []string{"RegisterPutsBackAgainAndAgain"},
		},
		"a driver whose registry remembers that an address was out": {
			reason: "Nacos keeps what an operator said of an instance for a minute after its removal",
			broken: remembersThatItWasOut,
			want:   []string{"RegisterAfterRemovalPutsBack"},
		},
		"a driver that lists the first page alone": {
			reason: "the rest is there, and is never removed",
			broken: wrapped(func(b backend) registry.Registry {
				return broken{backend: b, list: func(ctx context.Context, cluster string) ([]registry.Entry, error) {
					entries, err := b.List(ctx, cluster)
					return entries[:min(len(entries), 100)], err
				}}
			}),
			want: []string{"ListsOursAmongAThousand"},
		},
		"a driver that does not name the credentials": {
			reason: "whoever reads the error looks for a name",
			broken: harnessWith(registrytest.WrongCredentials, func(h *registrytest.Harness) {
				h.WrongCredentials = failing(registry.Terminal(errors.New("403 forbidden")))
			}),
			want: []string{"WrongCredentialsAreNamed"},
		},
		"a driver that takes wrong credentials for passing": {
			reason: "no error would say so",
			broken: harnessWith(registrytest.WrongCredentials, func(h *registrytest.Harness) {
				h.WrongCredentials = failing(registry.FieldError("auth.tokenFile", errors.New("403 forbidden")))
			}),
			want: []string{"WrongCredentialsAreNamed"},
		},
		"a driver that tells its token": {
			reason: "events are read by many",
			broken: harnessWith(registrytest.Refusing, func(h *registrytest.Harness) {
				h.Refusing = failing(registry.Terminal(errors.New("403 for hunter2")))
				h.Secrets = []string{"hunter2"}
			}),
			want: []string{"RefusedIsTerminal"},
		},
		"a driver that takes unreachable for not registered": {
			reason: "it can't know that",
			broken: harnessWith(registrytest.Unreachable, func(h *registrytest.Harness) {
				h.Unreachable = failing(registry.NotRegistered(errors.New("connection refused")))
			}),
			want: []string{"UnreachableIsRetryable"},
		},
	}
}

// harnessWith is that of a sound driver, with one of its functions.
func harnessWith(c registrytest.Capability, give func(*registrytest.Harness)) func(*testing.T) registrytest.Harness {
	return func(t *testing.T) registrytest.Harness {
		t.Helper()
		h := overMemory(t, func(b backend) registry.Registry { return b })
		delete(h.Lacks, c)
		give(&h)
		return h
	}
}

// registersAs changes what a Register writes, or has a FailOver write the entry anew with a change.
func registersAs(op string, change func(*registry.Instance)) func(*testing.T) registrytest.Harness {
	var mu sync.Mutex // what is written anew is written in one step
	return wrapped(func(b backend) registry.Registry {
		write := func(ctx context.Context, in registry.Instance, changed bool) error {
			if changed {
				change(&in)
			}
			return b.Register(ctx, in)
		}
		return broken{
			backend: b,
			register: func(ctx context.Context, in registry.Instance) error {
				mu.Lock()
				defer mu.Unlock()
				return write(ctx, in, op == "Register")
			},
			failOver: func(ctx context.Context, in registry.Instance) error {
				mu.Lock()
				defer mu.Unlock()
				if e, known := find(ctx, b, in); known && in.Owns(e.UID, e.Registry) && op == "FailOver" {
					if err := write(ctx, in, true); err != nil {
						return err
					}
				}
				return b.FailOver(ctx, in)
			},
		}
	})
}

// onePodPerName removes the entry that a pod of the same name had before at another address.
func onePodPerName(t *testing.T) registrytest.Harness {
	t.Helper()
	var mu sync.Mutex
	byName := map[string]registry.Instance{}
	return overMemory(t, func(b backend) registry.Registry {
		return broken{backend: b, register: func(ctx context.Context, in registry.Instance) error {
			mu.Lock()
			key := in.Service + "/" + in.Namespace + "/" + in.Pod
			before, known := byName[key]
			byName[key] = in
			mu.Unlock()
			if known && before.Address != in.Address {
				if err := b.Deregister(ctx, before); err != nil {
					return err
				}
			}
			return b.Register(ctx, in)
		}}
	})
}

// identityByCluster has a registry for each cluster.
func identityByCluster(t *testing.T) registrytest.Harness {
	t.Helper()
	var mu sync.Mutex
	stores := map[string]backend{}
	of := func(cluster string) backend {
		mu.Lock()
		defer mu.Unlock()
		if stores[cluster] == nil {
			stores[cluster] = newMemory(t)
		}
		return stores[cluster]
	}
	list := func(ctx context.Context, cluster string) ([]registry.Entry, error) {
		return of(cluster).List(ctx, cluster)
	}
	h := overMemory(t, func(b backend) registry.Registry {
		return broken{
			backend:    b,
			register:   func(ctx context.Context, in registry.Instance) error { return of(in.Cluster).Register(ctx, in) },
			failOver:   func(ctx context.Context, in registry.Instance) error { return of(in.Cluster).FailOver(ctx, in) },
			deregister: func(ctx context.Context, in registry.Instance) error { return of(in.Cluster).Deregister(ctx, in) },
			list:       list,
		}
	})
	h.Truth = list
	return h
}

// addsToMetadata writes what there was together with what there is now.
func addsToMetadata(t *testing.T) registrytest.Harness {
	t.Helper()
	return overMemory(t, func(b backend) registry.Registry {
		return broken{backend: b, register: func(ctx context.Context, in registry.Instance) error {
			if e, known := find(ctx, b, in); known && len(e.Metadata) > 0 {
				maps.Copy(e.Metadata, in.Metadata)
				in.Metadata = e.Metadata
			}
			return b.Register(ctx, in)
		}}
	})
}

// keepsTheMap has the caller's map read whenever the registry is.
func keepsTheMap(t *testing.T) registrytest.Harness {
	t.Helper()
	var mu sync.Mutex
	given := map[string]map[string]string{}
	store := newMemory(t)
	list := func(ctx context.Context, cluster string) ([]registry.Entry, error) {
		entries, err := store.List(ctx, cluster)
		mu.Lock()
		defer mu.Unlock()
		for i := range entries {
			if m := given[entries[i].UID]; m != nil {
				entries[i].Metadata = maps.Clone(m)
			}
		}
		return entries, err
	}
	h := overMemory(t, func(backend) registry.Registry {
		return broken{backend: store, list: list, register: func(ctx context.Context, in registry.Instance) error {
			mu.Lock()
			given[in.UID] = in.Metadata
			mu.Unlock()
			return store.Register(ctx, in)
		}}
	})
	h.Truth = list
	return h
}

// failsOverOnce remembers that it has failed an instance over, for ever and in all processes.
func failsOverOnce(t *testing.T) registrytest.Harness {
	t.Helper()
	var mu sync.Mutex
	done := map[string]int{}
	return overMemory(t, func(b backend) registry.Registry {
		return broken{
			backend: b,
			failOver: func(ctx context.Context, in registry.Instance) error {
				mu.Lock()
				defer mu.Unlock()
				if done[in.UID] > 1 {
					return nil
				}
				done[in.UID] = max(done[in.UID], 1)
				return b.FailOver(ctx, in)
			},
			register: func(ctx context.Context, in registry.Instance) error {
				mu.Lock()
				defer mu.Unlock()
				if done[in.UID] > 0 {
					done[in.UID] = 2
				}
				return b.Register(ctx, in)
			},
		}
	})
}

// remembersThatItWasOut keeps that an address is out when its entry is removed.
func remembersThatItWasOut(t *testing.T) registrytest.Harness {
	t.Helper()
	var mu sync.Mutex
	out := map[string]bool{}
	return overMemory(t, func(b backend) registry.Registry {
		return broken{
			backend: b,
			register: func(ctx context.Context, in registry.Instance) error {
				_, known := find(ctx, b, in)
				if err := b.Register(ctx, in); err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				if wasOut := out[in.Service+in.Endpoint()]; wasOut && !known {
					return b.FailOver(ctx, in)
				}
				delete(out, in.Service+in.Endpoint())
				return nil
			},
			failOver: func(ctx context.Context, in registry.Instance) error {
				if e, known := find(ctx, b, in); known && e.UID == in.UID {
					mu.Lock()
					out[in.Service+in.Endpoint()] = true
					mu.Unlock()
				}
				return b.FailOver(ctx, in)
			},
		}
	})
}
