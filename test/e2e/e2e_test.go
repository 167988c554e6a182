package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appspub "github.com/openkruise/kruise-api/apps/pub"
	appsv1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/memory"
	"github.com/rollcall-dev/rollcall/test/harness/command"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestChoose(t *testing.T) {
	t.Parallel()
	for value, tc := range map[string]struct {
		want  func(scenario) bool
		wrong bool
	}{
		"":       {want: func(scenario) bool { return true }},
		"short":  {want: func(s scenario) bool { return s.short }},
		"frozen": {want: func(s scenario) bool { return s.name == "registry frozen in an update" }},
		"shart":  {want: func(scenario) bool { return false }, wrong: true},
	} {
		var want, got []string
		for _, s := range scenarios() {
			if tc.want(s) {
				want = append(want, s.name)
			}
		}
		chosen, err := choose(value)
		for _, s := range chosen {
			got = append(got, s.name)
		}
		if diff := cmp.Diff(want, got); diff != "" || (err != nil) != tc.wrong {
			t.Errorf("E2E=%q gives error %v and (-want +got):\n%s", value, err, diff)
		}
	}
}

// Each arm differs from the others in what makes it an arm, and in nothing else.
func TestClonesetFor(t *testing.T) {
	t.Parallel()
	sets := map[string]*appsv1alpha1.CloneSet{}
	for _, name := range armNames() {
		set, err := clonesetFor(name)
		expect.NoError(t, err)
		sets[name] = set
	}
	with, careful, alone := sets[withRollcall], sets[withPreStop], sets[mirrorOnly]
	if l := with.Spec.Lifecycle; l == nil || l.PreNormal == nil || l.InPlaceUpdate == nil || l.PreDelete == nil {
		t.Error("with Rollcall there must be all three hooks")
	}
	if careful.Spec.Lifecycle != nil || alone.Spec.Lifecycle != nil {
		t.Error("without Rollcall a hook would never be answered")
	}
	if got := careful.Spec.UpdateStrategy.InPlaceUpdateStrategy.GracePeriodSeconds; got != graceSeconds {
		t.Errorf("the careful arm waits for %d seconds before an update in place", got)
	}
	if alone.Spec.Template.Spec.Containers[0].Lifecycle != nil {
		t.Error("the mirror alone has no preStop")
	}
	for _, name := range armNames() {
		set := sets[name]
		if diff := cmp.Diff(map[string]string{"app": name}, set.Spec.Selector.MatchLabels); diff != "" {
			t.Errorf("the selector of arm %s: %s", name, diff)
		}
		set.Spec.Lifecycle, set.Spec.UpdateStrategy.InPlaceUpdateStrategy, set.Spec.Selector = nil, nil, nil
		set.Spec.Template.Labels, set.Spec.Template.Spec.Containers[0].Lifecycle = nil, nil
		if diff := cmp.Diff(sets[withRollcall], set); diff != "" {
			t.Errorf("arm %s differs in something else: %s", name, diff)
		}
	}
}

func TestUnsettled(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	for name, tc := range map[string]struct {
		edit func(*appsv1alpha1.CloneSet, *corev1.Pod)
		want string
	}{
		"Settled":    {edit: func(*appsv1alpha1.CloneSet, *corev1.Pod) {}},
		"OldStatus":  {edit: func(s *appsv1alpha1.CloneSet, _ *corev1.Pod) { s.Generation++ }, want: "has not seen the last change"},
		"NotUpdated": {edit: func(s *appsv1alpha1.CloneSet, _ *corev1.Pod) { s.Status.UpdatedReplicas = 0 }, want: "0 of 1 pods are updated"},
		"TooMany":    {edit: func(s *appsv1alpha1.CloneSet, _ *corev1.Pod) { *s.Spec.Replicas = 0 }, want: "1 are there"},
		"Deleted":    {edit: func(_ *appsv1alpha1.CloneSet, p *corev1.Pod) { p.DeletionTimestamp = &now }, want: "is being deleted"},
		"Unready":    {edit: func(_ *appsv1alpha1.CloneSet, p *corev1.Pod) { p.Status.Conditions = nil }, want: "is not ready"},
		"OldImage":   {edit: func(_ *appsv1alpha1.CloneSet, p *corev1.Pod) { p.Spec.Containers[0].Image = "old" }, want: "has image old"},
		"AtAHook": {edit: func(_ *appsv1alpha1.CloneSet, p *corev1.Pod) {
			p.Labels[appspub.LifecycleStateKey] = "PreparingUpdate"
		}, want: "is in state PreparingUpdate"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set, err := clonesetFor(withRollcall)
			expect.NoError(t, err)
			set.Spec.Replicas = new(int32(1))
			set.Status.UpdatedReplicas, set.Status.ReadyReplicas = 1, 1
			pod := servingPod("web-1", "10.0.0.1")
			tc.edit(set, pod)
			expectError(t, unsettled(set, []corev1.Pod{*pod}), tc.want)
		})
	}
}

