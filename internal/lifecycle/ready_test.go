package lifecycle

import (
	"slices"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestWasReady(t *testing.T) {
	t.Parallel()
	start := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	condition := func(kind corev1.PodConditionType, status corev1.ConditionStatus, after time.Duration) PodCondition {
		return PodCondition{Type: kind, Status: status, LastTransitionTime: metav1.NewTime(start.Add(after))}
	}
	type row struct {
		reason     string
		started    *metav1.Time
		conditions []PodCondition
		want       bool
	}
	expect.Each(t, map[string]row{
		"ready":        {"it is", &start, []PodCondition{condition(corev1.PodReady, corev1.ConditionTrue, time.Minute)}, true},
		"just created": {"kubelet has not seen it", nil, nil, false},
		"starts":       {"kubelet writes both with the start", &start, []PodCondition{condition(corev1.PodReady, corev1.ConditionFalse, 0)}, false},
		"starts, a second apart": {
			"kubelet takes the time twice", &start, []PodCondition{condition(corev1.PodReady, corev1.ConditionFalse, time.Second)}, false,
		},
		"turned unready": {"it was ready until then", &start, []PodCondition{condition(corev1.PodReady, corev1.ConditionFalse, time.Minute)}, true},
		"its containers were ready, and a gate never": {
			"Ready never was true, and the application has run", &start, []PodCondition{
				condition(corev1.PodReady, corev1.ConditionFalse, 0), condition(corev1.ContainersReady, corev1.ConditionFalse, time.Minute),
			}, true,
		},
		"another condition changed": {
			"init containers take their time", &start, []PodCondition{
				condition(corev1.PodInitialized, corev1.ConditionTrue, time.Minute), condition(corev1.PodReady, corev1.ConditionFalse, 0),
			}, false,
		},
		"no start is known": {
			"nothing tells how old the condition is", nil, []PodCondition{condition(corev1.PodReady, corev1.ConditionFalse, time.Minute)}, false,
		},
	}, func(t *testing.T, tc row) {
		pod := &Pod{Status: PodStatus{StartTime: tc.started, Conditions: tc.conditions}}
		expect.Equal(t, tc.want, WasReady(pod), "%s", tc.reason)
	})
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		port   corev1.ContainerPort
		change func(*Pod)
		want   []string
	}
	expect.Each(t, map[string]row{
		"one":            {"", corev1.ContainerPort{ContainerPort: 80}, func(*Pod) {}, []string{"10.0.0.1"}},
		"two":            {"", corev1.ContainerPort{ContainerPort: 80}, dualStack, []string{"10.0.0.1", "fd00::1"}},
		"the node's":     {"no other pod has that port there", corev1.ContainerPort{HostPort: 80}, dualStack, []string{"10.0.0.1", "192.0.2.1", "fd00::1"}},
		"another port":   {"it is another pod's, or the node's own", corev1.ContainerPort{HostPort: 81}, func(*Pod) {}, []string{"10.0.0.1"}},
		"at one address": {"others may have it at another", corev1.ContainerPort{HostPort: 80, HostIP: "127.0.0.1"}, func(*Pod) {}, []string{"10.0.0.1"}},
		"over UDP":       {"registries know no protocols", corev1.ContainerPort{HostPort: 80, Protocol: corev1.ProtocolUDP}, func(*Pod) {}, []string{"10.0.0.1", "192.0.2.1"}},
		"its containers ended": {
			"others may have its addresses", corev1.ContainerPort{HostPort: 80}, func(pod *Pod) { pod.Status.Phase = corev1.PodFailed }, nil,
		},
		"it has none yet": {"the node's is there first", corev1.ContainerPort{HostPort: 80}, func(pod *Pod) { pod.Status.PodIP = "" }, nil},
	}, func(t *testing.T, tc row) {
		pod := &Pod{
			Spec: PodSpec{Containers: []Container{{Name: "agent"}, {Name: "web", Ports: []corev1.ContainerPort{tc.port}}}},
			Status: PodStatus{
				PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}, HostIP: "192.0.2.1", HostIPs: []corev1.HostIP{{IP: "192.0.2.1"}},
			},
		}
		tc.change(pod)
		if got := AddressesOf(pod, 80); !slices.Equal(got, tc.want) {
			t.Errorf("got %v, want %v: %s", got, tc.want, tc.reason)
		}
	})
}

func dualStack(pod *Pod) {
	pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: "fd00::1"})
}

// TestAssertionOfAPodThatLostAnAddress: what TestEveryInput has no pod with.
func TestAssertionOfAPodThatLostAnAddress(t *testing.T) {
	t.Parallel()
	pod := podIn(appspub.LifecycleStatePreparingNormal)
	pod.Status.PodIP, pod.Annotations[AnnotationNetworks] = "10.0.0.1", `[{"name": "storage", "ips": ["172.16.0.1"]}]`
	pod.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}}
	patch, err := patchOf(pod, Hooks{}, Edit{Set: []Handler{label("example.com/in", "true")}}, nil)
	expect.NoError(t, err)
	_, err = applyPatch(t, pod, patch)
	expect.NoError(t, err)
	for name, lose := range map[string]func(*Pod){
		"the second":    func(p *Pod) { p.Status.PodIPs[1].IP = "fd00::2" },
		"on a network":  func(p *Pod) { p.Annotations[AnnotationNetworks] = "[]" },
		"every network": func(p *Pod) { delete(p.Annotations, AnnotationNetworks) },
	} {
		moved := pod.DeepCopy()
		if lose(moved); moved.Status.PodIP != pod.Status.PodIP {
			t.Fatal("the first address tells it")
		}
		if _, err := applyPatch(t, moved, patch); err == nil {
			t.Errorf("%s: the patch was applied all the same: %s", name, patch)
		}
	}
}
