package clusterstate

import (
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// revisionPod is a ready pod of the CloneSet web, whose record shows it in rotation.
func revisionPod(name, revision, version string, change ...func(*corev1.Pod)) *lifecycle.Pod {
	pod := peerPod("shop", name, true, "web")
	pod.ResourceVersion, pod.Labels[appsv1.ControllerRevisionHashLabelKey] = version, revision
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(
		&kruisev1alpha1.CloneSet{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "web"}}, kruisev1alpha1.GroupVersion.WithKind(KindCloneSet))}
	for _, c := range change {
		c(pod)
	}
	return lifecycle.PodOf(pod)
}

func TestRevisions(t *testing.T) {
	t.Parallel()
	p, s := newPanics(newClaims(), &Records{}), &Rules{PanicThreshold: 50}
	counts := func(why string, stable, others Count) {
		t.Helper()
		ofStable, ofOthers := p.Revisions.Of("web", "a")
		expect.Equal(t, [2]Count{stable, others}, [2]Count{ofStable, ofOthers}, "%s", why)
	}
	changed := func(why string, want ...types.UID) {
		t.Helper()
		select {
		case <-p.Revisions.Signal():
		default:
		}
		expect.Equal(t, want, p.Revisions.TakeChanged(), "%s", why)
	}
	counts("there is none", Count{}, Count{})
	unknown := func(pod *corev1.Pod) { delete(pod.Annotations, lifecycle.AnnotationRecord) }
	p.Arrived(revisionPod("a-1", "web-a", "1"), s)
	p.Arrived(revisionPod("a-2", "a", "1"), s)
	p.Arrived(revisionPod("b-1", "web-b", "1", unknown), s)
	p.Arrived(revisionPod("c-1", "web-c", "1"), s)
	changed("nobody has asked")
	counts("one is about to be in rotation, and a third revision is not stable", Count{2, 2}, Count{2, 1})

	p.Arrived(revisionPod("a-1", "web-a", "2"), s)
	changed("it counts as before")
	p.Arrived(revisionPod("b-1", "web-b", "2"), s)
	p.Arrived(revisionPod("b-2", "web-b", "1"), s)
	changed("one signal for two changes", "web")
	changed("and no other, until somebody asks")
	counts("they are in", Count{2, 2}, Count{3, 3})

	held := revisionPod("b-2", "web-b", "1")
	in := lifecycle.Input{Pod: held, Record: lifecycle.RecordOf(held)}
	p.Refresh(in.HoldOut(lifecycle.Hold{}), s)
	changed("a person holds one out", "web")
	counts("it does not serve", Count{2, 2}, Count{2, 2})
	p.Refresh(in.LeaveOut(lifecycle.Traffic{}), s)
	counts("without a share it would serve", Count{2, 2}, Count{3, 3})
	p.Arrived(revisionPod("b-2", "web-b", "2", func(pod *corev1.Pod) {
		pod.Labels[appspub.LifecycleStateKey] = string(appspub.LifecycleStatePreparingDelete)
	}), s)
	counts("it leaves", Count{2, 2}, Count{2, 2})

	for _, name := range []string{"a-1", "a-2", "b-1", "b-2", "c-1"} {
		p.Forget(revisionPod(name, "", "").UID, s)
	}
	expect.Equal(t, 0, len(p.pods)+len(p.services)+len(p.Revisions.sets), "all pods are gone, and %v %v %v is left", p.pods, p.services, p.Revisions.sets)
}

func TestSameTraffic(t *testing.T) {
	t.Parallel()
	set := func(shares, current, update string) *kruisev1alpha1.CloneSet {
		set := &kruisev1alpha1.CloneSet{Status: kruisev1alpha1.CloneSetStatus{CurrentRevision: current, UpdateRevision: update}}
		if shares != "" {
			set.Annotations = map[string]string{lifecycle.AnnotationTraffic: shares}
		}
		return set
	}
	type row struct {
		reason   string
		old, now *kruisev1alpha1.CloneSet
		want     bool
	}
	expect.Each(t, map[string]row{
		"nothing":        {"", set("x", "a", "b"), set("x", "a", "b"), true},
		"other shares":   {"they are no part of the generation", set("x", "a", "b"), set("y", "a", "b"), false},
		"first shares":   {"they begin to apply", set("", "a", "b"), set("x", "a", "b"), false},
		"no shares":      {"they end", set("x", "a", "b"), set("", "a", "b"), false},
		"a new revision": {"pods are no longer stable", set("x", "a", "b"), set("x", "b", "b"), false},
		"an update":      {"there is a canary now", set("x", "a", "a"), set("x", "a", "b"), false},
		"not shared out": {"each rollout would cost a look at all pods", set("", "a", "a"), set("", "a", "b"), true},
	}, func(t *testing.T, tc row) { expect.Equal(t, tc.want, SameTraffic(tc.old, tc.now), "%s", tc.reason) })
}
