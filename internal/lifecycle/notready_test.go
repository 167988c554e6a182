package lifecycle

import (
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestPodShowsWhyItIsNotReady(t *testing.T) {
	t.Parallel()
	type change = func(*corev1.Pod)
	status := func(s corev1.ContainerStatus) change {
		return func(pod *corev1.Pod) { pod.Status.ContainerStatuses[0] = s }
	}
	waiting := func(reason, message string) change {
		return status(corev1.ContainerStatus{Name: "web", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message},
		}})
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	killed := &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}
	runs := status(corev1.ContainerStatus{Name: "web", Started: new(true), State: running})
	condition := func(c corev1.PodCondition) change {
		return func(pod *corev1.Pod) { pod.Status.Conditions = append(pod.Status.Conditions, c) }
	}
	gate := func(kind corev1.PodConditionType) change {
		return func(pod *corev1.Pod) {
			pod.Spec.ReadinessGates = append(pod.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: kind})
		}
	}
	probe := func(p corev1.ProbeHandler) change {
		return func(pod *corev1.Pod) { pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: p} }
	}
	get := corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromString("http")}}
	const shop = "example.com/shop-open"

	type row struct {
		reason string
		change []change
		want   string
	}
	expect.Each(t, map[string]row{
		"ready": {"nothing is missing", []change{condition(corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})}, ""},
		"ready but for our gate": {"that is not what is missing", []change{gate(ConditionInRotation),
			condition(corev1.PodCondition{Type: corev1.PodReady, Reason: gatesNotReady}),
			condition(corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionTrue})}, ""},
		"evicted": {"kubelet says why", []change{func(pod *corev1.Pod) { pod.Status.Message = "The node was low on resource: memory." }},
			"The node was low on resource: memory."},
		"no image": {"kubelet's words, in one line", []change{waiting("ErrImagePull", "no such\nimage")}, "container web: ErrImagePull: no such image"},
		"no image, in an update in place": {"the old container has ended as it should", []change{
			status(corev1.ContainerStatus{Name: "web", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}},
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}),
			gate(appspub.InPlaceUpdateReady), condition(corev1.PodCondition{Type: appspub.InPlaceUpdateReady, Status: corev1.ConditionFalse}),
		}, "container web: ImagePullBackOff"},
		"crashes": {"how it last ended is what a person looks for", []change{
			status(corev1.ContainerStatus{Name: "web", LastTerminationState: corev1.ContainerState{Terminated: killed},
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 5m0s"}}}),
		}, "container web: CrashLoopBackOff, last exit code 137: OOMKilled"},
		"has ended": {"it may start again", []change{status(corev1.ContainerStatus{Name: "web", State: corev1.ContainerState{Terminated: killed}})},
			"container web: exit code 137: OOMKilled"},
		"nothing of its state": {"kubelet means waiting", []change{status(corev1.ContainerStatus{Name: "web"})}, "container web: waiting to start"},
		"starts": {"the readiness probe is not made yet", []change{status(corev1.ContainerStatus{Name: "web", State: running}), probe(get),
			func(pod *corev1.Pod) { pod.Spec.Containers[0].StartupProbe = &corev1.Probe{ProbeHandler: get} }},
			"container web is running, and its startup probe (GET :http/healthz) has not succeeded"},
		"probe by HTTP": {"a person can try the same", []change{runs, probe(get)},
			"container web is running, and its readiness probe (GET :http/healthz) fails"},
		"probe by TCP": {"the same", []change{runs, probe(corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(80)}})},
			"container web is running, and its readiness probe (TCP :80) fails"},
		"probe by gRPC": {"the same", []change{runs, probe(corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 9000}})},
			"container web is running, and its readiness probe (gRPC :9000) fails"},
		"probe by a command": {"which may hold a secret", []change{runs, probe(corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"x"}}})},
			"container web is running, and its readiness probe (a command) fails"},
		"no probe": {"kubelet may be late", []change{runs}, "container web is running, and not ready"},
		"init container": {"the others wait for it", []change{waiting("PodInitializing", ""), func(pod *corev1.Pod) {
			pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "schema", State: corev1.ContainerState{Terminated: killed}}}
		}}, "container schema: exit code 137: OOMKilled"},
		"two containers": {"a person wants to know both", []change{runs, func(pod *corev1.Pod) {
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: "proxy", State: running})
		}}, "container web is running, and not ready; container proxy is running, and not ready"},
		"a gate that nothing sets": {"its controller may not be installed", []change{gate(shop)}, "readiness gate example.com/shop-open is not set"},
		"a gate that is shut": {"its controller's own words", []change{gate(shop), condition(corev1.PodCondition{
			Type: shop, Status: corev1.ConditionFalse, Reason: "Closed", Message: "it is night",
		})}, "readiness gate example.com/shop-open is False: Closed: it is night"},
		"OpenKruise's gate of updates": {"its message is for programs", []change{gate(appspub.InPlaceUpdateReady), condition(corev1.PodCondition{
			Type: appspub.InPlaceUpdateReady, Status: corev1.ConditionFalse, Reason: "StartInPlaceUpdate",
		})}, "readiness gate InPlaceUpdateReady: OpenKruise has not seen the updated containers run"},
		"OpenKruise's gate of hooks": {"the same", []change{gate(appspub.KruisePodReadyConditionType), condition(corev1.PodCondition{
			Type: appspub.KruisePodReadyConditionType, Status: corev1.ConditionFalse, Message: lifecycleKey,
		})}, "readiness gate KruisePodReady: OpenKruise holds the pod not ready, for a hook with markPodNotReady or a restart of containers"},
		"not scheduled": {"the scheduler's own words", []change{func(pod *corev1.Pod) { pod.Spec.NodeName, pod.Status.ContainerStatuses = "", nil },
			condition(corev1.PodCondition{Type: corev1.PodScheduled, Reason: "Unschedulable", Message: "0/3 nodes are available"})},
			"the pod is not scheduled: Unschedulable: 0/3 nodes are available"},
		"nothing from kubelet": {"it may be down", []change{func(pod *corev1.Pod) { pod.Status.ContainerStatuses = nil }},
			"no container has been started on node node-1"},
		"the node is lost": {"Kubernetes shuts Ready alone", []change{condition(corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse})},
			"its containers and readiness gates are ready, and its condition Ready is not True; node node-1 may be lost"},
	}, func(t *testing.T, tc row) {
		pod := &corev1.Pod{
			Spec:   corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "web"}}},
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "web", Ready: true, State: running}}},
		}
		for _, change := range tc.change {
			change(pod)
		}
		got := PodOf(pod).Status.NotReady
		if got != tc.want {
			t.Errorf("got  %q\nwant %q\nreason: %s", got, tc.want, tc.reason)
		}
	})

	long := &corev1.Pod{Status: corev1.PodStatus{Message: strings.Repeat("long\n", 1000)}}
	if got := PodOf(long).Status.NotReady; len(got) > 310 || strings.Contains(got, "\n") {
		t.Errorf("it is to be one short line, got %q", got)
	}
}

