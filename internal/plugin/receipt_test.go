package plugin

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
