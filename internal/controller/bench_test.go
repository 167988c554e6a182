package controller

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

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

// steady is a reconciler with a pod that is where it belongs, as most are at most events.
func steady(b testing.TB) (*PodReconciler, lifecycle.PodID) {
	b.Helper()
	owned := lifecycle.Ownership{Owned: []string{"example.com/*"}}
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
				"app": "web", appspub.LifecycleStateKey: string(appspub.LifecycleStateNormal),
			},
			Annotations:     map[string]string{appspub.LifecycleTimestampKey: "2026-01-02T03:04:05Z"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(workload, kruisev1alpha1.GroupVersion.WithKind("CloneSet"))},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: 8080}}}}},
		Status: corev1.PodStatus{
			PodIP: "10.0.0.1", Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
	hooks := lifecycle.HooksOf(clusterstate.AsWorkload(workload).ForDecision(), owned)
	for _, h := range slices.Concat(hooks.PreNormal, hooks.InPlaceUpdate, hooks.PreDelete) {
		if pod.Labels[h.Label] = h.Value; h.Finalizer != "" {
			pod.Finalizers = append(pod.Finalizers, h.Finalizer)
		}
	}
	record, err := json.Marshal(lifecycle.NewRecord(pod, hooks, lifecycle.InService,
		[]lifecycle.Recorded{{Registry: "default", Service: "web", Address: "10.0.0.1", Port: 8080}}, nil))
	if err != nil {
		b.Fatal(err)
	}
	pod.Annotations[lifecycle.AnnotationRecord] = string(record)
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
		Ahead: func() time.Duration { return 0 },
	})
	r.Apply(Settings{
		Cluster: testCluster, DefaultRegistries: []string{"default"},
		Registries: map[string]*registryclient.Client{
			"default": registryclient.New(backend, registryclient.Options{Name: "default", Timeout: testTimeout, MaxInFlight: 1}),
		},
		Rules: clusterstate.Rules{
			Ownership: owned, Services: service.Rules{Name: name}, PanicThreshold: 50,
		},
	})
	return r, lifecycle.PodIDOf(pod)
}

func expectSteady(tb testing.TB, r *PodReconciler, id lifecycle.PodID) {
	tb.Helper()
	if result, err := r.Reconcile(tb.Context(), id); err != nil || result.RequeueAfter != 0 {
		tb.Fatalf("the pod is not steady: %v, %v", result, err)
	}
}

// BenchmarkReconcile is for the reconcile that finds nothing to do, such as the one after the manager's own write.
func BenchmarkReconcile(b *testing.B) {
	r, id := steady(b)
	expectSteady(b, r, id)
	b.ReportAllocs()
	for b.Loop() {
		expectSteady(b, r, id)
	}
}
