package main

import (
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
	count := func(requests, failed int) traffic.Tally { return traffic.Tally{Requests: requests, Failed: failed} }
	for reason, tc := range map[string]struct {
		with, without traffic.Tally
		failed        bool
		says          string
	}{
		"nothing failed with Rollcall, something without": {count(1000, 0), count(500, 1), false, "demo: 1000 requests, 0 failed with rollcall; 1 failed without\n"},
		"one lost request is one too many":                {count(5000, 1), count(500, 30), true, "web-1      connection reset"},
		"with few requests nothing is proven":             {count(999, 0), count(500, 30), true, "too few"},
		"the traffic would not have noticed anything":     {count(1000, 0), count(500, 0), true, "tells nothing"},
	} {
		var out strings.Builder
		with := outcome{tally: tc.with, failures: []traffic.Failure{{Pod: "web-1", Why: "connection reset"}}}
		err := conclude(newScreen(&out), with, outcome{tally: tc.without}, nil)
		if errors.Is(err, command.ErrFailed) != tc.failed || !strings.Contains(out.String(), tc.says) {
			t.Errorf("%s: got error %v, want %q in\n%s", reason, err, tc.says, &out)
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
	for want, edit := range map[string]func(*corev1.Pod){
		"":                                func(*corev1.Pod) {},
		"still being deleted":             func(p *corev1.Pod) { p.DeletionTimestamp = &now },
		`in state "Updated" and not Norm`: func(p *corev1.Pod) { p.Labels[appspub.LifecycleStateKey] = "Updated" },
		"does not run image":              func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Image = "web:v1" },
		"is not ready":                    func(p *corev1.Pod) { p.Status.Conditions = nil },
	} {
		pod := servingPod("web-1", "uid-1")
		edit(pod)
		expect.Error(t, "what is missing", unsettled(pod, "web:v2"), want)
	}
}

func TestDiffers(t *testing.T) {
	t.Parallel()
	pods := []corev1.Pod{*servingPod("web-1", "uid-1"), *servingPod("web-2", "uid-2")}
	entry := func(pod, uid string, state registry.State) registry.Entry {
		return registry.Entry{State: state, Instance: registry.Instance{Pod: pod, UID: uid}}
	}
	first, second := entry("web-1", "uid-1", registry.InService), entry("web-2", "uid-2", registry.InService)
	for want, entries := range map[string][]registry.Entry{
		"":                    {second, first},
		"it lacks pod web-2":  {first},
		"web-0":               {first, second, entry("web-0", "uid-0", registry.OutOfService)},
		"OutOfService":        {first, entry("web-2", "uid-2", registry.OutOfService)},
		"web-2, which is not": {first, entry("web-2", "uid-3", registry.InService)},
	} {
		expect.Error(t, "what is missing", differs("it", pods, entries), want)
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
	pod := servingPod("web-1", "uid-1")
	pod.Labels[appspub.LifecycleStateKey] = "PreparingNormal"

	w.observe(ctx, podEvent{pod: pod})
	w.observe(ctx, podEvent{pod: pod.DeepCopy()}) // nothing new in it
	expect.NoError(t, store.Register(ctx, instance))
	w.look(ctx)
	w.look(ctx)
	expect.NoError(t, store.FailOver(ctx, instance))
	w.look(ctx)
	expect.NoError(t, store.Register(ctx, instance)) // back before the next look
	w.look(ctx)
	normal := pod.DeepCopy()
	normal.Labels[appspub.LifecycleStateKey] = "Normal"
	w.observe(ctx, podEvent{pod: normal})
	expect.NoError(t, store.Deregister(ctx, instance))
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
