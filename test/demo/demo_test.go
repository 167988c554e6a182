package main

import (
	"context"
	"errors"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/memory"
	"github.com/rollcall-dev/rollcall/test/harness/command"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/registries/read"
	"github.com/rollcall-dev/rollcall/test/harness/traffic"
)

func TestConclude(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason        string
		with, without traffic.Tally
		last          string
		failed        bool
		says          string
	}{
		"Proven": {
			reason: "nothing failed with Rollcall, something without, and there were enough",
			with:   traffic.Tally{Requests: 1000}, without: traffic.Tally{Requests: 500, Failed: 1},
			last: "demo: 1000 requests, 0 failed with rollcall; 1 failed without",
		},
		"LostOne": {
			reason: "one lost request is one too many",
			with:   traffic.Tally{Requests: 5000, Failed: 1}, without: traffic.Tally{Requests: 500, Failed: 30},
			last:   "demo: 5000 requests, 1 failed with rollcall; 30 failed without",
			failed: true, says: "web-1      connection reset",
		},
		"TooFew": {
			reason: "with few requests nothing is proven",
			with:   traffic.Tally{Requests: 999}, without: traffic.Tally{Requests: 500, Failed: 30},
			last:   "demo: 999 requests, 0 failed with rollcall; 30 failed without",
			failed: true, says: "too few",
		},
		"NoDifference": {
			reason: "where nothing fails without Rollcall, the traffic would not have noticed anything with it",
			with:   traffic.Tally{Requests: 1000}, without: traffic.Tally{Requests: 500},
			last:   "demo: 1000 requests, 0 failed with rollcall; 0 failed without",
			failed: true, says: "tells nothing",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			screen := newScreen(&out)
			with, without := outcome{tally: tc.with}, outcome{tally: tc.without}
			if tc.with.Failed > 0 {
				with.failures = []traffic.Failure{{Pod: "web-1", Why: "connection reset"}}
			}
			if err := conclude(screen, with, without); errors.Is(err, command.ErrFailed) != tc.failed {
				t.Errorf("%s: got error %v", tc.reason, err)
			}
			lines := strings.Split(strings.TrimRight(out.String(), "\n"), "\n")
			if diff := cmp.Diff(tc.last, lines[len(lines)-1]); diff != "" {
				t.Errorf("the last line: %s", diff)
			}
			if !strings.Contains(out.String(), tc.says) {
				t.Errorf("%s: want %q in\n%s", tc.reason, tc.says, &out)
			}
		})
	}
}

func TestKeepFrom(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]struct{ keep, wrong bool }{
		"": {}, "0": {}, "1": {keep: true}, "yes": {wrong: true},
	} {
		keep, err := keepFrom(value)
		if keep != want.keep || (err != nil) != want.wrong {
			t.Errorf("KEEP=%q gives %v and error %v", value, keep, err)
		}
	}
}

func TestClonesetFor(t *testing.T) {
	t.Parallel()
	with, err := clonesetFor("a", 1234, true)
	expect.NoError(t, err)
	if l := with.Spec.Lifecycle; l == nil || l.PreNormal == nil || l.InPlaceUpdate == nil || l.PreDelete == nil {
		t.Error("the first life must have all three hooks")
	}
	without, err := clonesetFor("a", 1234, false)
	expect.NoError(t, err)
	if without.Spec.Lifecycle != nil {
		t.Error("the second life must have no hooks")
	}
	if diff := cmp.Diff(map[string]string{"app": "web"}, without.Spec.Template.Labels); diff != "" {
		t.Errorf("the second life must have no hook's labels: %s", diff)
	}
	with.Spec.Lifecycle, with.Spec.Template.Labels = nil, without.Spec.Template.Labels
	if diff := cmp.Diff(with, without); diff != "" {
		t.Errorf("nothing else may differ: %s", diff)
	}
	if port := without.Spec.Template.Spec.Containers[0].Ports[0].ContainerPort; port != 1234 {
		t.Errorf("the pods' port is %d and not that of the pod server", port)
	}
}

