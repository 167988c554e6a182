package registrytest_test

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
)

// brokenChanges are broken in what Register, FailOver and Deregister do.
func brokenChanges() map[string]breakage {
	return map[string]breakage{
		"a driver that forgets the mark when it deregisters": {
			reason: "it removes whatever has the address",
			breaks: given("Deregister", asMarked),
		},
		"a driver that forgets the mark when it fails over": {
			reason: "it takes out whatever has the address",
			breaks: given("FailOver", asMarked),
		},
		"a driver that takes the pod's name for its mark": {
			reason: "a pod can be made anew under its name",
			breaks: given("Deregister", func(ctx context.Context, d sound, in registry.Instance) registry.Instance {
				if held := asMarked(ctx, d, in); held.Pod == in.Pod {
					return held
				}
				return in
			}),
		},
		"a driver that compares the UID and no more": {
			reason: "two names for one server: moving from one to the other removes the pod",
			breaks: changed("Deregister", func(in *registry.Instance) { in.Registry = "" }),
		},
		"a driver that keeps the mark of older versions alone": {
			reason: "what a cluster left while it was off waits for a person",
			breaks: changed("Register", func(in *registry.Instance) { in.ClusterUID = "" }),
		},
		"a driver that appends at each register": {
			reason: "the entry is there twice, and removed once",
			breaks: func(d sound) broken {
				return broken{
					calls: map[string]method{"Register": func(ctx context.Context, in registry.Instance) error {
						if e, known := find(ctx, d, in); known {
							d.shared.Store(new(int), e)
						}
						return d.Register(ctx, in)
					}},
					list: func(ctx context.Context, cluster string) ([]registry.Entry, error) {
						entries, err := d.List(ctx, cluster)
						d.shared.Range(func(_, appended any) bool {
							if e := appended.(registry.Entry); e.Cluster == cluster {
								entries = append(entries, e)
							}
							return true
						})
						return entries, err
					},
				}
			},
			set: listIsTruth,
		},
		"a driver that never overwrites": {reason: "the dead pod's entry keeps the live one out", breaks: given("Register", asMarked)},
		"a driver whose deregister fails over": {
			reason: "an orphan stays for each pod that ever was",
			breaks: calling("Deregister", func(ctx context.Context, d sound, in registry.Instance) error { return d.FailOver(ctx, in) }),
		},
		"a driver for which absent is an error": {
			reason: "a removal that is made again never succeeds",
			breaks: calling("Deregister", func(ctx context.Context, d sound, in registry.Instance) error {
				if _, known := find(ctx, d, in); !known {
					return errors.New("404 no such instance")
				}
				return d.Deregister(ctx, in)
			}),
		},
		"a driver that ignores its context": {
			reason: "its worker is lost for as long as the registry hangs",
			breaks: func(sound) broken { return broken{deaf: "Register"} },
		},
		"a driver that tidies names up": {
			reason: "what it writes is not what it was given",
			breaks: changed("Register", func(in *registry.Instance) {
				in.Service, in.Pod = strings.ToLower(in.Service), strings.TrimSpace(in.Pod)
			}),
		},
		"a driver that does not escape": {
			reason: "what comes after a slash is lost",
			breaks: changed("Register", func(in *registry.Instance) { in.UID, _, _ = strings.Cut(in.UID, "/") }),
		},
		"a driver that leaves the failed-over in rotation": {
			reason: "OpenKruise updates a pod that clients are sent to",
			breaks: calling("FailOver", func(context.Context, sound, registry.Instance) error { return nil }),
		},
		"a driver whose fail over removes": {
			reason: "the registry has a state for it, and the driver claims it",
			breaks: calling("FailOver", func(ctx context.Context, d sound, in registry.Instance) error { return d.Deregister(ctx, in) }),
		},
		"a driver that puts an unknown one in service when it fails over": {
			reason: "a pod that was never ready gets traffic",
			breaks: calling("FailOver", func(ctx context.Context, d sound, in registry.Instance) error {
				if _, known := find(ctx, d, in); !known {
					return d.Register(ctx, in)
				}
				return d.FailOver(ctx, in)
			}),
		},
		"a driver that acknowledges before it has done": {
			reason: "OpenKruise goes on while clients still see the old state",
			breaks: calling("Register", func(ctx context.Context, d sound, in registry.Instance) error {
				if before, pending := d.own.Swap("pending", in); pending {
					return d.Register(ctx, before.(registry.Instance))
				}
				return nil
			}),
		},
		"a driver that relies on its memory": {
			reason: "after a restart it knows nothing and removes nothing",
			breaks: func(d sound) broken {
				ifKnown := func(do method) method {
					return func(ctx context.Context, in registry.Instance) error {
						if !d.remembers(in) {
							return nil
						}
						return do(ctx, in)
					}
				}
				return broken{calls: map[string]method{
					"Register": d.registerAndRemember, "FailOver": ifKnown(d.FailOver), "Deregister": ifKnown(d.Deregister),
				}}
			},
		},
		"a driver that removes after it has looked": {
			reason: "the next pod can have registered in between",
			breaks: calling("Deregister", func(ctx context.Context, d sound, in registry.Instance) error {
				if e, known := find(ctx, d, in); !known || !in.Owns(e.UID, e.Registry) {
					return nil
				}
				time.Sleep(time.Millisecond)
				return d.Deregister(ctx, asMarked(ctx, d, in))
			}),
		},
		"a driver that reads and writes with no lock": {
			reason: "of two calls at once one is lost",
			breaks: func(d sound) broken {
				alone := func(do method) method {
					return func(ctx context.Context, in registry.Instance) error {
						if _, busy := d.shared.LoadOrStore("busy", true); busy {
							return nil
						}
						defer d.shared.Delete("busy")
						time.Sleep(time.Millisecond)
						return do(ctx, in)
					}
				}
				return broken{calls: map[string]method{
					"Register": alone(d.Register), "FailOver": alone(d.FailOver), "Deregister": alone(d.Deregister),
				}}
			},
		},
		"a driver that takes one name for one pod": {
			reason: "two clusters run the same workload, and a pod may have two services and ports",
			breaks: calling("Register", func(ctx context.Context, d sound, in registry.Instance) error {
				before, known := d.shared.Swap(in.Service+"/"+in.Namespace+"/"+in.Pod, in)
				if known && before.(registry.Instance).Address != in.Address {
					if err := d.Deregister(ctx, before.(registry.Instance)); err != nil {
						return err
					}
				}
				return d.Register(ctx, in)
			}),
		},
		"a driver that makes the cluster a part of the identity": {
			reason: "the address has two entries, and traffic for the old one's sake",
			breaks: identityByCluster,
			set:    listIsTruth,
		},
		"a driver whose first fail over is its last": {
			reason: "an instance is updated more than once in its life",
			breaks: calling("FailOver", func(ctx context.Context, d sound, in registry.Instance) error {
				e, known := find(ctx, d, in)
				if !known || e.State == registry.OutOfService {
					return nil
				}
				if _, done := d.shared.LoadOrStore(keyOf(in), true); done {
					return nil
				}
				return d.FailOver(ctx, in)
			}),
		},
		"a driver whose registry remembers that an address was out": {
			reason: "Nacos keeps what an operator said of an instance for a minute after its removal",
			breaks: func(d sound) broken {
				return broken{calls: map[string]method{
					"Register": func(ctx context.Context, in registry.Instance) error {
						_, known := find(ctx, d, in)
						if err := d.Register(ctx, in); err != nil {
							return err
						}
						if _, wasOut := d.shared.LoadAndDelete(placeOf(in)); wasOut && !known {
							return d.FailOver(ctx, in)
						}
						return nil
					},
					"FailOver": func(ctx context.Context, in registry.Instance) error {
						if e, known := find(ctx, d, in); known && e.UID == in.UID {
							d.shared.Store(placeOf(in), true)
						}
						return d.FailOver(ctx, in)
					},
				}}
			},
		},
	}
}

