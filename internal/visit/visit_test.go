package visit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appspub "github.com/openkruise/kruise-api/apps/pub"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/memory"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/observe"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/internal/waiting"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

const (
	preNormal = "example.com/pre-normal"
	preDelete = "example.com/pre-delete"
)

// room is a pod that belongs to the registry "new" and was in "old", an API server, and a journal of calls and writes in their order.
type room struct {
	t       *testing.T
	facts   *observe.Facts
	visitor *Visitor
	faults  map[string]error // by registry, of each call
	// registries are by name.
	registries map[string]*fakeregistry.Registry

	mu      sync.Mutex
	journal []string
	refused error // the API server's answer to writes
}

var errDown = errors.New("connection refused")

func newRoom(t *testing.T, state appspub.LifecycleStateType) *room {
	t.Helper()
	r := &room{t: t, faults: map[string]error{}, registries: map[string]*fakeregistry.Registry{}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-1", UID: "1", Labels: map[string]string{appspub.LifecycleStateKey: string(state)},
		},
		Status: corev1.PodStatus{PodIP: "10.0.0.1", Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	if state == appspub.LifecycleStatePreparingDelete {
		pod.Finalizers = []string{preDelete}
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: pod.Namespace}}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, clusterstate.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	api := clusterstate.CacheThrough(interceptor.NewClient(
		fake.NewClientBuilder().WithScheme(scheme).WithObjects(pod, namespace).Build(), interceptor.Funcs{Patch: r.patch}))
	clock, id := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0)), lifecycle.PodID{
		NamespacedName: types.NamespacedName{Namespace: "shop", Name: "web-1"}, UID: "1",
	}
	r.visitor = &Visitor{
		Client: api, State: clusterstate.New(api, clusterstate.PodsThrough(api), nil), Releases: metrics.NewReleaseMetrics(prometheus.NewRegistry()),
		Clock: clock, Ahead: func() time.Duration { return 0 },
		BackOff: func(types.UID) time.Duration { return time.Second },
		Tell:    func(_ *lifecycle.Pod, why reason.Reason, _ string) { r.note("Event " + string(why)) },
		Wake:    func(lifecycle.PodID, bool) {},
	}
	settings := observe.Settings{
		Cluster: "prod", Registries: registryclient.Registries{"new": r.registry("new"), "old": r.registry("old")},
		Rules: clusterstate.Rules{Ownership: lifecycle.Ownership{Owned: []string{"example.com/*"}}},
	}
	completed, now := settings.Completed(), clock.Now()
	if err := r.visitor.State.Workloads.Refresh(t.Context(), &completed.Rules, completed.Everywhere(), now); err != nil {
		t.Fatal(err)
	}
	read := lifecycle.PodOf(pod)
	r.facts = &observe.Facts{
		Settings: completed, Tracked: tracker.New().Open(id), Memory: memory.New().Of(id), Targets: []tracker.Target{target("new")},
		Input: lifecycle.Input{Pod: read, Ownership: settings.Ownership, Record: lifecycle.RecordOf(read), Hooks: lifecycle.Hooks{
			PreNormal: []lifecycle.Handler{{Label: preNormal, Value: "true"}}, PreDelete: []lifecycle.Handler{{Finalizer: preDelete}},
		}},
	}
	return r
}

func target(name string) tracker.Target {
	return tracker.Target{Registry: name, Instance: registry.Instance{
		Registry: name, Service: "web", Address: "10.0.0.1", Port: 8080, Namespace: "shop", Pod: "web-1", UID: "1", Cluster: "prod",
	}}
}

// registry answers from memory, or as the faults say.
func (r *room) registry(name string) *registryclient.Client {
	reg := fakeregistry.New(fakeregistry.Memory(r.t.Context()))
	r.registries[name] = reg
	reg.OnAnswer(fakeregistry.Match{}, func(c fakeregistry.Call) { r.note(fmt.Sprintf("%s %s", name, c.Op)) })
	return registryclient.New(faulty{reg, r, name}, registryclient.Options{Name: name, Driver: name, Timeout: time.Second, MaxInFlight: 8})
}

// faulty fails before a call reaches the registry.
type faulty struct {
	*fakeregistry.Registry

	r    *room
	name string
}

func (f faulty) Register(ctx context.Context, in registry.Instance) error {
	return unless(f.r.faults[f.name], func() error { return f.Registry.Register(ctx, in) })
}