func TestDiffers(t *testing.T) {
	t.Parallel()
	pods := []corev1.Pod{*servingPod("web-1", "10.0.0.1"), *servingPod("web-2", "10.0.0.2")}
	first, second := instance{Address: "10.0.0.1:8080", Pod: "web-1"}, instance{Address: "10.0.0.2:8080", Pod: "web-2"}
	expectError(t, differs(pods, []instance{second, first}), "")
	expectError(t, differs(pods, []instance{first}), "in rotation are [web-1 at 10.0.0.1:8080], the pods are")
	expectError(t, differs(pods, []instance{first, {Address: second.Address, Pod: "web-3"}}), "web-3")
}

func TestNextVersion(t *testing.T) {
	t.Parallel()
	set, err := clonesetFor(withRollcall)
	expect.NoError(t, err)
	for _, want := range []string{appImage("v2"), appImage("v1")} {
		nextVersion(&set.Spec)
		if got := set.Spec.Template.Spec.Containers[0].Image; got != want {
			t.Errorf("got image %s, want %s", got, want)
		}
	}
}

// What the careful team and the mirror have in common: in while ready, out while not, and what fails is tried again.
func TestMirror(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	store, err := memory.New(ctx, registry.Config{Cluster: "mirror"})
	expect.NoError(t, err)
	flaky := &flakyRegistry{Registry: store, failing: true}
	pod := servingPod("web-1", "10.0.0.1")
	k8s := fake.NewClientBuilder().WithObjects(pod).WithStatusSubresource(pod).Build()
	m := &mirror{k8s: k8s, registry: flaky, namespace: pod.Namespace, told: map[types.UID]*told{}}
	expectIn := func(reason string, want int) {
		t.Helper()
		entries, err := store.(registry.Lister).List(ctx, "mirror")
		expect.NoError(t, err)
		if len(entries) != want {
			t.Errorf("%s: %d in rotation, want %d", reason, len(entries), want)
		}
	}
	m.pass(ctx)
	expectIn("the registry fails", 0)
	flaky.failing = false
	m.pass(ctx)
	expectIn("the pod is ready", 1)

	pod.Status.Conditions = nil
	expect.NoError(t, k8s.Status().Update(ctx, pod))
	flaky.failing = true
	m.pass(ctx)
	expectIn("the registry fails again", 1)
	flaky.failing = false
	m.pass(ctx)
	expectIn("the pod is unready", 0)
}

func TestPlain(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"connection refused":                  &url.Error{Op: "Post", URL: "u", Err: syscall.ECONNREFUSED},
		"no such host":                        syscall.EHOSTUNREACH,
		"connection reset":                    syscall.ECONNRESET,
		"connection closed without an answer": io.ErrUnexpectedEOF,
		"no answer in time":                   context.DeadlineExceeded,
		"odd":                                 &url.Error{Op: "Post", URL: "u", Err: errors.New("odd")},
	} {
		if got := plain(err); got != want {
			t.Errorf("%v: got %q, want %q", err, got, want)
		}
	}
}

