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
	expect := func(what string, instances int) {
		t.Helper()
		entries, err := lister.List(ctx, "demo")
		expect.NoError(t, err)
		if len(entries) != instances {
			t.Errorf("%s: %d instances, want %d", what, len(entries), instances)
		}
	}

	pod := servingPod("web-1", "uid-1")
	pending := pod.DeepCopy()
	pending.Status = corev1.PodStatus{}
	m.follow(ctx, pending, false)
	expect("a pod with no address", 0)

	m.follow(ctx, pod, false)
	expect("a ready pod", 1)

	restarting := pod.DeepCopy()
	restarting.Status.Conditions = nil
	m.follow(ctx, restarting, false)
	expect("a pod that is not ready", 0)

	m.follow(ctx, pod, false)
	ending := pod.DeepCopy()
	now := metav1.Now()
	ending.DeletionTimestamp = &now
	m.follow(ctx, ending, false)
	expect("a pod that is being deleted, and may still say that it is ready", 0)

	m.follow(ctx, pod, false)
	m.follow(ctx, pod, true)
	expect("a pod that is gone", 0)
}
