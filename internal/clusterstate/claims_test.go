package clusterstate

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

// TestARegisterThatCanLandKeepsTheName has a Register time out over an entry that the registry then loses.
func TestARegisterThatCanLandKeepsTheName(t *testing.T) {
	t.Parallel()
	const ours, theirs = "shop", "other"
	now := time.Now()
	id := func(namespace string) lifecycle.PodID {
		return lifecycle.PodID{UID: types.UID(namespace), NamespacedName: types.NamespacedName{Namespace: namespace, Name: "web-1"}}
	}
	use := func(namespace string) Use {
		return Use{Rules: &Rules{}, Pod: id(namespace), Service: "web", Now: now}
	}
	in := lifecycle.Recorded{Registry: "default", Service: "web", Address: "10.0.0.1", Port: 80}
	c := newClaims()
	c.observed(map[string]namespaceFacts{theirs: {created: now.Add(-time.Hour)}, ours: {created: now}}, nil, now)

	if refused := c.Take(use(ours), true, in, now.Add(10*time.Second)); refused != nil {
		t.Fatal(refused.Message)
	}
	for seconds, entries := range [][]Entry{{{Recorded: in, Pod: id(ours)}}, nil} {
		at := now.Add(time.Duration(1+seconds) * time.Second)
		c.Listed("default", "default/app", entries, at, at)
		if refused, _ := c.Ask(use(theirs)); refused == nil {
			t.Errorf("%s has the name after list %d, while a Register of %s can still be carried out", theirs, 1+seconds, ours)
		}
	}
	after := now.Add(11 * time.Second)
	c.Listed("default", "default/app", nil, after, after)
	if refused, _ := c.Ask(use(theirs)); refused != nil {
		t.Error(refused.Message)
	}
}

func TestClaimsGoByTheNewNameOfARegistry(t *testing.T) {
	t.Parallel()
	now := time.Now()
	pod := lifecycle.PodID{UID: "u", NamespacedName: types.NamespacedName{Namespace: "shop", Name: "web-1"}}
	former := lifecycle.Recorded{Registry: "default", Service: "web", Address: "10.0.0.1", Port: 80}
	main := former
	main.Registry = "main"
	c := newClaims()
	c.Acknowledged(pod, former)
	c.reconfigured(func(lifecycle.Recorded) (lifecycle.Recorded, bool) { return main, true }, now)
	if pods, names := c.Size(); pods != 1 || names != 1 {
		t.Errorf("after the new name %d pods hold %d names, want one: the pod is registered", pods, names)
	}
	c.Acknowledged(pod, former) // by a call that began before
	c.Removed(pod.UID, main, now)
	if pods, _ := c.Size(); pods != 0 {
		t.Error("the pod holds the name that it has left, under the former name of the registry")
	}
}

func TestRecordOfAnApplicationsEntry(t *testing.T) {
	t.Parallel()
	read := time.Now()
	everything := func(in lifecycle.Recorded) (lifecycle.Recorded, bool) { return in, true }
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web-1", UID: "u", Annotations: map[string]string{lifecycle.AnnotationRecord: `{"stamp":{"uid":"u"},"want":"InService",` +
			`"instances":[{"registry":"default/app","service":"web","address":"10.0.0.1","port":80}]}`},
	}}
	for name, tc := range map[string]struct {
		reason string
		asOf   time.Duration // that the list is as of, after the records were read
		pods   int
	}{
		"a list of before, or one that may be so stale": {"the reconciler has yet to ask about the pod", -time.Second, 1},
		"a list of after": {"by then it was asked, and the registry has acknowledged nothing", time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClaims()
			c.recorded([]corev1.Pod{pod}, everything, read)
			c.Listed("default", "default/app", nil, read.Add(tc.asOf), read.Add(time.Second))
			if pods, _ := c.Size(); pods != tc.pods {
				t.Errorf("%d pods hold the name, want %d: %s", pods, tc.pods, tc.reason)
			}
		})
	}
}
