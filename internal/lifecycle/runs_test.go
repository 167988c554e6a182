package lifecycle

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestRuns(t *testing.T) {
	t.Parallel()
	web := Container{Name: "web", Ports: []corev1.ContainerPort{{ContainerPort: 8080, HostPort: 31080}}}
	sidecar := Container{Name: "side", Ports: []corev1.ContainerPort{{ContainerPort: 8080}}, Sidecar: true}
	mesh := Container{Name: "mesh", Ports: []corev1.ContainerPort{{ContainerPort: 15090}}, Sidecar: true}
	proxy, silent := Container{Name: "proxy", Ports: []corev1.ContainerPort{{ContainerPort: 9901}}}, Container{Name: "silent"}
	type row struct {
		reason     string
		containers []Container
		ended      []string
		phase      corev1.PodPhase
		port       int
		want       bool
	}
	expect.Each(t, map[string]row{
		"its container runs":           {"it answers", []Container{web, proxy}, []string{"proxy"}, "", 8080, true},
		"its container has ended":      {"a sidecar does not answer in its stead", []Container{web, proxy}, []string{"web"}, "", 8080, false},
		"at the node's port":           {"the hostPort is that container's", []Container{web, proxy}, []string{"web"}, "", 31080, false},
		"at the node's port, it runs":  {"the same", []Container{web, proxy}, []string{"proxy"}, "", 31080, true},
		"no container declares it":     {"any may answer", []Container{proxy, silent}, []string{"proxy"}, "", 8080, true},
		"none that may answer runs":    {"nothing does", []Container{proxy, silent}, []string{"proxy", "silent"}, "", 8080, false},
		"kubelet has yet to report":    {"unknown is not ended", []Container{web}, nil, "", 8080, true},
		"the pod has ended":            {"all have", []Container{web}, nil, corev1.PodFailed, 8080, false},
		"its sidecar runs":             {"an application can be one", []Container{silent, sidecar}, []string{"silent"}, "", 8080, true},
		"its sidecar has ended":        {"it does not answer", []Container{silent, sidecar}, []string{"side"}, "", 8080, false},
		"only a sidecar without it":    {"a proxy does not answer in its stead", []Container{silent, mesh}, []string{"silent"}, "", 8080, false},
		"the cache knows no container": {"unknown is not ended", nil, nil, "", 8080, true},
	}, func(t *testing.T, tc row) {
		pod := &Pod{Spec: PodSpec{Containers: tc.containers}, Status: PodStatus{Phase: tc.phase, NotRunning: tc.ended}}
		expect.Equal(t, tc.want, Runs(pod, tc.port), "%s", tc.reason)
	})
}

func TestFinished(t *testing.T) {
	t.Parallel()
	two := []Container{{Name: "web"}, {Name: "proxy"}}
	deleted := &metav1.Time{Time: time.Unix(1, 0)}
	type row struct {
		reason     string
		phase      corev1.PodPhase
		deleted    *metav1.Time
		containers []Container
		ended      []string
		want       bool
	}
	expect.Each(t, map[string]row{
		"runs":                           {"its containers do", corev1.PodRunning, nil, two, nil, false},
		"crash loop":                     {"kubelet starts them again", corev1.PodRunning, nil, two, []string{"web", "proxy"}, false},
		"failed":                         {"kubelet has evicted it", corev1.PodFailed, nil, two, nil, true},
		"succeeded":                      {"no container is started again", corev1.PodSucceeded, nil, two, nil, true},
		"deleted":                        {"its containers stop", corev1.PodRunning, deleted, two, nil, false},
		"deleted, and one has ended":     {"the other may serve still", corev1.PodRunning, deleted, two, []string{"proxy"}, false},
		"deleted, and all have ended":    {"its phase stays before Kubernetes 1.27", corev1.PodRunning, deleted, two, []string{"web", "proxy"}, true},
		"deleted, of containers unknown": {"unknown is not ended", corev1.PodRunning, deleted, nil, nil, false},
	}, func(t *testing.T, tc row) {
		pod := &Pod{
			ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: tc.deleted}, Spec: PodSpec{Containers: tc.containers},
			Status: PodStatus{Phase: tc.phase, PodIP: "10.0.0.1", NotRunning: tc.ended},
		}
		expect.Equal(t, tc.want, Finished(pod), "%s", tc.reason)
		expect.Equal(t, tc.want, AddressOf(pod) == "", "its address may be another's: %s", tc.reason)
	})
}