func TestAwaitsReadiness(t *testing.T) {
	t.Parallel()
	here := []Key{{Address: "10.0.0.1"}}
	for name, tc := range map[string]struct {
		row    Row
		record Record
		want   bool
	}{
		"updated, not ready":           {RowUpdatedNotReady, Record{}, true},
		"new, not ready":               {RowPreparingNormalUnfit, Record{}, true},
		"Normal, never put in":         {RowNormalNotReady, Record{}, true},
		"Normal, taken out":            {RowNormalNotReady, Record{Want: OutOfService, Instances: here}, true},
		"Normal, kept":                 {RowNormalNotReady, Record{Want: InService, Instances: here}, false},
		"Normal, kept, at a new place": {RowNormalNotReady, Record{Want: InService, Instances: []Key{{Address: "10.0.0.9"}}}, true},
		"Normal, ready":                {RowNormal, Record{}, false},
		"updated in place":             {RowUpdating, Record{}, false},
	} {
		in := Input{Pod: &Pod{Status: PodStatus{PodIP: "10.0.0.1"}}, Record: tc.record}
		expect.Equal(t, tc.want, in.AwaitsReadiness(Decision{Row: tc.row}), "%s", name)
	}
}

func TestUnreadySince(t *testing.T) {
	t.Parallel()
	since := time.Unix(1000, 0)
	pod := &Pod{}
	if got := UnreadySince(pod); !got.IsZero() {
		t.Errorf("without a condition nothing is known, got %s", got)
	}
	pod.Status.Conditions = []PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(since)}}
	if got := UnreadySince(pod); !got.Equal(since) {
		t.Errorf("got %s, want %s", got, since)
	}
	pod.Status.Conditions[0].Status = corev1.ConditionTrue
	if got := UnreadySince(pod); !got.IsZero() {
		t.Errorf("it is ready, got %s", got)
	}
}
