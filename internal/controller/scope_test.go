package controller

import (
	"context"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

const (
	mine   = "shop"
	theirs = "other"
)

// selecting is a world whose manager has the namespaces with the label team=shop.
type selecting struct {
	*world

	namespaces toolscache.Indexer
}

func newSelecting(t *testing.T) *selecting {
	t.Helper()
	s := &selecting{world: newWorld(t), namespaces: toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, nil)}
	scope := clusterstate.NewScope(service.Namespaces{Selector: labels.SelectorFromSet(labels.Set{"team": mine})}, nil)
	scope.Follow(s.namespaces)
	s.rebuilt(func(o *Options) { o.State = clusterstate.New(o.Client, o.Pods, scope) })
	return s
}

// label labels the pods' namespace, which is not there before the first time.
func (s *selecting) label(team string) { s.Helper(); s.labelOf(testNamespace, team) }

func (s *selecting) labelOf(namespace, team string) {
	s.Helper()
	now := clusterstate.NamespaceMetadata()
	now.Name, now.UID, now.Labels = namespace, types.UID("uid-of-"+namespace), map[string]string{"team": team}
	object, exists, err := s.namespaces.GetByKey(namespace)
	s.must(err, "reading the namespace")
	s.must(s.namespaces.Add(now), "labelling the namespace")
	s.queue.take()
	if !exists {
		s.r.namespaceEvents().Create(s.Context(), event.TypedCreateEvent[*metav1.PartialObjectMetadata]{Object: now}, s.queue)
	} else {
		s.r.namespaceEvents().Update(s.Context(), event.TypedUpdateEvent[*metav1.PartialObjectMetadata]{
			ObjectOld: object.(*metav1.PartialObjectMetadata), ObjectNew: now}, s.queue)
	}
}

// vanish deletes the namespace from the cache, which may see that before the end of its pods.
func (s *selecting) vanish() {
	s.Helper()
	object, _, err := s.namespaces.GetByKey(testNamespace)
	s.must(err, "reading the namespace")
	s.must(s.namespaces.Delete(object), "deleting the namespace")
	s.r.namespaceEvents().Delete(s.Context(), event.TypedDeleteEvent[*metav1.PartialObjectMetadata]{
		Object: object.(*metav1.PartialObjectMetadata)}, s.queue)
	s.queue.take()
}

func (s *selecting) expectKnown(why string, pod *corev1.Pod, want bool) {
	s.Helper()
	if got := s.r.Tracker.Has(pod.UID); got != want {
		s.Errorf("pod %s is known: %t, want %t: %s", pod.Name, got, want, why)
	}
}

// TestNamespaceIsTakenIn: its pods do what they waited for, and count as there before.
func TestNamespaceIsTakenIn(t *testing.T) {
	t.Parallel()
	expect.Each(t, map[string]func(*selecting){
		"not there yet": func(*selecting) {},
		"of another":    func(s *selecting) { s.label(theirs) },
	}, func(t *testing.T, before func(*selecting)) {
		s := newSelecting(t)
		before(s)
		web := s.cloneSet("web")
		s.queue.take()
		pod := s.bornPod(web, "web-1")
		s.expectAsked("its namespace is not this manager's")
		s.expectKnown("what others have costs nothing", pod, false)

		s.label(mine)
		s.expectAsked("it waits", "web-1")
		s.reconcile(pod)
		s.expectInService(pod)
		if known := s.r.Tracker.Open(lifecycle.PodIDOf(lifecycle.PodOf(pod))).Known(); known.Born() {
			t.Error("the pod counts as one that this process has seen come, and another may have registered it")
		}
	})
}

// TestNamespaceIsLeft: nothing is written and called there, nothing is known of it, and it can come back.
func TestNamespaceIsLeft(t *testing.T) {
	t.Parallel()
	s := newSelecting(t)
	s.label(mine)
	web := s.cloneSet("web")
	pod := s.servingPod(web, "web-1")

	s.label(theirs)
	s.expectAsked("what is known of it is dropped", "web-1")
	s.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	s.reconciles(pod, "it is left alone")
	s.expectKnown("no heartbeat is sent for it", pod, false)
	s.expectInService(pod)
	s.expectHooks("another manager may hold it", pod, "preNormal inPlaceUpdate preDelete")
	s.expectWaits("no metric counts it")
	s.removePod(pod)
	s.expectAsked("its end is another's")

	next := s.bornPod(web, "web-2")
	s.expectAsked("it is another's too")
	s.label(mine)
	s.expectAsked("it waits", "web-2")
	s.reconcile(next)
	s.expectInService(next)
}

