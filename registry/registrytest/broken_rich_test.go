package registrytest_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
)

// seeing replaces which foreign entries at an instance's place Get reports, and List reports none.
func seeing(sees func(e registry.Entry, in registry.Instance, id string) bool) func(sound) broken {
	return func(d sound) broken {
		return broken{list: d.now, get: func(ctx context.Context, in registry.Instance) (state registry.State, err error) {
			state, err = d.Get(ctx, in)
			if state == registry.Foreign {
				state = registry.Absent
			}
			d.set(func() {
				for id, e := range d.foreign {
					if err == nil && driverkit.GivesInstance(e, in) && sees(e, in, id) {
						state = registry.Foreign
					}
				}
			})
			return state, err
		}}
	}
}

// brokenGets are broken in what Get answers.
func brokenGets() map[string]breakage {
	return map[string]breakage{
		"a Get that reads a cache": {
			reason: "the answer is from before the call whose outcome is in doubt",
			breaks: getting(func(ctx context.Context, d sound, in registry.Instance) (registry.State, error) {
				if cached, known := d.shared.Load(keyOf(in)); known {
					return cached.(registry.State), nil
				}
				state, err := d.Get(ctx, in)
				d.shared.Store(keyOf(in), state)
				return state, err
			}),
		},
		"a Get that is behind now and then": {reason: "a replica answers, which is seldom behind", breaks: getsFromAReplica},
		"a Get that forgets the mark": {
			reason: "the next pod at the address is in, and holds this one's release up forever",
			breaks: getting(func(ctx context.Context, d sound, in registry.Instance) (registry.State, error) {
				return d.Get(ctx, asMarked(ctx, d, in))
			}),
		},
		"a Get that forgets the cluster": {
			reason: "what another cluster wrote is not what this one did",
			breaks: getting(func(ctx context.Context, d sound, in registry.Instance) (registry.State, error) {
				in.Cluster = strings.TrimSuffix(in.Cluster, "-other")
				return d.Get(ctx, in)
			}),
		},
		"a Get that knows no out of service": {
			reason: "it says of what is out that it is in, and nothing is released any more",
			breaks: getting(func(ctx context.Context, d sound, in registry.Instance) (registry.State, error) {
				state, err := d.Get(ctx, in)
				if state == registry.OutOfService {
					state = registry.InService
				}
				return state, err
			}),
		},
		"a Get that takes a state it does not know for absent": {
			reason: "a pod with a weight would be released while clients are sent to it",
			breaks: getting(func(ctx context.Context, d sound, in registry.Instance) (registry.State, error) {
				if e, _ := find(ctx, d, in); e.Zone == "b" {
					return registry.Absent, nil
				}
				return d.Get(ctx, in)
			}),
		},
		"a Get that does not escape": {
			reason: "it asks for another entry",
			breaks: getting(func(ctx context.Context, d sound, in registry.Instance) (registry.State, error) {
				in.Service = strings.NewReplacer("%20", " ", "+", " ").Replace(in.Service)
				return d.Get(ctx, in)
			}),
		},
		"a Get of a registry that takes no path with such a name": {
			reason: "the entry is written in a body, and read by a path",
			breaks: getting(func(ctx context.Context, d sound, in registry.Instance) (registry.State, error) {
				if strings.ContainsFunc(in.Service, unicode.IsControl) {
					return "", errors.New("400 Bad Request")
				}
				return d.Get(ctx, in)
			}),
		},
		"a Get that brings back what is not there": {
			reason: "it is asked while the pod is on its way out",
			breaks: getting(func(ctx context.Context, d sound, in registry.Instance) (registry.State, error) {
				state, err := d.Get(ctx, in)
				if state == registry.Absent && strings.HasSuffix(in.UID, "-3") {
					_ = d.Register(ctx, in)
				}
				return state, err
			}),
		},
		"a Get that mixes up those who ask at once": {
			reason: "one pod is released by another's answer",
			breaks: getting(func(ctx context.Context, d sound, in registry.Instance) (registry.State, error) {
				d.own.Store("asked", in)
				time.Sleep(time.Millisecond)
				asked, _ := d.own.Load("asked")
				return d.Get(ctx, asked.(registry.Instance))
			}),
		},
		"a Get that takes unreachable for absent": {
			reason: "a registry that is down would let every pod go",
			about:  registrytest.Unreachable,
			breaks: getting(func(ctx context.Context, d sound, in registry.Instance) (registry.State, error) {
				if d.fault != nil {
					return registry.Absent, nil
				}
				return d.Get(ctx, in)
			}),
		},
		"a Get that says absent after a restart": {
			reason: "the registry reads back what it has kept only when it is asked for the list",
			about:  registrytest.Restart,
			breaks: getting(func(ctx context.Context, d sound, in registry.Instance) (registry.State, error) {
				state, err := d.Get(ctx, in)
				if _, restarted := d.shared.Load("restarted"); err == nil && restarted {
					state = registry.Absent
				}
				return state, err
			}),
			set: func(s *store, h *registrytest.Harness) {
				h.Restart = func(t testing.TB) {
					s.restart(t)
					s.shared.Store("restarted", true)
					t.Cleanup(func() { s.shared.Delete("restarted") })
				}
			},
		},
		"a driver that sees only its own": {
			reason: "the application's own entry stays in service",
			breaks: func(d sound) broken {
				return broken{list: d.now, get: func(ctx context.Context, in registry.Instance) (registry.State, error) {
					state, err := d.Get(ctx, in)
					if state == registry.Foreign {
						state = registry.Absent
					}
					return state, err
				}}
			},
		},
		"a driver that compares addresses as text": {
			reason: "Spring Cloud Alibaba writes IPv6 in brackets",
			breaks: seeing(func(e registry.Entry, in registry.Instance, id string) bool {
				return e.Cluster == in.Cluster || id == "app "+placeOf(in)
			}),
		},
		"a driver that takes every entry with a tag for its own": {
			reason: "after a change of an option no call removes it",
			breaks: seeing(func(e registry.Entry, _ registry.Instance, _ string) bool { return e.UID == "" }),
		},
		"a driver that takes another cluster's entries for foreign": {
			reason: "pods wait for what is that cluster's to remove",
			breaks: seeing(func(registry.Entry, registry.Instance, string) bool { return true }),
		},
		"a driver that takes the service alone for the pod": {
			reason: "what others run under the name holds up every pod",
			breaks: getting(func(ctx context.Context, d sound, in registry.Instance) (registry.State, error) {
				entries, err := d.List(ctx, in.Cluster)
				if slices.ContainsFunc(entries, func(e registry.Entry) bool {
					return e.State == registry.Foreign && e.Service == in.Service
				}) {
					return registry.Foreign, err
				}
				return d.Get(ctx, in)
			}),
		},
	}
}