// listIsTruth is for what is broken in what the registry holds.
func listIsTruth(_ *store, h *registrytest.Harness) { h.Truth = nil }

func (d sound) registerAndRemember(ctx context.Context, in registry.Instance) error {
	d.own.Store(in.UID, in)
	return d.Register(ctx, in)
}

func (d sound) remembers(in registry.Instance) bool {
	_, known := d.own.Load(in.UID)
	return known
}

// identityByCluster writes the cluster into the address, where the registry does not look for it.
func identityByCluster(d sound) broken {
	within := func(do method) method {
		return func(ctx context.Context, in registry.Instance) error {
			in.Address += "@" + in.Cluster
			return do(ctx, in)
		}
	}
	return broken{
		calls: map[string]method{"Register": within(d.Register), "FailOver": within(d.FailOver), "Deregister": within(d.Deregister)},
		list: func(ctx context.Context, cluster string) ([]registry.Entry, error) {
			entries, err := d.List(ctx, cluster)
			for i := range entries {
				entries[i].Address, _, _ = strings.Cut(entries[i].Address, "@")
			}
			return entries, err
		},
	}
}

// brokenDetails are broken in weight, zone and metadata.
func brokenDetails() map[string]breakage {
	return map[string]breakage{
		"a driver with whole hundreds for weights": {
			reason: "its registry counts otherwise",
			breaks: changed("Register", func(in *registry.Instance) { in.Weight -= in.Weight % 100 }),
		},
		"a driver that keeps a zone which is not said any more": {
			reason: "where nothing is known, nothing is said",
			breaks: given("Register", func(ctx context.Context, d sound, in registry.Instance) registry.Instance {
				if e, known := find(ctx, d, in); known {
					in.Zone = cmp.Or(in.Zone, e.Zone)
				}
				return in
			}),
		},
		"a driver that adds to the tags": {
			reason: "a proxy goes on to select by the old ones",
			breaks: given("Register", func(ctx context.Context, d sound, in registry.Instance) registry.Instance {
				if e, known := find(ctx, d, in); known && len(e.Tags) > 0 {
					in.Tags = slices.Compact(slices.Sorted(slices.Values(slices.Concat(in.Tags, e.Tags))))
				}
				return in
			}),
		},
		"a driver that adds to the metadata": {
			reason: "what is not said any more must go",
			breaks: given("Register", func(ctx context.Context, d sound, in registry.Instance) registry.Instance {
				if e, known := find(ctx, d, in); known && len(e.Metadata) > 0 {
					maps.Copy(e.Metadata, in.Metadata)
					in.Metadata = e.Metadata
				}
				return in
			}),
		},
		"a driver whose metadata is short": {
			reason: "what is cut off is not what was given",
			breaks: changed("Register", func(in *registry.Instance) {
				in.Metadata = maps.Clone(in.Metadata)
				for key, value := range in.Metadata {
					in.Metadata[key] = value[:min(len(value), 255)]
				}
			}),
		},
		"a driver that keeps the caller's map": {
			reason: "the caller goes on to use it",
			breaks: func(d sound) broken {
				return broken{
					calls: map[string]method{"Register": func(ctx context.Context, in registry.Instance) error {
						d.shared.Store(in.UID, in.Metadata)
						return d.Register(ctx, in)
					}},
					list: func(ctx context.Context, cluster string) ([]registry.Entry, error) {
						entries, err := d.List(ctx, cluster)
						for i := range entries {
							kept, _ := d.shared.Load(entries[i].UID)
							entries[i].Metadata = maps.Clone(kept.(map[string]string))
						}
						return entries, err
					},
				}
			},
			set: listIsTruth,
		},
	}
}

