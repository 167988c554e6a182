package controller

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/process"
)

// BenchmarkScale is what one pod of many costs this process: its update, out and in again, with all events and visits, and its part of a
// comparison with the registry. The API server and the registry are maps. A cost for each pod that grows with their number is a fault.
func BenchmarkScale(b *testing.B) {
	for _, pods := range []int{1_000, 10_000, 50_000} {
		f := newFleet(b, pods)
		b.Run("update/"+strconv.Itoa(pods), func(b *testing.B) {
			b.ReportAllocs()
			before := processor(b)
			for i := 0; b.Loop(); i++ {
				f.update(i % pods)
			}
			b.ReportMetric(float64(processor(b)-before)/float64(b.N), "cpu-ns/pod")
		})
		b.Run("compare/"+strconv.Itoa(pods), func(b *testing.B) {
			b.ReportAllocs()
			before := processor(b)
			for b.Loop() {
				f.compareAll()
			}
			b.ReportMetric(float64(processor(b)-before)/float64(b.N*pods), "cpu-ns/pod")
		})
	}
}

// processor is the time that this process has taken of all processors: others may take them too.
func processor(b *testing.B) time.Duration {
	b.Helper()
	took, err := process.CPU(os.Getpid())
	if err != nil {
		b.Fatal(err)
	}
	return took
}

// fleet is a world of so many pods of one workload, in ten services, that are all in rotation.
type fleet struct {
	client.Client
	*world

	pods    []*corev1.Pod
	byName  map[types.NamespacedName]int
	set     *kruisev1alpha1.CloneSet
	version int
	// shown are the pods as the cache has them, and entries what the registry has.
	shown   []*lifecycle.Pod
	entries map[string]registry.Entry
}

func newFleet(b *testing.B, pods int) *fleet {
	b.Helper()
	f := &fleet{byName: map[types.NamespacedName]int{}, entries: map[string]registry.Entry{}}
	f.world = newWorld(b, func(s *choices) { s.use(entriesOfFleet{f}) })
	f.set = f.cloneSet("web")
	f.Client = oneCloneSet{f.r.Client, f.set}
	f.rebuilt(func(o *Options) { o.Client, o.Pods = f, fleetCache{f} })
	for i := range pods {
		pod := &corev1.Pod{ObjectMeta: *f.set.Spec.Template.ObjectMeta.DeepCopy(), Spec: *f.set.Spec.Template.Spec.DeepCopy()}
		pod.Namespace, pod.Name, pod.UID = testNamespace, fmt.Sprintf("web-%d", i), types.UID(fmt.Sprintf("uid-%d", i))
		pod.Labels["app"], pod.Annotations = fmt.Sprintf("web-%d", i%10), map[string]string{}
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(f.set, kruisev1alpha1.GroupVersion.WithKind("CloneSet"))}
		pod.Status = corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255),
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		}
		f.byName[client.ObjectKeyFromObject(pod)] = i
		f.pods, f.shown = append(f.pods, pod), append(f.shown, nil)
		f.move(i, appspub.LifecycleStateNormal)
	}
	if len(f.entries) != pods {
		b.Fatalf("%d entries of %d pods", len(f.entries), pods)
	}
	return f
}

func (f *fleet) update(i int) {
	for _, state := range []appspub.LifecycleStateType{
		appspub.LifecycleStatePreparingUpdate, appspub.LifecycleStateUpdated, appspub.LifecycleStateNormal,
	} {
		f.move(i, state)
	}
}

// move is a move by Kruise, and all that follows.
func (f *fleet) move(i int, state appspub.LifecycleStateType) {
	f.sleep(time.Second)
	pod := f.pods[i].DeepCopy()
	pod.Labels[appspub.LifecycleStateKey] = string(state)
	pod.Annotations[appspub.LifecycleTimestampKey] = f.clock.Now().Format(time.RFC3339)
	f.commit(i, pod)
	for f.see(i) {
		f.reconcile(pod)
	}
	f.queue.take()
}

func (f *fleet) commit(i int, pod *corev1.Pod) {
	f.version++
	pod.ResourceVersion = strconv.Itoa(f.version)
	f.pods[i] = pod
}

// see brings the cache up to date, with an event if anything is new.
func (f *fleet) see(i int) (news bool) {
	before, now := f.shown[i], lifecycle.PodOf(f.pods[i])
	switch f.shown[i] = now; {
	case before == nil:
		f.r.podEvents().Create(f.Context(), event.TypedCreateEvent[client.Object]{Object: now}, f.queue)
	case before.ResourceVersion == now.ResourceVersion:
		return false
	default:
		f.r.podEvents().Update(f.Context(), event.TypedUpdateEvent[client.Object]{ObjectOld: before, ObjectNew: now}, f.queue)
	}
	return true
}

func (f *fleet) compareAll() {
	f.sleep(time.Minute)
	l := Listing{Registry: "default", Asked: f.clock.Now(), Confirms: true}
	for _, e := range f.entries {
		l.Entries = append(l.Entries, e)
	}
	if found := f.compare(l); len(found.Missing)+found.Different+len(found.Unknown) > 0 {
		f.Fatalf("a comparison finds %+v", found)
	}
}

// Patch does what the API server does.
func (f *fleet) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
	i := f.byName[client.ObjectKeyFromObject(obj)]
	data, err := patch.Data(obj)
	if err != nil {
		return err
	}
	pod, err := patched(f.pods[i], data)
	if err != nil {
		return err
	}
	f.commit(i, pod)
	pod.ObjectMeta.DeepCopyInto(&obj.(*metav1.PartialObjectMetadata).ObjectMeta)
	return nil
}

// fleetCache has what the manager has seen.
type fleetCache struct{ *fleet }

func (c fleetCache) Get(_ context.Context, key types.NamespacedName) (*lifecycle.Pod, error) {
	return c.shown[c.byName[key]], nil
}

func (c fleetCache) List(context.Context, clusterstate.Which) ([]*lifecycle.Pod, error) {
	return c.shown, nil
}

func (c fleetCache) Each(_ context.Context, _ clusterstate.Which, do func(*lifecycle.Pod) bool) error {
	for _, pod := range c.shown {
		if !do(pod) {
			break
		}
	}
	return nil
}

// entriesOfFleet is the registry.
type entriesOfFleet struct{ *fleet }

func (r entriesOfFleet) Register(_ context.Context, in registry.Instance) error {
	r.entries[in.UID] = registry.Entry{Instance: in, State: registry.InService}
	return nil
}

func (r entriesOfFleet) FailOver(_ context.Context, in registry.Instance) error {
	r.entries[in.UID] = registry.Entry{Instance: in, State: registry.OutOfService}
	return nil
}

func (r entriesOfFleet) Deregister(_ context.Context, in registry.Instance) error {
	delete(r.entries, in.UID)
	return nil
}