// A request counts as lost where no instance is in rotation, where another pod answers, and where there is no good
// answer.
func TestCustomer(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/broken" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, "web-1 v1\n")
	}))
	t.Cleanup(server.Close)
	address := strings.TrimPrefix(server.URL, "http://")
	for name, tc := range map[string]struct {
		instances []instance
		path      string
		want      string
	}{
		"Answered":   {instances: []instance{{Address: address, Pod: "web-1"}}, path: "/"},
		"NoInstance": {path: "/", want: noInstance},
		"OtherPod":   {instances: []instance{{Address: address, Pod: "web-2"}}, path: "/", want: "another pod answered"},
		"Status":     {instances: []instance{{Address: address, Pod: "web-1"}}, path: "/broken", want: "503"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &customer{name: "polls", path: tc.path, http: server.Client(), count: &tally{}}
			c.view.instances = tc.instances
			c.count.add(c.once(t.Context()))
			requests, failures := c.count.take()
			if requests != 1 || (tc.want == "") != (len(failures) == 0) {
				t.Fatalf("got %d requests and failures %v, want %q", requests, failures, tc.want)
			}
			if tc.want != "" && !strings.Contains(failures[0].String(), tc.want) {
				t.Errorf("got %s, want %s", failures[0], tc.want)
			}
		})
	}
}

func TestReasons(t *testing.T) {
	t.Parallel()
	got := reasons([]failure{{Reason: "a"}, {Reason: "b"}, {Reason: "b"}})
	if want := "2 b, 1 a"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	rowOf := func(name, lossy string, lost ...int) row {
		r := row{scenario: name, lossy: lossy, took: time.Second, arms: map[string]result{}}
		for i, arm := range armNames() {
			r.arms[arm] = result{requests: 10, failures: make([]failure, lost[i])}
		}
		return r
	}
	for name, tc := range map[string]struct {
		rows   []row
		last   string
		failed bool
	}{
		"Proven": {
			rows: []row{rowOf("update", "", 0, 1, 2), rowOf("delete", "", 0, 2, 3)},
			last: "e2e: 2 scenarios, 60 requests; failed: 0 with rollcall, 3 with preStop and mirror, 5 with mirror",
		},
		"LostOne": {
			rows: []row{rowOf("update", "", 1, 0, 0)}, failed: true,
			last: "e2e: 1 scenarios, 30 requests; failed: 1 with rollcall, 0 with preStop and mirror, 0 with mirror",
		},
		"Lossy": {
			rows: []row{rowOf("crash", "it is sudden", 1, 1, 1)},
			last: "e2e: 0 scenarios, 0 requests; failed: 0 with rollcall, 0 with preStop and mirror, 0 with mirror",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			if err := report(&out, tc.rows); errors.Is(err, command.ErrFailed) != tc.failed {
				t.Errorf("got error %v", err)
			}
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if diff := cmp.Diff(tc.last, lines[len(lines)-1]); diff != "" {
				t.Errorf("the last line: %s", diff)
			}
		})
	}
}

func TestDoor(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	d, err := openDoor(t.Context(), "127.0.0.1:0", strings.TrimPrefix(server.URL, "http://"))
	expect.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ask := func() error {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+d.listener.Addr().String(), http.NoBody)
		expect.NoError(t, err)
		response, err := client.Do(request)
		if err == nil {
			response.Body.Close()
		}
		return err
	}
	expect.NoError(t, ask())
	d.Shut(true)
	if err := ask(); err == nil {
		t.Error("a door that is shut lets a request through")
	}
	d.Shut(false)
	const delay = 50 * time.Millisecond
	d.Slow(delay)
	started := time.Now()
	expect.NoError(t, ask())
	if took := time.Since(started); took < delay {
		t.Errorf("a slow door takes %s, want %s and more", took, delay)
	}
}

type flakyRegistry struct {
	registry.Registry

	failing bool
}

func (f *flakyRegistry) Register(ctx context.Context, in registry.Instance) error {
	if f.failing {
		return errors.New("out of order")
	}
	return f.Registry.Register(ctx, in)
}

func (f *flakyRegistry) Deregister(ctx context.Context, in registry.Instance) error {
	if f.failing {
		return errors.New("out of order")
	}
	return f.Registry.Deregister(ctx, in)
}

func servingPod(name, address string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "e2e", UID: types.UID(name), Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: appImage("v1")}}},
		Status: corev1.PodStatus{
			PodIP: address, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
}

func expectError(t *testing.T, err error, want string) {
	t.Helper()
	if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("got error %v, want %q", err, want)
	}
}
