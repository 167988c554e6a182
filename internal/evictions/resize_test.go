package evictions

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

const updateHookKey = "example.com/update"

// sized has a container that restarts for memory, and a sidecar that restarts for CPU.
func sized(pod *corev1.Pod) {
	always := corev1.ContainerRestartPolicyAlways
	pod.Labels[updateHookKey] = "true"
	pod.Spec.Containers = []corev1.Container{{Name: "web", Resources: resourcesOf("1", "1Gi"), ResizePolicy: []corev1.ContainerResizePolicy{
		{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.NotRequired},
		{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer},
	}}}
	pod.Spec.InitContainers = []corev1.Container{{
		Name: "proxy", RestartPolicy: &always, Resources: resourcesOf("1", "1Gi"),
		ResizePolicy: []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer}},
	}}
}

func resourcesOf(cpu, memory string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
	}}
}

func moreMemory(pod *corev1.Pod) {
	pod.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse("2Gi")
}

func TestRestarted(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		edit   func(*corev1.Pod)
		want   []string
	}
	expect.Each(t, map[string]row{
		"nothing":        {"an update of nothing", func(*corev1.Pod) {}, nil},
		"spelled anew":   {"1024Mi is 1Gi", func(p *corev1.Pod) { p.Spec.Containers[0].Resources = resourcesOf("1000m", "1024Mi") }, nil},
		"CPU":            {"its policy is NotRequired", func(p *corev1.Pod) { p.Spec.Containers[0].Resources = resourcesOf("2", "1Gi") }, nil},
		"memory":         {"the heap is sized at the start", moreMemory, []string{"web"}},
		"no policy":      {"NotRequired is the default", func(p *corev1.Pod) { p.Spec.InitContainers[0].Resources = resourcesOf("1", "2Gi") }, nil},
		"native sidecar": {"kubelet restarts it too", func(p *corev1.Pod) { p.Spec.InitContainers[0].Resources = resourcesOf("2", "1Gi") }, []string{"proxy"}},
		"a limit": {"it had none", func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")}
		}, []string{"web"}},
		"the pod's limit": {"the container has none of its own", func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")}}
		}, []string{"web"}},
	}, func(t *testing.T, tc row) {
		after := podThat(sized)
		tc.edit(after)
		expect.Equal(t, tc.want, Restarted(podThat(sized), after), "%s", tc.reason)
	})
}

// Resize asks as the API server does for a patch or update of pods/resize.
func (w *world) Resize(before *corev1.Pod, edit func(*corev1.Pod)) admission.Response {
	w.t.Helper()
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Namespace: "shop", Name: before.Name, SubResource: "resize"}}
	after := before.DeepCopy()
	edit(after)
	var errs [2]error
	request.OldObject.Raw, errs[0] = json.Marshal(before)
	request.Object.Raw, errs[1] = json.Marshal(after)
	expect.NoError(w.t, errs[0])
	expect.NoError(w.t, errs[1])
	return w.Handle(w.t.Context(), request)
}

func TestResizeThatRestartsAServingPodIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, podThat(owned, sized))
	refused := w.Resize(podThat(owned, sized), moreMemory)
	if refused.Allowed || refused.Result.Code != http.StatusForbidden || !strings.Contains(refused.Result.Message, "restarts its containers web") {
		t.Errorf("got %+v, want it refused", refused.AdmissionResponse)
	}
	w.ExpectNoEvent()

	// The VerticalPodAutoscaler evicts the pod then, and OpenKruise makes another with the new size.
	w.ExpectHeld(w.Evict("web-1"), "is not evicted directly")
}

func TestResizeIsLetThrough(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		pod    *corev1.Pod
		edit   func(*corev1.Pod)
		world  func(*world)
	}
	rows := map[string]row{
		"no restart":            {"no request is lost", podThat(owned, sized), func(*corev1.Pod) {}, nil},
		"not managed":           {"no hook holds it", podThat(sized), moreMemory, nil},
		"claims of its own":     {"its eviction would bypass the hooks too", podThat(owned, sized, claims("data-web-x7k2p")), moreMemory, nil},
		"unready":               {"clients are not given it", podThat(owned, sized, unready), moreMemory, nil},
		"OpenKruise resizes it": {"it waited at the hook", podThat(owned, sized, in(appspub.LifecycleStateUpdating)), moreMemory, nil},
		"on its way out":        {"it is out", podThat(owned, sized, in(appspub.LifecycleStatePreparingDelete)), moreMemory, nil},
		"update hook not armed": {
			"OpenKruise would resize it in Normal", podThat(owned, sized, func(p *corev1.Pod) { delete(p.Labels, updateHookKey) }), moreMemory, nil,
		},
		"delete hook not armed": {
			"its eviction would bypass the hooks", podThat(owned, sized, func(p *corev1.Pod) { delete(p.Labels, hookKey) }), moreMemory, nil,
		},
		"another namespace": {"another manager watches it", podThat(owned, sized), moreMemory, func(w *world) { w.Scope = scopeOf("other") }},
		"not filled":        {"a manager that knows nothing holds up nobody", podThat(owned, sized), moreMemory, func(w *world) { w.synced = false }},
	}
	expect.Each(t, rows, func(t *testing.T, tc row) {
		w := newWorld(t, tc.pod)
		if tc.world != nil {
			tc.world(w)
		}
		w.ExpectPassed(w.Resize(tc.pod, tc.edit), "")
	})
}
