package plugin

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/test/harness/bubble"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestManagers: a receipt asks the managers, and no other pod of their namespace.
func TestManagers(t *testing.T) {
	t.Parallel()
	pod := func(name, component, port string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "system", Labels: map[string]string{
				"app.kubernetes.io/name": "rollcall", "app.kubernetes.io/component": component,
			}},
			Spec:   corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: port, ContainerPort: 8080}}}}},
			Status: corev1.PodStatus{PodIP: "10.0.0.1"},
		}
	}
	other := pod("other", "manager", "metrics")
	other.Labels["app.kubernetes.io/name"] = "prometheus"
	ended, pending := pod("evicted", "manager", "metrics"), pod("pending", "manager", "metrics")
	ended.Status.Phase, pending.Status.PodIP = corev1.PodFailed, ""
	pods, err := clusterWith(
		ended, pending, pod("rollcall-0", "manager", "metrics"), pod("rollcall-1", "manager", "metrics"), pod("silent", "manager", "health"),
		pod("demo", "registry", "metrics"), other,
	).managers(t.Context())
	expect.NoError(t, err)
	var names []string
	for _, one := range pods {
		names = append(names, one.Name)
	}
	if got := strings.Join(names, " "); got != "rollcall-0 rollcall-1" {
		t.Errorf("it asks %s, want rollcall-0 rollcall-1", got)
	}
}

// TestManagersTime: what is overdue in the managers' lines is so by a manager's clock.
func TestManagersTime(t *testing.T) {
	t.Parallel()
	type row struct {
		reason  string
		objects []client.Object
		renewed time.Duration // once more, after two seconds
		want    time.Time
	}
	behind := now.Add(-3 * time.Minute)
	bubble.Each(t, map[string]row{
		"clocks agree":       {"all lines up to then are there", []client.Object{leaseHeld(now.Add(-time.Second))}, 0, now.Add(-time.Second)},
		"this one is ahead":  {"a manager renews the Lease", []client.Object{leaseHeld(behind)}, 2 * time.Second, behind.Add(2 * time.Second)},
		"this one is behind": {"no manager's clock is", []client.Object{leaseHeld(now.Add(time.Minute))}, 0, now.Add(time.Minute)},
		"no manager leads":   {"nothing is compared, which the receipt has to say", []client.Object{leaseHeld(behind)}, 0, now},
		"no Lease":           {"there is no other clock", nil, 0, now},
	}, func(t *testing.T, c row) {
		cluster := clusterWith(c.objects...)
		if c.renewed > 0 {
			time.AfterFunc(2*time.Second, func() {
				lease := leaseHeld(now)
				expect.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(lease), lease))
				lease.Spec.RenewTime.Time = lease.Spec.RenewTime.Add(c.renewed)
				expect.NoError(t, cluster.Update(t.Context(), lease))
			})
		}
		if got := cluster.managersTime(t.Context()); !got.Equal(c.want) {
			t.Errorf("the lines are judged as of %s, want %s: %s", got, c.want, c.reason)
		}
	})
}