// getsFromAReplica answers, when it was asked for an instance many times, once as the time before.
func getsFromAReplica(d sound) broken {
	type history struct {
		mu    sync.Mutex
		asked int
		last  registry.State
	}
	const seldom = 30
	return broken{get: func(ctx context.Context, in registry.Instance) (registry.State, error) {
		state, err := d.Get(ctx, in)
		kept, _ := d.shared.LoadOrStore(keyOf(in), &history{})
		h := kept.(*history)
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.asked++; h.asked == seldom {
			return h.last, err
		}
		h.last = state
		return state, err
	}}
}

// brokenProbes are broken in what Probe agrees to, or in how far List lags.
func brokenProbes() map[string]breakage {
	return map[string]breakage{
		"a probe that forgets the mark": {reason: "the next pod at the address is in, this one is not", breaks: given("Probe", asMarked)},
		"a probe that never agrees": {
			reason: "the rollout stops",
			breaks: calling("Probe", func(context.Context, sound, registry.Instance) error { return errors.New("not yet") }),
		},
		"a probe that registers": {
			reason: "it is asked while the pod may be failing over",
			breaks: calling("Probe", func(ctx context.Context, d sound, in registry.Instance) error {
				err := d.Probe(ctx, in)
				if err != nil && strings.HasSuffix(in.UID, "2") {
					_ = d.Register(ctx, in)
				}
				return err
			}),
		},
	}
}