// TestNamespaceIsLeft_CallsUnderWay: what may still be carried out is not forgotten, for the namespace may come back.
func TestNamespaceIsLeft_CallsUnderWay(t *testing.T) {
	t.Parallel()
	s := newSelecting(t)
	s.label(mine)
	pod := s.bornPod(s.cloneSet("web"), "web-1")
	s.registry.FailNext(fakeregistry.Match{Op: fakeregistry.OpRegister}, context.DeadlineExceeded)
	s.reconcile(pod)
	s.label(theirs)
	again := s.reconcile(pod).RequeueAfter
	if again <= 0 {
		t.Fatal("the pod is forgotten while a call may be carried out")
	}
	s.expectKnown("the call may be carried out", pod, true)
	s.sleep(again + time.Second)
	s.reconcile(pod)
	s.expectKnown("it may not any more", pod, false)
}

// TestNamespaceIsDeleted: the cache can see that before the end of its pods, whose entries must go.
func TestNamespaceIsDeleted(t *testing.T) {
	t.Parallel()
	s := newSelecting(t)
	s.label(mine)
	pod := s.servingPod(s.cloneSet("web"), "web-1")
	s.vanish()
	s.removePod(pod)
	s.expectAsked("it was this manager's", "web-1")
	s.reconcile(pod)
	s.expectAbsent(pod)
}

// TestNamespaceComesBackWithoutAPod: a label that is taken off for a moment must not hide the end of a pod, whose entry would stay.
func TestNamespaceComesBackWithoutAPod(t *testing.T) {
	t.Parallel()
	for name, visited := range map[string]bool{"before the pod is visited": false, "while a call may be carried out": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSelecting(t)
			s.label(mine)
			web := s.cloneSet("web")
			pod := s.servingPod(web, "web-1")
			if visited {
				s.registry.FailNext(fakeregistry.Match{Op: fakeregistry.OpFailOver}, context.DeadlineExceeded)
				s.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)
				s.reconcile(pod)
			}
			s.label(theirs)
			if visited {
				s.reconcile(pod)
			}
			s.removePod(pod)
			s.label(mine)
			s.reconcile(pod)
			s.expectAbsent(pod)
			s.sleep(time.Minute)
			s.reconcile(pod)
			s.expectKnown("nothing is left of it", pod, false)
		})
	}
}

// TestNamespaceComesBackWhileAPodEnds: its event comes after the pods of the namespace were listed, and before they are taken in.
func TestNamespaceComesBackWhileAPodEnds(t *testing.T) {
	t.Parallel()
	s := newSelecting(t)
	s.label(mine)
	pod := s.servingPod(s.cloneSet("web"), "web-1")
	s.label(theirs)
	s.reconcile(pod)
	s.expectKnown("it was left alone", pod, false)
	s.rebuilt(func(o *Options) { o.Pods = &endingAfterList{o.Pods, func() { s.removePod(pod) }} })
	s.label(mine)
	s.reconcile(pod)
	s.expectAbsent(pod)
}

// endingAfterList is a cache in which something ends after the first list.
type endingAfterList struct {
	clusterstate.Pods

	end func()
}

func (e *endingAfterList) List(ctx context.Context, which clusterstate.Which) ([]*lifecycle.Pod, error) {
	pods, err := e.Pods.List(ctx, which)
	if end := e.end; end != nil {
		e.end = nil
		end()
	}
	return pods, err
}

// TestNamespaceOutsideHasNoClaim: a workload that nobody here takes care of keeps no name, however old its namespace.
func TestNamespaceOutsideHasNoClaim(t *testing.T) {
	t.Parallel()
	s := newSelecting(t)
	s.label(theirs)
	s.cloneSet("web")
	pod := s.bornPod(s.cloneSet("web", inNamespace("younger")), "web-1")
	s.labelOf("younger", mine)
	s.reconcile(pod)
	s.expectInService(pod)

	s.label(mine)
	next := s.bornPod(s.cloneSet("api"), "api-1", func(pod *corev1.Pod) { pod.Annotations[service.AnnotationServices] = "web=8080" })
	s.reconcile(next)
	s.expectAbsent(next)
}