func TestUnsettled(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	for name, tc := range map[string]struct {
		edit func(*corev1.Pod)
		want string
	}{
		"Settled":  {edit: func(*corev1.Pod) {}},
		"Deleting": {edit: func(p *corev1.Pod) { p.DeletionTimestamp = &now }, want: "still being deleted"},
		"Updated": {
			edit: func(p *corev1.Pod) { p.Labels[appspub.LifecycleStateKey] = "Updated" },
			want: `in state "Updated" and not Normal`,
		},
		"OldSpec":  {edit: func(p *corev1.Pod) { p.Spec.Containers[0].Image = "web:v1" }, want: "does not run image"},
		"OldImage": {edit: func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Image = "web:v1" }, want: "does not run image"},
		"NotReady": {edit: func(p *corev1.Pod) { p.Status.Conditions = nil }, want: "is not ready"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := servingPod("web-1", "uid-1")
			tc.edit(pod)
			if got := unsettled(pod, "web:v2"); (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestDiffers(t *testing.T) {
	t.Parallel()
	pods := []corev1.Pod{*servingPod("web-1", "uid-1"), *servingPod("web-2", "uid-2")}
	entry := func(pod, uid string, state registry.State) registry.Entry {
		return registry.Entry{State: state, Instance: registry.Instance{Pod: pod, UID: uid}}
	}
	first, second := entry("web-1", "uid-1", registry.InService), entry("web-2", "uid-2", registry.InService)
	for name, tc := range map[string]struct {
		entries []registry.Entry
		want    string
	}{
		"Same":     {entries: []registry.Entry{second, first}},
		"Missing":  {entries: []registry.Entry{first}, want: "it lacks pod web-2"},
		"Left":     {entries: []registry.Entry{first, second, entry("web-0", "uid-0", registry.OutOfService)}, want: "web-0"},
		"Drained":  {entries: []registry.Entry{first, entry("web-2", "uid-2", registry.OutOfService)}, want: "OutOfService"},
		"SameName": {entries: []registry.Entry{first, entry("web-2", "uid-3", registry.InService)}, want: "web-2, which is not"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := differs("it", pods, tc.entries); (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestWaitForGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	crash := errors.New("the manager ended by itself")
	ctx, end := context.WithCancelCause(t.Context())
	end(crash)
	err := waitFor(ctx, func(context.Context) (string, error) { return "not yet", nil })
	if !errors.Is(err, crash) {
		t.Errorf("got %v, want what ended the wait", err)
	}
}

// A life as the watcher shows it: a line for each change of the pod or of what the registry says, and no line twice.
func TestWatcher(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	store, err := memory.New(ctx, registry.Config{Cluster: "demo"})
	expect.NoError(t, err)
	view, ok := store.(*memory.Registry)
	if !ok {
		t.Fatalf("the memory driver is a %T", store)
	}
	server := httptest.NewServer(view)
	defer server.Close()
	var out strings.Builder
	w := &watcher{
		read: read.Listed(server.URL + "/v1/instances"), out: newScreen(&out), pods: map[types.UID]*watched{},
	}
	instance := registry.Instance{Service: "web", Address: "127.0.0.1", Port: 1, Cluster: "demo", Pod: "web-1", UID: "uid-1"}
	must := func(err error) {
		expect.NoError(t, err)
	}
	pod := servingPod("web-1", "uid-1")
	pod.Labels[appspub.LifecycleStateKey] = "PreparingNormal"

	w.observe(ctx, podEvent{pod: pod})
	w.observe(ctx, podEvent{pod: pod.DeepCopy()}) // nothing new in it
	must(store.Register(ctx, instance))
	w.look(ctx)
	w.look(ctx)
	must(store.FailOver(ctx, instance))
	w.look(ctx)
	must(store.Register(ctx, instance)) // back before the next look
	w.look(ctx)
	normal := pod.DeepCopy()
	normal.Labels[appspub.LifecycleStateKey] = "Normal"
	w.observe(ctx, podEvent{pod: normal})
	must(store.Deregister(ctx, instance))
	w.observe(ctx, podEvent{pod: normal, gone: true})
	w.look(ctx)

	expectRows(t, out.String(),
		"web-1      v2     PreparingNormal  ready      absent",
		"web-1      v2     PreparingNormal  ready      in service",
		"web-1      v2     Normal           ready      in service",
		"web-1      v2     Normal           gone       absent",
	)
	if len(w.pods) > 0 {
		t.Error("a pod that is gone, and absent from the registry, must be forgotten")
	}
}

func TestColumnsStandAboveTheirRows(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	screen := newScreen(&out)
	screen.line("%s", columns())
	w := &watcher{out: screen, pods: map[types.UID]*watched{}}
	w.show(&watched{podEvent: podEvent{pod: servingPod("web-abcde", "uid-1")}}, "out of service")
	lines := strings.Split(out.String(), "\n")
	for heading, cell := range map[string]string{
		"pod": "web-abcde", "image": "v2", "Kruise state": "Normal", "pod is": "ready", "registry says": "out of service",
	} {
		if strings.Index(lines[0], heading) != strings.LastIndex(lines[1], cell) {
			t.Errorf("%q does not stand above %q:\n%s", heading, cell, &out)
		}
	}
	for _, line := range lines {
		if len(line) > 100 {
			t.Errorf("wider than 100 columns: %s", line)
		}
	}
}

// expectRows compares lines without their time.
func expectRows(t *testing.T, text string, want ...string) {
	t.Helper()
	stamp := regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d\.\d  `)
	got := strings.Split(strings.TrimRight(stamp.ReplaceAllString(text, ""), "\n"), "\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the lines differ: %s", diff)
	}
}

// servingPod is a pod that is Normal, ready and runs web:v2.
func servingPod(name, uid string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "a", UID: types.UID(uid),
			Labels: map[string]string{"app": "web", appspub.LifecycleStateKey: string(appspub.LifecycleStateNormal)},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:v2"}}},
		Status: corev1.PodStatus{
			PodIP:             "127.0.0.1",
			ContainerStatuses: []corev1.ContainerStatus{{Name: "web", Image: "web:v2"}},
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
}