// brokenHeartbeats are broken in what Heartbeat renews, and what it says of that.
func brokenHeartbeats() map[string]breakage {
	notRegistered := registry.NotRegistered(errors.New("404"))
	// ifRemembered renews only what its process has registered, and answers of all else that is there.
	ifRemembered := func(answer error) func(sound) broken {
		return func(d sound) broken {
			return broken{calls: map[string]method{
				"Register": d.registerAndRemember,
				"Heartbeat": func(ctx context.Context, in registry.Instance) error {
					if d.remembers(in) {
						return d.Heartbeat(ctx, in)
					}
					if e, known := find(ctx, d, in); answer == nil && (!known || !in.Owns(e.UID, e.Registry)) {
						return notRegistered
					}
					return answer
				},
			}}
		}
	}
	return map[string]breakage{
		"a heartbeat that renews nothing": {
			reason: "healthy pods leave rotation",
			about:  registrytest.ShortLease,
			breaks: calling("Heartbeat", func(ctx context.Context, d sound, in registry.Instance) error {
				if e, known := find(ctx, d, in); !known || e.UID != in.UID {
					return notRegistered
				}
				return nil
			}),
		},
		"a heartbeat that renews only what its process registered, and does not say so": {
			reason: "after a change of the leader no process renews",
			about:  registrytest.ShortLease,
			breaks: ifRemembered(nil),
		},
		"a heartbeat that fails for what another process registered": {
			reason: "Rollcall does not learn that it has to register again",
			breaks: ifRemembered(errors.New("403 not your session")),
		},
		"a lease that never ends": {
			reason: "what a dead process left stays forever; so it has nothing to renew either",
			about:  registrytest.ShortLease,
			set:    func(_ *store, h *registrytest.Harness) { h.ShortLease = h.Open },
		},
		"a heartbeat that makes what is not there": {
			reason: "it brings back what was deregistered",
			breaks: calling("Heartbeat", func(ctx context.Context, d sound, in registry.Instance) error {
				if e, known := find(ctx, d, in); !known || e.UID == in.UID && e.State == registry.InService {
					return d.Register(ctx, in)
				}
				return d.Heartbeat(ctx, in)
			}),
		},
		"a heartbeat that forgets the mark": {reason: "a dead pod's beat says that all is well", breaks: given("Heartbeat", asMarked)},
		"a heartbeat that puts in service": {
			reason: "it comes in the middle of an update",
			breaks: calling("Heartbeat", func(ctx context.Context, d sound, in registry.Instance) error {
				err := d.Heartbeat(ctx, in)
				if e, known := find(ctx, d, in); err == nil && known && e.State == registry.OutOfService && e.UID == in.UID {
					return d.Register(ctx, in)
				}
				return err
			}),
		},
		"a heartbeat that writes what it has read": {
			reason: "the pod can be taken out in between",
			breaks: calling("Heartbeat", func(ctx context.Context, d sound, in registry.Instance) error {
				err := d.Heartbeat(ctx, in)
				if e, _ := find(ctx, d, in); err == nil && e.State == registry.InService && e.UID == in.UID {
					time.Sleep(time.Millisecond)
					return d.Register(ctx, in)
				}
				return err
			}),
		},
		"a heartbeat that does not notice a restart": {
			reason: "the pods stay out of rotation forever",
			about:  registrytest.Restart,
			breaks: func(d sound) broken {
				return broken{calls: map[string]method{
					"Register": d.registerAndRemember,
					"Heartbeat": func(ctx context.Context, in registry.Instance) error {
						err := d.Heartbeat(ctx, in)
						if registry.CodeOf(err) == registry.CodeNotRegistered && d.remembers(in) {
							return nil
						}
						return err
					},
				}}
			},
			set: func(s *store, h *registrytest.Harness) {
				s.volatile, h.Lacks[registrytest.Durable] = true, "it forgets"
			},
		},
	}
}