// brokenLists are broken in what List returns.
func brokenLists() map[string]breakage {
	return map[string]breakage{
		"a driver that lists by a prefix of the cluster": {
			reason: "it would remove what another cluster wrote",
			breaks: func(d sound) broken {
				return broken{
					calls: map[string]method{"Register": func(ctx context.Context, in registry.Instance) error {
						d.shared.Store(placeOf(in), in)
						return d.Register(ctx, in)
					}},
					list: func(_ context.Context, cluster string) (entries []registry.Entry, _ error) {
						d.shared.Range(func(_, in any) bool {
							if strings.HasPrefix(in.(registry.Instance).Cluster, cluster) {
								entries = append(entries, registry.Entry{Instance: in.(registry.Instance), State: registry.InService})
							}
							return true
						})
						return entries, nil
					},
				}
			},
		},
		"a driver that hands out its own list": {
			reason: "who changes it changes the registry for all",
			breaks: listing(func(ctx context.Context, d sound, cluster string) ([]registry.Entry, error) {
				if kept, known := d.own.Load(cluster); known {
					return kept.([]registry.Entry), nil
				}
				entries, err := d.List(ctx, cluster)
				d.own.Store(cluster, entries)
				return entries, err
			}),
		},
		"a driver for which an unknown cluster is an error": {
			reason: "a cluster's first start would fail",
			breaks: listing(func(ctx context.Context, d sound, cluster string) ([]registry.Entry, error) {
				entries, err := d.List(ctx, cluster)
				if len(entries) == 0 {
					err = cmp.Or(err, errors.New("404 no such cluster"))
				}
				return entries, err
			}),
		},
		"a driver that lists the first page alone": {
			reason: "the rest is there, and is never removed",
			breaks: listing(func(ctx context.Context, d sound, cluster string) ([]registry.Entry, error) {
				entries, err := d.List(ctx, cluster)
				return entries[:min(len(entries), 100)], err
			}),
		},
		"a driver that panics where it takes something out": {
			reason: "a panic is a failure of the case, not the end of the suite",
			breaks: calling("FailOver", func(context.Context, sound, registry.Instance) error { panic("oh") }),
		},
		"a driver that panics where it removes something": {
			reason: "so is one in what removes the case's entries after it",
			breaks: calling("Deregister", func(ctx context.Context, d sound, in registry.Instance) error {
				if in.Weight > 0 {
					panic("oh")
				}
				return d.Deregister(ctx, in)
			}),
		},
		"a driver that panics": {
			reason: "a panic is a failure of the case, not the end of the suite",
			breaks: listing(func(context.Context, sound, string) ([]registry.Entry, error) { panic("oh") }),
		},
	}
}

