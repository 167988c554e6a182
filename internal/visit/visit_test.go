package visit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appspub "github.com/openkruise/kruise-api/apps/pub"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/drain"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/memory"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/observe"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/internal/waiting"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
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
	// registries are by name.
	registries map[string]*fakeregistry.Registry

	mu      sync.Mutex
	journal []string
	refused error // the API server's answer to writes
}

var errDown = errors.New("connection refused")

func newRoom(t *testing.T, state appspub.LifecycleStateType) *room {
	t.Helper()
	r := &room{t: t, registries: map[string]*fakeregistry.Registry{}}
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
	api := clusterstate.CacheThrough(interceptor.NewClient(
		fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(pod, namespace).Build(), interceptor.Funcs{Patch: r.patch}))
	clock, id := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0)), lifecycle.PodID{
		NamespacedName: types.NamespacedName{Namespace: "shop", Name: "web-1"}, UID: "1",
	}
	r.visitor = &Visitor{
		Client: api, State: clusterstate.New(api, clusterstate.PodsThrough(api), nil), Releases: metrics.NewReleaseMetrics(prometheus.NewRegistry()),
		Clock: clock, Ahead: func() time.Duration { return 0 },
		BackOff: func(types.UID) time.Duration { return time.Second },
		Tell:    func(_ *lifecycle.Pod, why reason.Reason, _ string) { r.note("Event " + string(why)) },
		Wake:    func(lifecycle.PodID, bool) {}, PodCondition: func() bool { return false }, NoCondition: func() string { return "" }, Asker: mute{},
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

// mute is an Asker whose pods don't answer.
type mute struct{}

func (mute) Ask(drain.Question)               {}
func (mute) Stop(types.UID)                   {}
func (mute) Last(drain.Question) drain.Answer { return drain.Answer{} }

func target(name string) tracker.Target {
	return tracker.Target{Registry: name, Instance: registry.Instance{
		Registry: name, Service: "web", Address: "10.0.0.1", Port: 8080, Namespace: "shop", Pod: "web-1", UID: "1", Cluster: "prod",
	}}
}

// registry answers from memory. The journal has what it did.
func (r *room) registry(name string) *registryclient.Client {
	reg := fakeregistry.New(fakeregistry.Memory(r.t.Context()))
	r.registries[name] = reg
	reg.OnAnswer(fakeregistry.Match{}, func(c fakeregistry.Call) {
		if c.Acknowledged() {
			r.note(fmt.Sprintf("%s %s", name, c.Op))
		}
	})
	return registryclient.New(reg, registryclient.Options{Name: name, Driver: name, Timeout: time.Second, MaxInFlight: 8})
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
	r.registries[name].Fail(fakeregistry.Match{}, errDown)
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
	type row struct {
		reason  string
		room    *room
		journal []string
		held    reason.Reason
		behind  reason.Reason
		fails   bool
	}
	expect.Each(t, map[string]row{
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
	}, func(t *testing.T, tc row) {
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

// answering is an Asker whose pod has answered that.
type answering struct {
	mute

	last drain.Answer
}

func (a answering) Last(drain.Question) drain.Answer { return a.last }

// TestVisit_DrainsUntilIdle: what ends the drain of a pod that is out, and what a person should know of it.
func TestVisit_DrainsUntilIdle(t *testing.T) {
	t.Parallel()
	crashed := func(pod *lifecycle.Pod) {
		pod.Spec.Containers, pod.Status.NotRunning = []lifecycle.Container{{Name: "app"}}, []string{"app"}
	}
	runs := func(*lifecycle.Pod) {}
	type row struct {
		reason string
		after  time.Duration
		last   drain.Answer
		of     func(*lifecycle.Pod)
		held   reason.Reason
		events []string
	}
	expect.Each(t, map[string]row{
		"is busy":             {"requests would be cut off", time.Minute, drain.Answer{Left: 3}, runs, reason.Draining, nil},
		"is idle":             {"nothing is left to wait for", time.Minute, drain.Answer{Idle: true}, runs, "", nil},
		"does not answer":     {"it may be busy", time.Minute, drain.Answer{Failed: "connection refused"}, runs, reason.Draining, nil},
		"has crashed":         {"nothing is left that could be cut off", time.Minute, drain.Answer{Failed: "connection refused"}, crashed, "", nil},
		"is idle, before min": {"clients have not noticed yet", time.Second, drain.Answer{Idle: true}, runs, reason.Draining, nil},
		"is busy until max":   {"requests may have been cut off", 10 * time.Minute, drain.Answer{Left: 3}, runs, "", []string{"Event DrainTimeout"}},
	}, func(t *testing.T, tc row) {
		r := newRoom(t, appspub.LifecycleStatePreparingDelete).wasIn("new")
		clock := clocktesting.NewFakePassiveClock(r.visitor.Clock.Now())
		r.visitor.Clock = clock
		r.facts.Drain = drain.Policy{Min: 5 * time.Second, Max: 10 * time.Minute, Until: drain.Until{Port: 8080, Path: "/idle"}}
		got, err := r.visitor.Visit(t.Context(), r.facts)
		if err != nil || firstOf(got.Held) != reason.Draining {
			t.Fatalf("held for %q, with error %v, before its drain", firstOf(got.Held), err)
		}
		clock.SetTime(clock.Now().Add(tc.after))
		tc.last.Asked = clock.Now()
		r.visitor.Asker, r.facts.Input, r.journal = answering{last: tc.last}, got.Input, nil
		tc.of(r.facts.Input.Pod)
		got, err = r.visitor.Visit(t.Context(), r.facts)
		if err != nil || firstOf(got.Held) != tc.held {
			t.Errorf("%s: held for %q, with error %v, want %q", tc.reason, firstOf(got.Held), err, tc.held)
		}
		events := slices.DeleteFunc(r.journal, func(line string) bool { return !strings.HasPrefix(line, "Event") })
		if !slices.Equal(events, tc.events) {
			t.Errorf("%s: got Events %v, want %v", tc.reason, events, tc.events)
		}
	})
}

func firstOf(all []waiting.Blocker) reason.Reason { return waiting.First(all...).Reason }