func (f faulty) Deregister(ctx context.Context, in registry.Instance) error {
	return unless(f.r.faults[f.name], func() error { return f.Registry.Deregister(ctx, in) })
}

func unless(fault error, call func() error) error {
	if fault != nil {
		return fault
	}
	return call()
}

func (r *room) note(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.journal = append(r.journal, line)
}

func (r *room) patch(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	if r.refused != nil {
		r.note("write refused")
		return r.refused
	}
	err := c.Patch(ctx, obj, patch, opts...)
	line := "write"
	if obj.GetLabels()[preNormal] != "" {
		line += " " + preNormal
	}
	if slices.Contains(obj.GetFinalizers(), preDelete) {
		line += " " + preDelete
	}
	r.note(line)
	return err
}

// wasIn: earlier visits put the pod into these registries.
func (r *room) wasIn(names ...string) *room {
	now := r.visitor.Clock.Now().Add(-time.Hour)
	for _, name := range names {
		t := target(name)
		r.facts.Tracked.Begin(t.Key(), lifecycle.InService, t.Instance, now)
		r.facts.Tracked.Acknowledged(t.Key(), now)
	}
	return r
}

func (r *room) down(name string) *room {
	r.faults[name] = errDown
	return r
}

func (r *room) writesFail(err error) *room {
	r.refused = err
	return r
}

func TestVisit(t *testing.T) {
	t.Parallel()
	const joins, goes = appspub.LifecycleStatePreparingNormal, appspub.LifecycleStatePreparingDelete
	refused := errors.New("admission webhook denied it")
	for name, tc := range map[string]struct {
		reason  string
		room    *room
		journal []string
		held    reason.Reason
		behind  reason.Reason
		fails   bool
	}{
		"a new pod": {
			reason: "it is protected before it is registered, and counts only then", room: newRoom(t, joins),
			journal: []string{"write " + preDelete, "new Register", "write " + preNormal + " " + preDelete},
		},
		"its registry is down": {
			reason: "OpenKruise must not count on a pod that no client is given", room: newRoom(t, joins).down("new"),
			journal: []string{"write " + preDelete}, held: reason.RegistryUnavailable,
		},
		"it moves": {
			reason:  "clients find it in the new registry before it leaves the old one, and OpenKruise waits for the new one only",
			room:    newRoom(t, joins).wasIn("old"),
			journal: []string{"write " + preDelete, "new Register", "write " + preNormal + " " + preDelete, "old Deregister", "write " + preNormal + " " + preDelete},
		},
		"it moves, and the old registry is down": {
			reason: "a registry that a pod leaves holds no new pod", room: newRoom(t, joins).wasIn("old").down("old"),
			journal: []string{"write " + preDelete, "new Register", "write " + preNormal + " " + preDelete}, behind: reason.RegistryUnavailable,
		},
		"it moves, and the new registry is down": {
			reason: "it stays where clients find it", room: newRoom(t, joins).wasIn("old").down("new"),
			journal: []string{"write " + preDelete}, held: reason.RegistryUnavailable,
		},
		"the API server refuses to protect it": {
			reason: "without the handler it could be deleted while clients are given it", room: newRoom(t, joins).writesFail(refused),
			journal: []string{"write refused"}, fails: true,
		},
		"a pod goes": {
			reason: "OpenKruise deletes it once it has left", room: newRoom(t, goes).wasIn("new", "old"),
			journal: []string{"old Deregister", "new Deregister", "write"},
		},
		"a pod goes, and one registry is down": {
			reason: "clients of that one are still given it", room: newRoom(t, goes).wasIn("new", "old").down("old"),
			journal: []string{"new Deregister"}, held: reason.RegistryUnavailable,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := tc.room.visitor.Visit(t.Context(), tc.room.facts)
			if (err != nil) != tc.fails {
				t.Fatalf("%s: got error %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.journal, tc.room.journal); diff != "" {
				t.Errorf("%s: the journal differs (-want +got):\n%s", tc.reason, diff)
			}
			if held, behind := firstOf(got.Held), firstOf(got.Behind); held != tc.held || behind != tc.behind {
				t.Errorf("%s: held for %q, behind for %q; want %q and %q", tc.reason, held, behind, tc.held, tc.behind)
			}
		})
	}
}

func firstOf(all []waiting.Blocker) reason.Reason { return waiting.First(all...).Reason }
