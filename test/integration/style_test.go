package integration

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// style is one way to write the hooks of a CloneSet: a file in testdata.
type style string

const (
	labels    style = "labels"
	finalizer style = "finalizer"
	preNormal style = "prenormal"
	mixed     style = "mixed"
)

// Which styles a scenario makes sense for.
var (
	allStyles    = []style{labels, finalizer, preNormal, mixed}
	updateHooked = []style{labels, finalizer, mixed} // with hooks inPlaceUpdate and preDelete
)

func (s style) load(t *testing.T) *kruisev1alpha1.CloneSet {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", string(s)+".yaml"))
	expect.NoError(t, err)
	set := &kruisev1alpha1.CloneSet{}
	if err := yaml.UnmarshalStrict(data, set); err != nil {
		t.Fatalf("testdata/%s.yaml: %v", s, err)
	}
	return set
}

// The hooks, by their API names.
const (
	hookPreNormal     = "preNormal"
	hookInPlaceUpdate = "inPlaceUpdate"
	hookPreDelete     = "preDelete"
)

// handler is one label or finalizer, and the hooks that it serves.
type handler struct {
	label, value string
	finalizer    string
	hooks        []string
}

func (h handler) key() string { return h.label + h.finalizer }

func (h handler) serves(hook string) bool { return slices.Contains(h.hooks, hook) }

func (h handler) ours() bool {
	return strings.HasPrefix(h.key(), "example.com/") || strings.HasPrefix(h.key(), "example.io/")
}

func (h handler) setOn(pod *corev1.Pod) bool {
	if h.finalizer != "" {
		return slices.Contains(pod.Finalizers, h.finalizer)
	}
	value, found := pod.Labels[h.label]
	return found && value == h.value
}

// handlersOf lists the handlers of a workload's hooks, each once.
func handlersOf(l *appspub.Lifecycle) []handler {
	if l == nil {
		return nil
	}
	var all []handler
	add := func(h handler, hook string) {
		for i := range all {
			if all[i].label == h.label && all[i].value == h.value && all[i].finalizer == h.finalizer {
				all[i].hooks = append(all[i].hooks, hook)
				return
			}
		}
		h.hooks = []string{hook}
		all = append(all, h)
	}
	for name, hook := range map[string]*appspub.LifecycleHook{
		hookPreNormal: l.PreNormal, hookInPlaceUpdate: l.InPlaceUpdate, hookPreDelete: l.PreDelete,
	} {
		if hook == nil {
			continue
		}
		for key, value := range hook.LabelsHandler {
			add(handler{label: key, value: value}, name)
		}
		for _, f := range hook.FinalizersHandler {
			add(handler{finalizer: f}, name)
		}
	}
	return all
}
