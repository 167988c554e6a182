package plugin

import (
	"strings"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/statuspage/entries"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestLeftBy: a pod has left the registry for its update, and its CloneSet shows why OpenKruise does not update it.
func TestLeftBy(t *testing.T) {
	t.Parallel()
	met := func(set *kruisev1alpha1.CloneSet) { set.Status.UpdatedReplicas = 1 }
	type row struct {
		reason string
		state  appspub.LifecycleStateType
		change func(*kruisev1alpha1.CloneSet)
		want   string
	}
	expect.Each(t, map[string]row{
		"the partition is met": {
			"another pod was updated or replaced first", appspub.LifecycleStatePreparingUpdate, met, "has 1 updated pods, and its partition allows 1",
		},
		"paused": {
			"whatever the partition", appspub.LifecycleStatePreparingUpdate,
			func(set *kruisev1alpha1.CloneSet) { met(set); set.Spec.UpdateStrategy.Paused = true }, "is paused",
		},
		"the partition was changed": {
			"what it allows is of an earlier generation", appspub.LifecycleStatePreparingUpdate,
			func(set *kruisev1alpha1.CloneSet) { met(set); set.Generation++ }, "",
		},
		"not met": {
			"maxUnavailable or another handler keeps it", appspub.LifecycleStatePreparingUpdate, func(*kruisev1alpha1.CloneSet) {}, "",
		},
		"to be deleted": {"no partition keeps a deletion", appspub.LifecycleStatePreparingDelete, met, ""},
	}, func(t *testing.T, c row) {
		set := &kruisev1alpha1.CloneSet{Status: kruisev1alpha1.CloneSetStatus{ExpectedUpdatedReplicas: 1}}
		c.change(set)
		got := leftBy(Pod{State: string(c.state), facts: facts{set: set}})
		if got != c.want && (c.want == "" || !strings.Contains(got, c.want)) {
			t.Errorf("got %q, want %q: %s", got, c.want, c.reason)
		}
	})
}

// TestDecidesAsTheManagerDid: what the pod does not show is the manager's to tell, such as that its node is drained.
func TestDecidesAsTheManagerDid(t *testing.T) {
	t.Parallel()
	pod := lifecycle.PodOf(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "prod", Name: "web-1", UID: "pod", Labels: map[string]string{appspub.LifecycleStateKey: string(appspub.LifecycleStateNormal)},
		},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	})
	for name, tc := range map[string]struct {
		reason string
		said   map[types.UID]lifecycle.Circumstances
		want   lifecycle.Row
	}{
		"no manager has answered":     {"the pod alone tells", nil, lifecycle.RowNormal},
		"the manager knows no reason": {"nor does the pod", map[types.UID]lifecycle.Circumstances{}, lifecycle.RowNormal},
		"its node is drained": {
			"only the node shows it", map[types.UID]lifecycle.Circumstances{"pod": {Ending: "its node is drained"}}, lifecycle.RowNormalNotReady,
		},
	} {
		w := &world{config: &config.Config{}, watches: func(string) bool { return true }, known: entries.Answer{Circumstances: tc.said}}
		p, _ := w.view(pod)
		if p.facts.decision.Row != tc.want {
			t.Errorf("%s: got row %d, want %d: %s", name, p.facts.decision.Row, tc.want, tc.reason)
		}
	}
}

// TestShowsPodsWithoutAShare, also if no manager answers: the pod is out, and its CloneSet gives its revision nothing.
func TestShowsPodsWithoutAShare(t *testing.T) {
	t.Parallel()
	set := &kruisev1alpha1.CloneSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "set", Annotations: map[string]string{lifecycle.AnnotationTraffic: "stable=100,canary=0"}},
		Status:     kruisev1alpha1.CloneSetStatus{CurrentRevision: "web-a", UpdateRevision: "web-b"},
	}
	for revision, want := range map[string]reason.Reason{"web-a": reason.Acknowledgement, "web-b": reason.HeldOut} {
		pod := lifecycle.PodOf(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web-1", UID: "pod", Labels: map[string]string{
				appspub.LifecycleStateKey: string(appspub.LifecycleStateNormal), "controller-revision-hash": revision,
			}, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, kruisev1alpha1.GroupVersion.WithKind("CloneSet"))}},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
		})
		w := &world{
			config: &config.Config{}, watches: func(string) bool { return true },
			workloads: map[types.UID]*clusterstate.Workload{"set": clusterstate.AsWorkload(set)},
		}
		p, _ := w.view(pod)
		got, message := reasonOn(p)
		if got != want || strings.Contains(message, "stable=100,canary=0") != (want == reason.HeldOut) {
			t.Errorf("revision %s: got %q, %q; want %q", revision, got, message, want)
		}
	}
}

// TestShowsLeftOverShares: each CloneSet once, and each of its pods if a person asks about it.
func TestShowsLeftOverShares(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"stable=0,canary=100": 1, "stable=100,canary=0": 0} {
		set := &kruisev1alpha1.CloneSet{
			ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "set", Annotations: map[string]string{lifecycle.AnnotationTraffic: text}},
			Status:     kruisev1alpha1.CloneSetStatus{CurrentRevision: "web-a", UpdateRevision: "web-a"},
		}
		w := &world{
			config: &config.Config{}, watches: func(string) bool { return true },
			workloads: map[types.UID]*clusterstate.Workload{"set": clusterstate.AsWorkload(set)},
		}
		var pods []Pod
		for _, name := range []string{"web-1", "web-2"} {
			p, _ := w.view(lifecycle.PodOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "prod", Name: name, UID: types.UID(name),
				Labels:          map[string]string{appspub.LifecycleStateKey: string(appspub.LifecycleStateNormal)},
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, kruisev1alpha1.GroupVersion.WithKind("CloneSet"))},
			}}))
			pods = append(pods, p)
		}
		var out, notes strings.Builder
		if err := (&status{pods: pods}).write(&out, &notes, terminal{}, &form{}, false); err != nil {
			t.Fatal(err)
		}
		const told = "the next update would send all requests to its first pod"
		if got := strings.Count(notes.String(), "CloneSet prod/web: annotation rollcall.dev/traffic"); got != want {
			t.Errorf("%s: status shows %d lines about it, want %d: %s", text, got, want, notes.String())
		}
		if got := strings.Contains(strings.Join(sentences(pods[0], nil), " "), told); got != (want == 1) {
			t.Errorf("%s: explain shows %q", text, sentences(pods[0], nil))
		}
	}
}
