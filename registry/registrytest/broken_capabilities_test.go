package registrytest_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
)

// impatience is how long the suite waits for what will never come. It is longer than shortLease.
const impatience = 4 * time.Second

// brokenRich is a driver of all capabilities with some methods replaced.
type brokenRich struct {
	rich
	register, failOver, probe, heartbeat func(context.Context, registry.Instance) error
	batch                                func(context.Context, []registry.Change) []error
	list                                 func(context.Context, string) ([]registry.Entry, error)
	get                                  func(context.Context, registry.Instance) (registry.State, error)
	stale                                time.Duration
	close                                func() error
}

func (b brokenRich) Register(ctx context.Context, in registry.Instance) error {
	return either(ctx, in, b.register, b.rich.Register)
}

func (b brokenRich) FailOver(ctx context.Context, in registry.Instance) error {
	return either(ctx, in, b.failOver, b.rich.FailOver)
}

func (b brokenRich) Probe(ctx context.Context, in registry.Instance) error {
	return either(ctx, in, b.probe, b.rich.Probe)
}

func (b brokenRich) Heartbeat(ctx context.Context, in registry.Instance) error {
	return either(ctx, in, b.heartbeat, b.rich.Heartbeat)
}

func either(
	ctx context.Context, in registry.Instance, replaced, sound func(context.Context, registry.Instance) error,
) error {
	if replaced == nil {
		return sound(ctx, in)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return replaced(ctx, in)
}

func (b brokenRich) Batch(ctx context.Context, changes []registry.Change) []error {
	if b.batch == nil {
		return b.rich.Batch(ctx, changes)
	}
	return b.batch(ctx, changes)
}

func (b brokenRich) List(ctx context.Context, cluster string) ([]registry.Entry, error) {
	if b.list == nil {
		return b.rich.List(ctx, cluster)
	}
	return b.list(ctx, cluster)
}

func (b brokenRich) Get(ctx context.Context, in registry.Instance) (registry.State, error) {
	if b.get == nil {
		return b.rich.Get(ctx, in)
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	return b.get(ctx, in)
}

func (b brokenRich) Staleness() time.Duration { return b.stale }

func (b brokenRich) Close() error {
	if b.close == nil {
		return b.rich.Close()
	}
	return b.close()
}

// only keeps, of what takes time, what the broken driver is about.
func only(about ...registrytest.Capability) func(*registrytest.Harness) {
	return func(h *registrytest.Harness) {
		const beside = "it is beside the point"
		if !slices.Contains(about, registrytest.ShortLease) {
			h.ShortLease, h.Lacks[registrytest.ShortLease] = nil, beside
		}
		if !slices.Contains(about, registrytest.Restart) {
			h.Restart, h.Lacks[registrytest.Restart] = nil, beside
		}
		for _, c := range []registrytest.Capability{
			registrytest.Stalled, registrytest.Failing, registrytest.Unreachable, registrytest.Refusing,
			registrytest.WrongCredentials,
		} {
			h.Lacks[c] = beside
		}
		h.Stalled, h.Failing, h.Unreachable, h.Refusing, h.WrongCredentials = nil, nil, nil, nil, nil
	}
}

// richly makes the harness of a driver of all capabilities, made anew for each process.
func richly(keep func(*registrytest.Harness), wrap func(rich) registry.Registry) func(*testing.T) registrytest.Harness {
	return func(t *testing.T) registrytest.Harness {
		t.Helper()
		h := overStore(newStore(t), wrap)
		keep(&h)
		return h
	}
}

func brokenCapabilities() map[string]brokenDriver {
	return map[string]brokenDriver{
		"a list that lags longer than it says": {
			reason: "resync would take the old answer for the truth",
			broken: func(t *testing.T) registrytest.Harness {
				s := newStore(t)
				s.lags = time.Minute
				h := overStore(s, func(d rich) registry.Registry { return brokenRich{rich: d} })
				only()(&h)
				h.Truth = process{store: s, lease: longLease}.now
				return h
			},
			want: []string{"ListIsACopy", "ListsOursAmongAThousand"},
		},
		"a probe that agrees to everything": {
			reason: "OpenKruise goes on with a pod that has no traffic",
			broken: richly(only(), func(d rich) registry.Registry {
				return brokenRich{rich: d, probe: func(context.Context, registry.Instance) error { return nil }}
			}),
			want: []string{"ProbeDeniesWhatIsOut"},
		},
		"a probe that forgets the mark": {
			reason: "the next pod at the address is in, this one is not",
			broken: richly(only(), func(d rich) registry.Registry {
				return brokenRich{rich: d, probe: func(ctx context.Context, in registry.Instance) error {
					return d.Probe(ctx, asMarked(ctx, d, in))
				}}
			}),
			want: []string{"ProbeDeniesWhatIsOut"},
		},
		"a probe that never agrees": {
			reason: "the rollout stops",
			broken: richly(only(), func(d rich) registry.Registry {
				return brokenRich{rich: d, probe: func(context.Context, registry.Instance) error { return errors.New("not yet") }}
			}),
			want: []string{"ProbeAgreesInTheEnd", "ProbeDeniesWhatIsOut"},
		},
		"a probe that registers": {
			reason: "it is asked while the pod may be failing over",
			broken: richly(only(), func(d rich) registry.Registry {
				return brokenRich{rich: d, probe: func(ctx context.Context, in registry.Instance) error {
					err := d.Probe(ctx, in)
					if err != nil && in.UID[len(in.UID)-1] == '2' {
						_ = d.Register(ctx, in)
					}
					return err
				}}
			}),
			want: []string{"ProbeChangesNothing"},
		},
		"a heartbeat that renews nothing": {
			reason: "healthy pods leave rotation",
			broken: richly(only(registrytest.ShortLease), func(d rich) registry.Registry {
				return brokenRich{rich: d, heartbeat: func(ctx context.Context, in registry.Instance) error {
					if e, known := find(ctx, d, in); !known || e.UID != in.UID {
						return registry.NotRegistered(errors.New("404"))
					}
					return nil
				}}
			}),
			want: []string{"HeartbeatKeepsEntry", "HeartbeatTakesOver"},
		},
		"a heartbeat that renews only what its process registered, and does not say so": {
			reason: "after a change of the leader no process renews",
			broken: richly(only(registrytest.ShortLease), func(d rich) registry.Registry { return newPossessive(d) }),
			want:   []string{"HeartbeatTakesOver"},
		},
		"a lease that never ends": {
			reason: "what a dead process left stays for ever; so it has nothing to renew either",
			broken: func(t *testing.T) registrytest.Harness {
				h := overStore(newStore(t), asItIs)
				only(registrytest.ShortLease)(&h)
				h.ShortLease = h.Open
				return h
			},
			want: []string{"HeartbeatKeepsEntry", "HeartbeatTakesOver"},
		},
		"a heartbeat that makes what is not there": {
			reason: "it brings back what was deregistered",
			broken: richly(only(), func(d rich) registry.Registry {
				return brokenRich{rich: d, heartbeat: func(ctx context.Context, in registry.Instance) error {
					if e, known := find(ctx, d, in); !known || e.UID == in.UID && e.State == registry.InService {
						return d.Register(ctx, in)
					}
					return d.Heartbeat(ctx, in)
				}}
			}),
			want: []string{"HeartbeatOfUnknown", "HeartbeatRacesWithTheEnd"},
		},
		"a heartbeat that forgets the mark": {
			reason: "a dead pod's beat says that all is well",
			broken: richly(only(), func(d rich) registry.Registry {
				return brokenRich{rich: d, heartbeat: func(ctx context.Context, in registry.Instance) error {
					return d.Heartbeat(ctx, asMarked(ctx, d, in))
				}}
			}),
			want: []string{"HeartbeatOfAnotherUID"},
		},
		"a heartbeat that puts in service": {
			reason: "it comes in the middle of an update",
			broken: richly(only(), func(d rich) registry.Registry {
				return brokenRich{rich: d, heartbeat: func(ctx context.Context, in registry.Instance) error {
					if err := d.Heartbeat(ctx, in); err != nil {
						return err
					}
					if e, known := find(ctx, d, in); known && e.State == registry.OutOfService && e.UID == in.UID {
						return d.Register(ctx, in)
					}
					return nil
				}}
			}),
			want: []string{"HeartbeatKeepsOutOfService", "HeartbeatRacesWithTheEnd"},
		},
		"a heartbeat that fails for what another process registered": {
			reason: "Rollcall does not learn that it has to register again",
			broken: richly(only(), func(d rich) registry.Registry {
				p := newPossessive(d)
				p.foreign = errors.New("403 not your session")
				return p
			}),
			want: []string{"HeartbeatKeepsOutOfService", "HeartbeatOfFormerProcess", "HeartbeatOfUnknown", "HeartbeatOfAnotherUID"},
		},
		"a heartbeat that writes what it has read": {
			reason: "the pod can be taken out in between",
			broken: richly(only(), func(d rich) registry.Registry {
				return brokenRich{rich: d, heartbeat: func(ctx context.Context, in registry.Instance) error {
					if err := d.Heartbeat(ctx, in); err != nil {
						return err
					}
					if e, _ := find(ctx, d, in); e.State == registry.InService && e.UID == in.UID {
						time.Sleep(time.Millisecond)
						return d.Register(ctx, in)
					}
					return nil
				}}
			}),
			want: []string{"HeartbeatRacesWithTheEnd"},
		},
		"a batch that answers once for all": {
			reason: "Rollcall can't tell which change failed",
			broken: batching(func(d rich, ctx context.Context, changes []registry.Change) []error {
				return []error{errors.Join(d.Batch(ctx, changes)...)}
			}),
			want: []string{
				"AnotherRegistrysEntryIsSparedInABatch", "BatchAtItsLimit", "BatchCancelledContext",
				"BatchMakesEachChange", "BatchRefusedChange", "BatchSparesLivePods", "BatchTwice",
				"BatchUnknownState", "ConcurrentBatches", "ConcurrentTakeoverInBatch",
			},
		},
		"a batch that deregisters nothing": {
			reason: "its protocol has another call for that",
			broken: batching(func(d rich, ctx context.Context, changes []registry.Change) []error {
				errs := make([]error, len(changes))
				for i, c := range changes {
					if c.State != registry.Absent || ctx.Err() != nil {
						errs[i] = d.Batch(ctx, changes[i:i+1])[0]
					}
				}
				return errs
			}),
			want: []string{
				"AnotherRegistrysEntryIsSparedInABatch", "BatchAtItsLimit", "BatchMakesEachChange",
				"BatchRefusedChange", "BatchTwice", "ConcurrentBatches",
			},
		},
		"a batch for which absent is an error": {
			reason: "a batch that is sent again never succeeds",
			broken: batching(func(d rich, ctx context.Context, changes []registry.Change) []error {
				errs := d.Batch(ctx, nil)
				for i, c := range changes {
					if _, known := find(ctx, d, c.Instance); !known && c.State == registry.Absent {
						errs = append(errs, cmpErr(ctx.Err(), errors.New("404 no such instance")))
						continue
					}
					errs = append(errs, d.Batch(ctx, changes[i:i+1])...)
				}
				return errs
			}),
			want: []string{"BatchMakesEachChange", "BatchRefusedChange", "BatchTwice"},
		},
		"a batch that loses its last change at the limit": {
			reason: "the limit is one too high",
			broken: batching(func(d rich, ctx context.Context, changes []registry.Change) []error {
				if ctx.Err() == nil && len(changes) == d.BatchLimit() {
					return append(d.Batch(ctx, changes[1:]), nil)
				}
				return d.Batch(ctx, changes)
			}),
			want: []string{"BatchAtItsLimit", "BatchMakesEachChange", "BatchRefusedChange", "BatchTwice", "ConcurrentBatches"},
		},
		"a batch whose limit is none": {
			reason: "Rollcall could never send one",
			broken: richly(only(), func(d rich) registry.Registry { return limitless{d} }),
			want: []string{
				"AnotherRegistrysEntryIsSparedInABatch", "BatchAtItsLimit", "BatchMakesEachChange",
				"BatchRefusedChange", "BatchSparesLivePods", "BatchTwice", "BatchUnknownState", "ConcurrentBatches",
				"ConcurrentTakeoverInBatch",
			},
		},
		"a batch that forgets the mark": {
			reason: "it takes out whatever has the address",
			broken: batching(func(d rich, ctx context.Context, changes []registry.Change) []error {
				changes = slices.Clone(changes)
				for i, c := range changes {
					if c.State != registry.InService && c.Instance.UID != "" {
						changes[i].Instance = asMarked(ctx, d, c.Instance)
					}
				}
				return d.Batch(ctx, changes)
			}),
			want: []string{
				"AnotherRegistrysEntryIsSparedInABatch", "BatchSparesLivePods", "ConcurrentTakeoverInBatch",
			},
		},
		"a batch that is refused as a whole": {
			reason: "the others must be told apart from the one that is wrong",
			broken: batching(func(d rich, ctx context.Context, changes []registry.Change) []error {
				for _, c := range changes {
					if c.Instance.Port <= 1<<16 || ctx.Err() != nil {
						continue
					}
					errs := make([]error, len(changes))
					for i := range errs {
						errs[i] = registry.Terminal(errors.New("400 bad port"))
					}
					return errs
				}
				return d.Batch(ctx, changes)
			}),
			want: []string{"BatchRefusedChange"},
		},
		"a batch with the errors in another order": {
			reason: "the wrong instance is warned of",
			broken: batching(func(d rich, ctx context.Context, changes []registry.Change) []error {
				errs := make([]error, len(changes))
				for i, c := range changes {
					if c.Instance.Port > 1<<16 && ctx.Err() == nil {
						errs[len(changes)-1-i] = registry.Terminal(errors.New("400 bad port"))
						continue
					}
					if err := c.Make(ctx, d); err != nil {
						errs[i] = err
					}
				}
				return errs
			}),
			want: []string{"BatchRefusedChange"},
		},
		"a batch that takes any other state for absent": {
			reason: "it is the last one that it asks for",
			broken: batching(func(d rich, ctx context.Context, changes []registry.Change) []error {
				changes = slices.Clone(changes)
				for i, c := range changes {
					if c.State != registry.InService && c.State != registry.OutOfService {
						changes[i].State = registry.Absent
					}
				}
				return d.Batch(ctx, changes)
			}),
			want: []string{"BatchUnknownState"},
		},
		"a batch that ignores its context": {
			reason: "its worker is lost for as long as the registry hangs",
			broken: batching(func(d rich, ctx context.Context, changes []registry.Change) []error {
				return d.Batch(context.WithoutCancel(ctx), changes)
			}),
			want: []string{"BatchCancelledContext", "CancelledContext"},
		},
		"a batch that bears no other": {
			reason: "a rollout makes many at once",
			broken: oneBatchAtATime,
			want:   []string{"ConcurrentBatches"},
		},
		"a batch that acts after it has looked": {
			reason: "the next pod can have registered in between",
			broken: batching(func(d rich, ctx context.Context, changes []registry.Change) []error {
				errs := make([]error, len(changes))
				for i, c := range changes {
					if e, known := find(ctx, d, c.Instance); known && c.Instance.Owns(e.UID, e.Registry) && c.State != registry.InService {
						time.Sleep(time.Millisecond)
						c.Instance = asMarked(ctx, d, c.Instance)
					}
					errs[i] = c.Make(ctx, d)
				}
				return errs
			}),
			want: []string{"ConcurrentTakeoverInBatch"},
		},
		"a Close that removes what its process registered": {
			reason: "a certificate is renewed, and all pods leave rotation",
			broken: richly(only(), func(d rich) registry.Registry { return newTidy(d) }),
			want:   []string{"CloseLeavesEntries", "CloseSparesOtherDrivers"},
		},
		"a Close that closes what others use": {
			reason: "the next driver works already",
			broken: closesForAll,
			want:   []string{"CloseSparesOtherDrivers"},
		},
		"a Close that fails": {
			reason: "the manager would warn at every rotation",
			broken: richly(only(), func(d rich) registry.Registry {
				return brokenRich{rich: d, close: func() error { return errors.New("closed already") }}
			}),
			want: []string{"CloseLeavesEntries", "CloseSparesOtherDrivers"},
		},
		"a driver that takes a restart for a wrong configuration": {
			reason: "every pod would wait much longer",
			broken: func(t *testing.T) registrytest.Harness {
				s := newStore(t)
				s.wrong = registry.Terminal(errors.New("connection reset"))
				h := overStore(s, asItIs)
				only(registrytest.Restart)(&h)
				return h
			},
			want: []string{"RestartIsOutlived"},
		},
		"a driver that does not find back": {
			reason: "Rollcall would have to be restarted with its registry",
			broken: richly(only(registrytest.Restart), func(d rich) registry.Registry { return &sulking{rich: d} }),
			want:   []string{"RestartIsOutlived"},
		},
		"a registry that is said to be durable and is not": {
			reason: "no process writes again what was acknowledged",
			broken: func(t *testing.T) registrytest.Harness {
				s := newStore(t)
				s.volatile = true
				h := overStore(s, asItIs)
				only(registrytest.Restart)(&h)
				return h
			},
			want: []string{"GetAfterRestart", "RestartIsOutlived", "RestartKeepsEntries"},
		},
		"a heartbeat that does not notice a restart": {
			reason: "the pods stay out of rotation for ever",
			broken: func(t *testing.T) registrytest.Harness {
				s := newStore(t)
				s.volatile = true
				h := overStore(s, func(d rich) registry.Registry { return newTrusting(d) })
				only(registrytest.Restart)(&h)
				h.Lacks[registrytest.Durable] = "it forgets"
				return h
			},
			want: []string{"HeartbeatOfAnotherUID", "HeartbeatOfUnknown", "RestartIsNoticedByHeartbeat"},
		},
	}
}

func batching(
	batch func(d rich, ctx context.Context, changes []registry.Change) []error,
) func(*testing.T) registrytest.Harness {
	return richly(only(), func(d rich) registry.Registry {
		return brokenRich{rich: d, batch: func(ctx context.Context, changes []registry.Change) []error {
			return batch(d, ctx, changes)
		}}
	})
}

func cmpErr(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

// limitless has a limit that no batch keeps.
type limitless struct{ rich }

func (limitless) BatchLimit() int { return 0 }

// mine is what a process registered.
type mine struct {
	mu   sync.Mutex
	uids map[string]registry.Instance
}

func (m *mine) add(in registry.Instance) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.uids == nil {
		m.uids = map[string]registry.Instance{}
	}
	m.uids[in.UID] = in
}

func (m *mine) has(in registry.Instance) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, has := m.uids[in.UID]
	return has
}

// possessive renews only what it has registered itself. For anything else that is there it answers foreign.
type possessive struct {
	rich
	mine    mine
	foreign error
}

func newPossessive(d rich) *possessive { return &possessive{rich: d} }

func (p *possessive) Register(ctx context.Context, in registry.Instance) error {
	p.mine.add(in)
	return p.rich.Register(ctx, in)
}

func (p *possessive) Heartbeat(ctx context.Context, in registry.Instance) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if p.mine.has(in) {
		return p.rich.Heartbeat(ctx, in)
	}
	if p.foreign != nil {
		return p.foreign
	}
	if e, known := find(ctx, p.rich, in); !known || !in.Owns(e.UID, e.Registry) {
		return registry.NotRegistered(errors.New("404"))
	}
	return nil
}