// brokenBatches are broken in what Batch makes, and what it says of that.
func brokenBatches() map[string]breakage {
	// eachAs makes each change as the function does.
	eachAs := func(change func(ctx context.Context, d sound, c registry.Change) error) func(sound) broken {
		return batching(func(ctx context.Context, d sound, changes []registry.Change) []error {
			errs := make([]error, len(changes))
			for i, c := range changes {
				if errs[i] = ctx.Err(); errs[i] == nil {
					errs[i] = change(ctx, d, c)
				}
			}
			return errs
		})
	}
	badPort := func(c registry.Change) bool { return c.Instance.Port > 1<<16 }
	errBadPort := registry.Terminal(errors.New("400 bad port"))
	return map[string]breakage{
		"a batch that answers once for all": {
			reason: "Rollcall can't tell which change failed",
			breaks: batching(func(ctx context.Context, d sound, changes []registry.Change) []error {
				return []error{errors.Join(d.Batch(ctx, changes)...)}
			}),
		},
		"a batch that deregisters nothing": {
			reason: "its protocol has another call for that",
			breaks: eachAs(func(ctx context.Context, d sound, c registry.Change) error {
				if c.State == registry.Absent {
					return nil
				}
				return c.Make(ctx, d)
			}),
		},
		"a batch for which absent is an error": {
			reason: "a batch that is sent again never succeeds",
			breaks: eachAs(func(ctx context.Context, d sound, c registry.Change) error {
				if _, known := find(ctx, d, c.Instance); !known && c.State == registry.Absent {
					return errors.New("404 no such instance")
				}
				return c.Make(ctx, d)
			}),
		},
		"a batch that loses its last change at the limit": {
			reason: "the limit is one too high",
			breaks: batching(func(ctx context.Context, d sound, changes []registry.Change) []error {
				if ctx.Err() == nil && len(changes) == d.BatchLimit() {
					return append(d.Batch(ctx, changes[1:]), nil)
				}
				return d.Batch(ctx, changes)
			}),
		},
		"a batch whose limit is none": {reason: "Rollcall could never send one", breaks: func(sound) broken { return broken{limit: -1} }},
		"a batch that forgets the mark": {
			reason: "it takes out whatever has the address",
			breaks: eachAs(func(ctx context.Context, d sound, c registry.Change) error {
				if c.State != registry.InService && c.Instance.UID != "" {
					c.Instance = asMarked(ctx, d, c.Instance)
				}
				return c.Make(ctx, d)
			}),
		},
		"a batch with the errors in another order": {
			reason: "the wrong instance is warned of",
			breaks: batching(func(ctx context.Context, d sound, changes []registry.Change) []error {
				wrong := slices.IndexFunc(changes, badPort)
				if wrong < 0 {
					return d.Batch(ctx, changes)
				}
				errs := d.Batch(ctx, slices.Delete(slices.Clone(changes), wrong, wrong+1))
				return slices.Insert(errs, len(errs)-wrong, errBadPort)
			}),
		},
		"a batch that takes any other state for absent": {
			reason: "it is the last one that it asks for",
			breaks: eachAs(func(ctx context.Context, d sound, c registry.Change) error {
				if c.State != registry.InService && c.State != registry.OutOfService {
					c.State = registry.Absent
				}
				return c.Make(ctx, d)
			}),
		},
		"a batch that ignores its context": {
			reason: "its worker is lost for as long as the registry hangs",
			breaks: batching(func(ctx context.Context, d sound, changes []registry.Change) []error {
				return d.Batch(context.WithoutCancel(ctx), changes)
			}),
		},
		"a batch that bears no other": {
			reason: "a rollout makes many at once",
			breaks: batching(func(ctx context.Context, d sound, changes []registry.Change) []error {
				if _, busy := d.shared.LoadOrStore("busy", true); busy {
					return slices.Repeat([]error{errors.New("409 conflict")}, len(changes))
				}
				defer d.shared.Delete("busy")
				time.Sleep(time.Millisecond)
				return d.Batch(ctx, changes)
			}),
		},
		"a batch that acts after it has looked": {
			reason: "the next pod can have registered in between",
			breaks: eachAs(func(ctx context.Context, d sound, c registry.Change) error {
				if e, known := find(ctx, d, c.Instance); known && c.Instance.Owns(e.UID, e.Registry) && c.State != registry.InService {
					time.Sleep(time.Millisecond)
					c.Instance = asMarked(ctx, d, c.Instance)
				}
				return c.Make(ctx, d)
			}),
		},
	}
}

