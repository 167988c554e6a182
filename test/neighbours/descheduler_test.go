package neighbours

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	kruisepolicy "github.com/openkruise/kruise-api/policy/v1alpha1"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	descheduler "sigs.k8s.io/descheduler/pkg/descheduler/evictions"
	"sigs.k8s.io/descheduler/pkg/features"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/evictions"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
)

// TestDescheduler: its policy is maxNoOfPodsToEvictTotal: 1, three pods are candidates, and Rollcall holds their evictions.
func TestDescheduler(t *testing.T) {
	t.Parallel()
	type row struct {
		reason    string
		candidate func(*corev1.Pod)
		budget    bool
		// first pods begin to leave in the first cycle, and later in the next, of a descheduler that has restarted.
		first, later int
	}
	annotated := func(pod *corev1.Pod) {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, descheduler.EvictionRequestAnnotationKey, "true")
	}
	expect.Each(t, map[string]row{
		"annotated":        {reason: "an eviction that is held counts", candidate: annotated, first: 1},
		"not annotated":    {reason: "only after the first cycle the webhook's annotations do", candidate: func(*corev1.Pod) {}, first: 3},
		"kept by a budget": {reason: "nothing has begun, so that a later cycle tries again", candidate: annotated, budget: true},
	}, func(t *testing.T, c row) {
		pods := []client.Object{cloneSet()}
		for _, name := range []string{"web-1", "web-2", "web-3"} {
			pods = append(pods, armed(name, c.candidate))
		}
		if c.budget {
			pods = append(pods, &policyv1.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
				Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}},
				Status:     policyv1.PodDisruptionBudgetStatus{CurrentHealthy: 3, DesiredHealthy: 3},
			})
		}
		s := newShop(t, pods...)
		s.cycle(t, c.budget)
		if got := s.leaving(t); got != c.first {
			t.Errorf("%d pods leave after the first cycle, want %d: %s", got, c.first, c.reason)
		}
		if c.budget {
			return
		}
		annotated := armed("web-4", annotated)
		expect.NoError(t, s.cluster.Create(t.Context(), annotated))
		s.cycle(t, false)
		if got := s.leaving(t); got != c.first {
			t.Errorf("%d pods leave after the second cycle, want %d still: the pods of the first count", got, c.first)
		}
	})
}

// shop is a cluster whose evictions Rollcall answers.
type shop struct {
	cluster client.Client
	webhook *evictions.Webhook
}

func newShop(t *testing.T, objects ...client.Object) *shop {
	t.Helper()
	scheme := kube.Scheme(clientscheme.AddToScheme, kruisepolicy.AddToScheme)
	cluster := clientfake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	cache := clusterstate.CacheThrough(cluster)
	webhook := evictions.New(evictions.Options{
		Cache: cache, Pods: clusterstate.PodsThrough(cache), Synced: func() bool { return true }, API: cluster, Leader: cluster,
		Leads: func() bool { return true }, Recorder: events.NewFakeRecorder(100), Limit: 10 * time.Minute, Clock: clock.RealClock{},
		Logger: testr.New(t),
	})
	return &shop{cluster, webhook}
}

// cycle has a new descheduler try to evict each pod.
func (s *shop) cycle(t *testing.T, refused bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	evictor, pods := s.descheduler(ctx, t)
	limited := (*descheduler.EvictionTotalLimitError)(nil)
	for i := range pods {
		err := evictor.EvictPod(ctx, &pods[i], descheduler.EvictOptions{StrategyName: "PodLifeTime"})
		if reached := errors.As(err, &limited); reached && refused {
			t.Errorf("pod %s: the limit is reached, and no eviction has begun", pods[i].Name)
		}
	}
	if evictor.TotalEvicted() != 0 {
		t.Errorf("%d pods are evicted, want all held", evictor.TotalEvicted())
	}
}

func (s *shop) descheduler(ctx context.Context, t *testing.T) (*descheduler.PodEvictor, []corev1.Pod) {
	t.Helper()
	pods := s.pods(t)
	clientset := fake.NewClientset()
	for i := range pods {
		expect.NoError(t, clientset.Tracker().Add(&pods[i]))
	}
	clientset.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		eviction, is := action.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction)
		if !is {
			return false, nil, nil
		}
		return true, nil, s.evict(ctx, eviction)
	})
	factory := informers.NewSharedInformerFactory(clientset, 0)
	gates := featuregate.NewFeatureGate()
	expect.NoError(t, gates.Add(map[featuregate.Feature]featuregate.FeatureSpec{
		features.EvictionsInBackground: {Default: true, PreRelease: featuregate.Alpha},
	}))
	evictor, err := descheduler.NewPodEvictor(ctx, clientset, events.NewFakeRecorder(100), factory.Core().V1().Pods().Informer(), gates,
		descheduler.NewOptions().WithMaxPodsToEvictTotal(new(uint(1))))
	expect.NoError(t, err)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	expect.NoError(t, evictor.WaitForEventHandlersSync(ctx))
	return evictor, pods
}

// evict answers as the API server does.
func (s *shop) evict(ctx context.Context, eviction *policyv1.Eviction) error {
	text, err := json.Marshal(eviction)
	if err != nil {
		return err
	}
	response := s.webhook.Handle(ctx, admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Namespace: eviction.Namespace, Name: eviction.Name, Object: runtime.RawExtension{Raw: text},
	}})
	if response.Allowed {
		return nil
	}
	status := *response.Result
	status.Message = `admission webhook "evictions.rollcall.dev" denied the request: ` + status.Message
	return &apierrors.StatusError{ErrStatus: status}
}

func (s *shop) pods(t *testing.T) []corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	expect.NoError(t, s.cluster.List(t.Context(), &pods))
	return pods.Items
}

// leaving counts the pods that OpenKruise is to delete.
func (s *shop) leaving(t *testing.T) (n int) {
	t.Helper()
	for _, pod := range s.pods(t) {
		if _, specified := pod.Labels[kruisev1alpha1.SpecifiedDeleteKey]; specified {
			n++
		}
	}
	return n
}

func cloneSet() *kruisev1alpha1.CloneSet {
	return &kruisev1alpha1.CloneSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "web"},
		Spec: kruisev1alpha1.CloneSetSpec{Lifecycle: &appspub.Lifecycle{
			PreDelete: &appspub.LifecycleHook{LabelsHandler: map[string]string{lifecycle.LabelPreDelete: "true"}},
		}},
	}
}

func armed(name string, edit func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID(name),
			Labels: map[string]string{
				lifecycle.LabelPreDelete: "true", appspub.LifecycleStateKey: string(appspub.LifecycleStateNormal),
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: kruisev1alpha1.GroupVersion.String(), Kind: "CloneSet", Name: "web", UID: "web", Controller: new(true),
			}},
		},
		Spec:   corev1.PodSpec{NodeName: "node-1"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	edit(pod)
	return pod
}