// trusting believes that what it registered is there.
type trusting struct {
	rich
	mine mine
}

func newTrusting(d rich) *trusting { return &trusting{rich: d} }

func (p *trusting) Register(ctx context.Context, in registry.Instance) error {
	p.mine.add(in)
	return p.rich.Register(ctx, in)
}

func (p *trusting) Heartbeat(ctx context.Context, in registry.Instance) error {
	err := p.rich.Heartbeat(ctx, in)
	if registry.IsNotRegistered(err) && p.mine.has(in) {
		return nil
	}
	return err
}

// tidy removes, when it is closed, what it has registered.
type tidy struct {
	rich
	mine mine
}

func newTidy(d rich) *tidy { return &tidy{rich: d} }

func (p *tidy) Register(ctx context.Context, in registry.Instance) error {
	p.mine.add(in)
	return p.rich.Register(ctx, in)
}

func (p *tidy) Close() error {
	p.mine.mu.Lock()
	defer p.mine.mu.Unlock()
	for _, in := range p.mine.uids {
		_ = p.Deregister(context.Background(), in)
	}
	return nil
}

// sulking does not work any more once a call has failed.
type sulking struct {
	rich
	mu    sync.Mutex
	upset error
}

func (s *sulking) Register(ctx context.Context, in registry.Instance) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.upset != nil {
		return s.upset
	}
	err := s.rich.Register(ctx, in)
	if ctx.Err() == nil {
		s.upset = err
	}
	return err
}

// oneBatchAtATime refuses a batch while another is under way.
func oneBatchAtATime(t *testing.T) registrytest.Harness {
	t.Helper()
	var mu sync.Mutex
	return batching(func(d rich, ctx context.Context, changes []registry.Change) []error {
		errs := make([]error, len(changes))
		if !mu.TryLock() {
			for i := range errs {
				errs[i] = errors.New("409 conflict")
			}
			return errs
		}
		defer mu.Unlock()
		time.Sleep(time.Millisecond)
		return d.Batch(ctx, changes)
	})(t)
}

// closesForAll ends, with one driver, those that are open at the time.
func closesForAll(t *testing.T) registrytest.Harness {
	t.Helper()
	var mu sync.Mutex
	var closed int
	generation := func(add int) int {
		mu.Lock()
		defer mu.Unlock()
		closed += add
		return closed
	}
	return richly(only(), func(d rich) registry.Registry {
		born := generation(0)
		return brokenRich{
			rich: d,
			register: func(ctx context.Context, in registry.Instance) error {
				if generation(0) != born {
					return errors.New("use of closed connection")
				}
				return d.Register(ctx, in)
			},
			close: func() error {
				generation(1)
				return nil
			},
		}
	})(t)
}