// brokenCloses are broken in what ends with a driver.
func brokenCloses() map[string]breakage {
	return map[string]breakage{
		"a Close that removes what its process registered": {
			reason: "a certificate is renewed, and all pods leave rotation",
			breaks: func(d sound) broken {
				return broken{
					calls: map[string]method{"Register": d.registerAndRemember},
					close: func() error {
						d.own.Range(func(_, in any) bool { return d.Deregister(context.Background(), in.(registry.Instance)) == nil })
						return nil
					},
				}
			},
		},
		"a Close that closes what others use": {
			reason: "the next driver works already",
			breaks: func(d sound) broken {
				end, _ := d.shared.LoadOrStore("connection", new(sync.Map))
				return broken{
					calls: map[string]method{"Register": func(ctx context.Context, in registry.Instance) error {
						if _, ended := end.(*sync.Map).Load("ended"); ended {
							return errors.New("use of closed connection")
						}
						return d.Register(ctx, in)
					}},
					close: func() error {
						end.(*sync.Map).Store("ended", true)
						d.shared.Delete("connection")
						return nil
					},
				}
			},
		},
		"a Close that fails": {
			reason: "the manager would warn at every rotation",
			breaks: func(sound) broken { return broken{close: func() error { return errors.New("closed already") }} },
		},
		"a driver that panics where it is closed": {
			reason: "a panic after the case is a failure of it too",
			breaks: func(d sound) broken {
				var zoned atomic.Bool
				return broken{
					calls: map[string]method{"Register": func(ctx context.Context, in registry.Instance) error {
						zoned.Store(zoned.Load() || in.Zone != "")
						return d.Register(ctx, in)
					}},
					close: func() error {
						if zoned.Load() {
							panic("oh")
						}
						return nil
					},
				}
			},
		},
	}
}

// brokenRestarts are broken in what they make of a restart.
func brokenRestarts() map[string]breakage {
	return map[string]breakage{
		"a driver that takes a restart for a wrong configuration": {
			reason: "every pod would wait much longer",
			about:  registrytest.Restart,
			set:    func(s *store, _ *registrytest.Harness) { s.wrong = registry.Terminal(errors.New("connection reset")) },
		},
		"a driver that does not find back": {
			reason: "Rollcall would have to be restarted with its registry",
			about:  registrytest.Restart,
			breaks: calling("Register", func(ctx context.Context, d sound, in registry.Instance) error {
				if upset, is := d.own.Load("upset"); is {
					return upset.(error)
				}
				err := d.Register(ctx, in)
				if err != nil && ctx.Err() == nil {
					d.own.Store("upset", err)
				}
				return err
			}),
		},
		"a registry that is said to be durable and is not": {
			reason: "no process writes again what was acknowledged",
			about:  registrytest.Restart,
			set:    func(s *store, _ *registrytest.Harness) { s.volatile = true },
		},
	}
}

// brokenApplications are broken in how they steer the entries of applications.
func brokenApplications() map[string]breakage {
	return map[string]breakage{
		"a driver that reads all entries before it takes out an application's": {
			reason: "the cost of a rollout grows with the square of the service",
			set:    func(s *store, h *registrytest.Harness) { h.Metered = metered(s, 0, 100, 0) },
		},
		"a driver that takes an application's entry out until it is renewed": {
			reason: "the client's next heartbeat puts it back",
			breaks: calling("AppFailOver", func(_ context.Context, d sound, in registry.Instance) error {
				for _, app := range d.apps.At(in) {
					app.TakeOut()
				}
				return nil
			}),
		},
		"a driver that writes the application's entry anew": {
			reason: "what the application had registered besides is lost",
			breaks: calling("AppRegister", func(ctx context.Context, d sound, in registry.Instance) error {
				for _, app := range d.apps.At(in) {
					app.At = in
					app.Register()
				}
				return steering{d}.Register(ctx, in)
			}),
		},
		"a driver that makes the application's entry": {
			reason: "it is still there when the application has gone",
			breaks: calling("AppRegister", func(ctx context.Context, d sound, in registry.Instance) error {
				if len(d.apps.At(in)) == 0 {
					d.app(nil, in).Register()
				}
				return steering{d}.Register(ctx, in)
			}),
		},
		"a driver that does not say where it looked": {
			reason: "whether the name or the port is wrong is left to guess",
			breaks: calling("AppRegister", func(ctx context.Context, d sound, in registry.Instance) error {
				err := steering{d}.Register(ctx, in)
				if registry.CodeOf(err) == registry.CodeNotRegistered {
					err = registry.NotRegistered(errors.New("404"))
				}
				return err
			}),
		},
		"a driver that does not say where else the application is": {
			reason: "whether it has not come or has another name is left to guess",
			breaks: calling("AppRegister", func(ctx context.Context, d sound, in registry.Instance) error {
				err := steering{d}.Register(ctx, in)
				if len(registry.OtherNamesOf(err)) > 0 {
					err = errors.Unwrap(err)
				}
				return err
			}),
		},
		"a driver that keeps to itself that there are two": {
			reason: "what a dead container left behind is steered forever, and no one looks",
			breaks: calling("AppRegister", func(ctx context.Context, d sound, in registry.Instance) error {
				if err := (steering{d}).Register(ctx, in); registry.CodeOf(err) != registry.CodeSeveralEntries {
					return err
				}
				return nil
			}),
		},
		"a driver that takes out whatever has the address": {
			reason: "the pod's other ports serve other clients",
			breaks: calling("AppFailOver", func(ctx context.Context, d sound, in registry.Instance) error {
				other := in
				other.Port++
				return cmp.Or(steering{d}.FailOver(ctx, in), steering{d}.FailOver(ctx, other))
			}),
		},
		"a driver that takes out the first entry that it finds": {
			reason: "the second is given to clients",
			breaks: calling("AppFailOver", func(ctx context.Context, d sound, in registry.Instance) error {
				if all := d.apps.At(in); len(all) > 1 {
					all[0].TakeOut()
					return nil
				}
				return steering{d}.FailOver(ctx, in)
			}),
		},
		"a driver that leaves the application's place out": {
			reason: "no pod at the address is given to clients any more",
			breaks: calling("AppDeregister", func(ctx context.Context, d sound, in registry.Instance) error {
				return steering{d}.FailOver(ctx, in)
			}),
		},
	}
}

