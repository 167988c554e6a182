package controller

import (
	"context"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/memory"
)

// onePod is a cache with one pod and its CloneSet, which it copies where the real one does, and nothing else.
type onePod struct {
	client.Client

	pod      *corev1.Pod
	workload *kruisev1alpha1.CloneSet
}

func (c onePod) Get(_ context.Context, _ client.ObjectKey, into client.Object, options ...client.GetOption) error {
	chosen := (&client.GetOptions{}).ApplyOptions(options)
	shared := chosen.UnsafeDisableDeepCopy != nil && *chosen.UnsafeDisableDeepCopy
	switch into := into.(type) {
	case *corev1.Pod:
		if *into = *c.pod; !shared {
			c.pod.DeepCopyInto(into)
		}
	case *kruisev1alpha1.CloneSet:
		if *into = *c.workload; !shared {
			c.workload.DeepCopyInto(into)
		}
	}
	return nil
}

func (onePod) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	if namespaces, ok := into.(*metav1.PartialObjectMetadataList); ok {
		namespaces.Items = []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: testNamespace}}}
	}
	return nil
}

func BenchmarkObserve(b *testing.B) {
	workload := &kruisev1alpha1.CloneSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: "web", UID: "workload"},
		Spec: kruisev1alpha1.CloneSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Lifecycle: hooked(),
		},
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: testNamespace, Name: "web-0", UID: "pod", ResourceVersion: "1",
			Labels: map[string]string{
				"app": "web", inPlaceLabel: "hold", appspub.LifecycleStateKey: string(appspub.LifecycleStateNormal),
			},
			Annotations:     map[string]string{appspub.LifecycleTimestampKey: "2026-01-02T03:04:05Z"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(workload, kruisev1alpha1.GroupVersion.WithKind("CloneSet"))},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: 8080}}}}},
		Status: corev1.PodStatus{
			PodIP: "10.0.0.1", Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
	name, err := service.ParseNameTemplate("{label:app}")
	if err != nil {
		b.Fatal(err)
	}
	backend, err := memory.New(b.Context(), registry.Config{})
	if err != nil {
		b.Fatal(err)
	}
	cache := onePod{pod: pod, workload: workload}
	r := New(Options{
		Client: cache, Tracker: tracker.New(), State: clusterstate.New(cache), Clock: clocktesting.NewFakePassiveClock(testEpoch()),
	})
	r.Apply(Settings{
		Cluster: testCluster, DefaultRegistries: []string{"default"},
		Registries: map[string]*registryclient.Client{
			"default": registryclient.New(backend, registryclient.Options{Name: "default", Timeout: testTimeout, MaxInFlight: 1}),
		},
		Rules: clusterstate.Rules{
			Ownership: lifecycle.Ownership{Owned: []string{"example.com/*"}}, Services: service.Rules{Name: name}, PanicThreshold: 50,
		},
	})
	id := lifecycle.PodIDOf(pod)
	b.ReportAllocs()
	for b.Loop() {
		seen, _, err := r.observe(b.Context(), id)
		if err != nil || len(seen.targets) != 1 {
			b.Fatalf("observed %d targets: %v", len(seen.targets), err)
		}
	}
}
