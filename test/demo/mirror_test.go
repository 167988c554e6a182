package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/memory"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestMirrorFollowsReadiness(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	store, err := memory.New(ctx, registry.Config{Cluster: "demo"})
	expect.NoError(t, err)
	lister, ok := store.(registry.Lister)
	if !ok {
		t.Fatalf("%T is no Lister", store)
	}
	m := &mirror{registry: store, port: 80}
	pod, now := servingPod("web-1", "uid-1"), metav1.Now()
	for _, step := range []struct {
		what      string
		edit      func(*corev1.Pod)
		gone      bool
		instances int
	}{
		{"a pod with no address", func(p *corev1.Pod) { p.Status = corev1.PodStatus{} }, false, 0},
		{"a ready pod", func(*corev1.Pod) {}, false, 1},
		{"a pod that is not ready", func(p *corev1.Pod) { p.Status.Conditions = nil }, false, 0},
		{"a ready pod again", func(*corev1.Pod) {}, false, 1},
		{"a pod that is being deleted", func(p *corev1.Pod) { p.DeletionTimestamp = &now }, false, 0},
		{"a ready pod once more", func(*corev1.Pod) {}, false, 1},
		{"a pod that is gone", func(*corev1.Pod) {}, true, 0},
	} {
		p := pod.DeepCopy()
		step.edit(p)
		m.follow(ctx, p, step.gone)
		entries, err := lister.List(ctx, "demo")
		if err != nil || len(entries) != step.instances {
			t.Errorf("%s: %d instances, %v, want %d", step.what, len(entries), err, step.instances)
		}
	}
}
