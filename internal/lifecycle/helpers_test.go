package lifecycle

import (
	"encoding/json"
	"slices"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	markKeyOwned = "example.com/newly-create" // the owned pattern matches it too
	markKey      = "example.io/initialing"

	testUID  = types.UID("4f5c")
	testTime = "2026-01-02T03:04:05Z"
)

// testOwnership claims a whole prefix and one exact key.
func testOwnership() Ownership {
	return Ownership{
		Owned:        []string{"example.com/*", "exact.io/registered"},
		NewlyCreated: []string{markKeyOwned, markKey},
	}
}

// ourFinalizer reports a finalizer that is ours to put on and take off.
func ourFinalizer(f string) bool { return f == GuardFinalizer || testOwnership().Owns(f) }

func label(key, value string) Handler { return Handler{Label: key, Value: value} }
func finalizer(f string) Handler      { return Handler{Finalizer: f} }

// hookOf is a hook of a workload with the handlers.
func hookOf(handlers ...Handler) *appspub.LifecycleHook {
	hook := &appspub.LifecycleHook{}
	for _, h := range handlers {
		if h.Finalizer != "" {
			hook.FinalizersHandler = append(hook.FinalizersHandler, h.Finalizer)
			continue
		}
		if hook.LabelsHandler == nil {
			hook.LabelsHandler = map[string]string{}
		}
		hook.LabelsHandler[h.Label] = h.Value
	}
	return hook
}

func selector(keys ...string) *metav1.LabelSelector {
	s := &metav1.LabelSelector{MatchLabels: map[string]string{}}
	for _, key := range keys {
		s.MatchLabels[key] = "true"
	}
	return s
}

// patchedOnly is the part of a pod that a patch may touch or test, as the API server holds it.
type patchedOnly struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Status   struct {
		PodIP      string         `json:"podIP,omitempty"`  //nolint:tagliatelle // Kubernetes writes it so
		PodIPs     []corev1.PodIP `json:"podIPs,omitempty"` //nolint:tagliatelle // the same
		Conditions []PodCondition `json:"conditions,omitempty"`
	} `json:"status"`
}

func encodePatched(t *testing.T, pod *Pod) []byte {
	t.Helper()
	part := patchedOnly{Metadata: pod.ObjectMeta}
	part.Status.PodIP, part.Status.PodIPs, part.Status.Conditions = pod.Status.PodIP, pod.Status.PodIPs, pod.Status.Conditions
	text, err := json.Marshal(part)
	if err != nil {
		t.Fatalf("encoding the pod: %v", err)
	}
	return text
}

// applyPatch does to the pod what the API server does with a JSON Patch, with the library that the API server uses.
func applyPatch(t *testing.T, pod *Pod, patch []byte) (*Pod, error) {
	t.Helper()
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		t.Fatalf("the patch is not a JSON Patch: %v\n%s", err, patch)
	}
	changed, err := operations.Apply(encodePatched(t, pod))
	if err != nil {
		return nil, err
	}
	var decoded patchedOnly
	if err := json.Unmarshal(changed, &decoded); err != nil {
		t.Fatalf("the patched pod is not a pod: %v\n%s", err, changed)
	}
	patched := *pod // the status is shared: no test writes to it
	patched.ObjectMeta = decoded.Metadata
	return &patched, nil
}

// setHandler makes the pod carry the handler, as another writer would.
func setHandler(pod *Pod, h Handler) {
	if h.Finalizer != "" {
		pod.Finalizers = append(pod.Finalizers, h.Finalizer)
		return
	}
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[h.Label] = h.Value
}

// carries is the test's own reading of Kruise's IsPodHooked for one handler.
func carries(pod *Pod, h Handler) bool {
	if h.Finalizer != "" {
		return slices.Contains(pod.Finalizers, h.Finalizer)
	}
	return pod.Labels[h.Label] == h.Value
}

// patchOf is the patch of a pod as it stands.
func patchOf(pod *Pod, hooks Hooks, edit Edit, record *Record) ([]byte, error) {
	return Input{Pod: pod, Hooks: hooks, Record: RecordOf(pod), Ownership: testOwnership()}.Patch(edit, record)
}