// brokenErrors are of drivers whose registry is in trouble.
func brokenErrors() map[string]breakage {
	forbidden := errors.New("403 forbidden")
	unreachable := func(err error) func(*store, *registrytest.Harness) {
		return func(_ *store, h *registrytest.Harness) { h.Unreachable = failing(err) }
	}
	wrongCredentials := func(err error) func(*store, *registrytest.Harness) {
		return func(_ *store, h *registrytest.Harness) { h.WrongCredentials = failing(err) }
	}
	return map[string]breakage{
		"a driver that takes unreachable for terminal": {
			reason: "a restart of the registry would be taken for a wrong configuration",
			set:    unreachable(registry.Terminal(errors.New("connection refused"))),
		},
		"a driver that takes unreachable for not registered": {
			reason: "it can't know that",
			set:    unreachable(registry.NotRegistered(errors.New("connection refused"))),
		},
		"a driver that takes a proxy's page for an acknowledgement": {
			reason: "the page has status 200",
			set:    func(_ *store, h *registrytest.Harness) { h.LoginPage = failing(nil) },
		},
		"a driver that tells its token": {
			reason: "events are read by many",
			set: func(_ *store, h *registrytest.Harness) {
				h.Refusing, h.Secrets = failing(registry.Terminal(errors.New("403 for hunter2"))), []string{"hunter2"}
			},
		},
		"a driver that does not name the credentials": {
			reason: "whoever reads the error looks for a name",
			set:    wrongCredentials(registry.Terminal(forbidden)),
		},
		"a driver that takes wrong credentials for passing": {
			reason: "no error would say so",
			set:    wrongCredentials(registry.FieldError("auth.tokenFile", forbidden)),
		},
		"a driver that retries by itself": {
			reason: "it multiplies the storm that made the registry fail",
			set: func(_ *store, h *registrytest.Harness) {
				h.Failing = func(testing.TB) (registry.Registry, func() int) {
					var attempts atomic.Int64
					return failed(func(context.Context) error {
						attempts.Add(2)
						return errors.New("503 try later")
					}), func() int { return int(attempts.Load()) }
				}
			},
		},
		"a driver that takes a lost answer for a change that was not made": {
			reason: "it lands when the pod has been found to be out",
			set: func(s *store, h *registrytest.Harness) {
				h.LosingAnswers = losing(s, errors.New("connection reset"))
			},
		},
		"a driver that reads all entries before it removes one": {
			reason: "in a large service, the removals of a rollout time out",
			set:    func(s *store, h *registrytest.Harness) { h.Metered = metered(s, 100, 0, 0) },
		},
		"a driver whose removals keep the registry busy": {
			reason: "however small the service is, the registry serves a rollout no faster than that",
			set: func(s *store, h *registrytest.Harness) {
				h.Metered, h.Bare = metered(s, 0, 0, 10*time.Millisecond), func(testing.TB) registrytest.Bare { return bareCalls() }
			},
		},
		"a driver that waits for its registry forever": {
			reason: "its worker is lost for as long as the registry hangs",
			set: func(_ *store, h *registrytest.Harness) {
				h.Stalled = func(t testing.TB) registry.Registry {
					end := make(chan struct{})
					t.Cleanup(func() { close(end) })
					return failed(func(context.Context) error {
						<-end
						return nil
					})
				}
			},
		},
	}
}

// failing makes drivers whose every call fails with err.
func failing(err error) func(testing.TB) registry.Registry {
	return func(testing.TB) registry.Registry { return failed(func(context.Context) error { return err }) }
}

// failed is a plain driver whose every call ends as fault does.
func failed(fault func(context.Context) error) registry.Registry { return bare(sound{fault: fault}) }

// poorHarness is of a driver with the contract's least: no list, no out-of-service state, and no place for anything but the
// mark.
func poorHarness(t *testing.T) registrytest.Harness {
	t.Helper()
	h := newStore(t).plainHarness(func(d sound) registry.Registry {
		return struct{ registry.Registry }{d.brokenBy(func(d sound) broken {
			return broken{calls: map[string]method{
				"Register": func(ctx context.Context, in registry.Instance) error {
					in.Weight, in.Zone, in.Metadata = 0, "", nil
					return d.Register(ctx, in)
				},
				"FailOver": d.Deregister,
			}}
		})}
	})
	h.Lacks[registrytest.OutOfServiceState] = "the poor registry knows no state"
	for _, c := range []registrytest.Capability{registrytest.Weight, registrytest.Zone, registrytest.Metadata} {
		h.Lacks[c] = "the poor registry has no place for it"
	}
	return h
}
