package main

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	appsv1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/registry"
	httpregistry "github.com/rollcall-dev/rollcall/registry/http"
	"github.com/rollcall-dev/rollcall/test/harness/command"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/rollout"
)

func TestConclude(t *testing.T) {
	t.Parallel()
	for reason, tc := range map[string]struct {
		requests int
		failures [3]int // with Rollcall, with preStop, with the mirror alone
		failed   bool
		says     string
	}{
		"nothing failed with Rollcall, something without": {enoughRequests, [3]int{0, 2, 3}, false, "demo: 12000 requests; failed: 0 with Rollcall, 2 with preStop and mirror, 3 with mirror\n"},
		"one lost request is one too many":                {2 * enoughRequests, [3]int{1, 2, 3}, true, "web-1      connection reset"},
		"with few requests nothing is proven":             {enoughRequests - 1, [3]int{0, 2, 3}, true, "too few"},
		"the traffic would not have noticed anything":     {enoughRequests, [3]int{0, 2, 0}, true, "None failed with mirror either, so this run tells nothing"},
		"the registry was not away":                       {enoughRequests, [3]int{0, 0, 3}, true, "None failed with preStop and mirror either"},
	} {
		var all []outcome
		for i, a := range (&world{}).arms() {
			all = append(all, outcome{
				arm: a.name, tally: rollout.Tally{Requests: tc.requests, Failed: tc.failures[i]},
				failures: []rollout.Failure{{Pod: "web-1", Why: "connection reset"}},
			})
		}
		var out strings.Builder
		err := conclude(newScreen(&out), all, nil)
		if errors.Is(err, command.ErrFailed) != tc.failed || !strings.Contains(out.String(), tc.says) {
			t.Errorf("%s: got error %v, want %q in\n%s", reason, err, tc.says, &out)
		}
	}
}

// In the cluster of KEEP=1, people enroll workloads of their own: the demo's client does not call those.
func TestHTTPBackend_ReadsItsServiceAlone(t *testing.T) {
	t.Parallel()
	b := httpBackend(t.Context(), clusterName)
	t.Cleanup(b.stop)
	driver, err := httpregistry.New(t.Context(), registry.Config{
		Cluster: clusterName, Endpoint: "http://" + b.address, Timeout: time.Minute, Logger: slog.New(slog.DiscardHandler),
	})
	expect.NoError(t, err)
	for _, service := range []string{serviceName, "sample"} {
		err := driver.Register(t.Context(), registry.Instance{
			Service: service, Address: "127.0.0.1", Port: 80, Cluster: clusterName, Namespace: "a", Pod: service, UID: service,
		})
		expect.NoError(t, err)
	}
	entries, err := b.read(t.Context())
	expect.NoError(t, err)
	if len(entries) != 1 || entries[0].Service != serviceName {
		t.Errorf("read %v, want the entry of %s alone", entries, serviceName)
	}
}

// Each arm differs from the others in what makes it an arm, and in nothing else.
func TestClonesetFor(t *testing.T) {
	t.Parallel()
	var plain *appsv1alpha1.CloneSet
	for _, a := range slices.Backward((&world{}).arms()) { // the mirror alone is the first
		set, err := clonesetFor(a, 1234)
		expect.NoError(t, err)
		container, l, update := &set.Spec.Template.Spec.Containers[0], set.Spec.Lifecycle, &set.Spec.UpdateStrategy
		if hooked := l != nil && l.PreNormal != nil && l.InPlaceUpdate != nil && l.PreDelete != nil; hooked != a.hooks {
			t.Errorf("arm %s has hooks %v, want all of them: %t", a.name, l, a.hooks)
		}
		expect.Equal(t, a.sleeps, container.Lifecycle != nil && update.InPlaceUpdateStrategy != nil, "arm %s waits where it can", a.name)
		if a.hooks {
			set.Spec.Lifecycle = nil
		}
		container.Lifecycle, update.InPlaceUpdateStrategy, set.Namespace = nil, nil, ""
		if plain == nil {
			plain = set
		}
		expect.Equal(t, plain, set, "arm %s differs in something else", a.name)
	}
	expect.Equal(t, map[string]string{"app": "web"}, plain.Spec.Template.Labels, "an arm without hooks must have no hook's labels")
	if port := plain.Spec.Template.Spec.Containers[0].Ports[0].ContainerPort; port != 1234 {
		t.Errorf("the pods' port is %d and not that of the pod server", port)
	}
}

// servingPod is a pod that is Normal, ready and runs web:v2.
func servingPod(name, uid string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "a", UID: types.UID(uid),
			Labels: map[string]string{"app": "web", appspub.LifecycleStateKey: string(appspub.LifecycleStateNormal)},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:v2"}}},
		Status: corev1.PodStatus{
			PodIP:             "127.0.0.1",
			ContainerStatuses: []corev1.ContainerStatus{{Name: "web", Image: "web:v2"}},
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
}