// everywhere knows no places: what it has of a name is in each.
type everywhere struct{ placed }

func (d everywhere) in(in registry.Instance) registry.Instance {
	in.Place = ""
	return in
}

func (d everywhere) Register(ctx context.Context, in registry.Instance) error {
	return d.Backend.Register(ctx, d.in(in))
}

func (d everywhere) FailOver(ctx context.Context, in registry.Instance) error {
	return d.Backend.FailOver(ctx, d.in(in))
}

func (d everywhere) Deregister(ctx context.Context, in registry.Instance) error {
	return d.Backend.Deregister(ctx, d.in(in))
}

func (d everywhere) ListPlace(ctx context.Context, cluster, place string) ([]registry.Entry, error) {
	all, err := d.List(ctx, cluster)
	for i := range all {
		all[i].Place = place
	}
	return all, err
}

// lastSlash takes all but what is behind the last slash for the place.
type lastSlash struct{ placed }

func (d lastSlash) ListPlace(ctx context.Context, cluster, place string) ([]registry.Entry, error) {
	all, err := d.placed.ListPlace(ctx, cluster, place)
	return slices.DeleteFunc(all, func(e registry.Entry) bool { return strings.Contains(e.Service, "/") }), err
}

// lenient takes a place that is refused for an empty one.
type lenient struct{ placed }

func (d lenient) ListPlace(ctx context.Context, cluster, place string) ([]registry.Entry, error) {
	all, err := d.placed.ListPlace(ctx, cluster, place)
	if registry.CodeOf(err) == registry.CodeTerminal {
		return nil, nil
	}
	return all, err
}

func brokenPlaces() map[string]breakage {
	with := func(wrap func(placed) registrytest.Placed) func(*store, *registrytest.Harness) {
		return func(_ *store, h *registrytest.Harness) {
			sound := h.Placed
			h.Placed = func(t testing.TB, cluster string) (registrytest.Placed, [2]string) {
				d, places := sound(t, cluster)
				return wrap(d.(placed)), places
			}
			refusing := h.RefusedPlace
			h.RefusedPlace = func(t testing.TB, cluster string) (registrytest.Placed, string) {
				d, place := refusing(t, cluster)
				return wrap(d.(placed)), place
			}
		}
	}
	return map[string]breakage{
		"a driver that knows no places": {
			reason: "a pod is given to clients of another namespace",
			set:    with(func(d placed) registrytest.Placed { return everywhere{d} }),
		},
		"a driver that takes a refused place for an empty one": {
			reason: "its pods count as lost",
			set:    with(func(d placed) registrytest.Placed { return lenient{d} }),
		},
		"a driver that takes a name for a place": {
			reason: "the pod is not compared",
			set:    with(func(d placed) registrytest.Placed { return lastSlash{d} }),
		},
	}
}
