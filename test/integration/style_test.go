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

	"github.com/rollcall-dev/rollcall/test/harness/checker"
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

// hooksOf are the handlers of a workload's hooks.
func hooksOf(l *appspub.Lifecycle) checker.Hooks {
	hooks := checker.Hooks{}
	if l == nil {
		return hooks
	}
	for name, hook := range map[string]*appspub.LifecycleHook{
		checker.PreNormal: l.PreNormal, checker.InPlaceUpdate: l.InPlaceUpdate, checker.PreDelete: l.PreDelete,
	} {
		if hook == nil {
			continue
		}
		hooks[name] = slices.Clone(hook.FinalizersHandler)
		for key, value := range hook.LabelsHandler {
			hooks[name] = append(hooks[name], key+"="+value)
		}
	}
	return hooks
}

func ours(handler string) bool {
	return strings.HasPrefix(handler, "example.com/") || strings.HasPrefix(handler, "example.io/")
}

func setOn(handler string, pod *corev1.Pod) bool {
	return checker.SetOn(checker.Hooks{"": {handler}}, pod)[handler]
}
