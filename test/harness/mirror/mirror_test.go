package mirror

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

func TestMirror(t *testing.T) {
	t.Parallel()
	to := fakeregistry.New(fakeregistry.Memory(t.Context()))
	k8s := fake.NewClientBuilder().WithStatusSubresource(&corev1.Pod{}).Build()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1", Namespace: "e2e", UID: "uid-1", Finalizers: []string{"example.io/held"}}}
	expect.NoError(t, k8s.Create(t.Context(), pod))
	ready := corev1.PodStatus{PodIP: "10.0.0.1", Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	become := func(status corev1.PodStatus) func() error {
		return func() error {
			pod.Status = status
			return k8s.Status().Update(t.Context(), pod)
		}
	}
	m := New(k8s, to, "e2e", 80)
	for _, step := range []struct {
		reason  string
		change  func() error
		failing bool
		want    int
	}{
		{"a pod with no address can't be reached", become(corev1.PodStatus{Conditions: ready.Conditions}), false, 0},
		{"the registry fails", become(ready), true, 0},
		{"what failed is tried again", become(ready), false, 1},
		{"the registry fails again", become(corev1.PodStatus{PodIP: ready.PodIP}), true, 1},
		{"a pod that is not ready is out", become(corev1.PodStatus{PodIP: ready.PodIP}), false, 0},
		{"a pod that is ready again is in", become(ready), false, 1},
		{"a pod that is being deleted is out", func() error { return k8s.Delete(t.Context(), pod) }, false, 0},
	} {
		expect.NoError(t, step.change())
		stop := func() {}
		if step.failing {
			stop = to.Fail(fakeregistry.Match{}, errors.New("out of order"))
		}
		m.pass(t.Context())
		stop()
		entries, err := to.Truth(t.Context(), Cluster)
		if err != nil || len(entries) != step.want {
			t.Errorf("%s: %d entries, %v, want %d", step.reason, len(entries), err, step.want)
		}
	}
}
