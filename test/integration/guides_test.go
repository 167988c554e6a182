package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestGuidesAreAccepted: the API server takes each object that a page shows, and knows all of its fields. What is for Rollcall, kustomize,
// Argo CD, Flux, Karmada and Istio has kinds that it does not serve.
func TestGuidesAreAccepted(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/*.md")
	expect.NoError(t, err)
	elsewhere := regexp.MustCompile(`^(rollcall\.dev|kustomize\.config\.k8s\.io|argoproj\.io|[a-z]+\.toolkit\.fluxcd\.io|config\.karmada\.io|security\.istio\.io)/`)
	var accepted []string
	for _, page := range pages {
		for _, object := range objectsOf(t, page) {
			if elsewhere.MatchString(object.GetAPIVersion()) || object.GetKind() == "ContainerRecreateRequest" { // that is for a pod that there is
				continue
			}
			namespaced, err := env.client.IsObjectNamespaced(object)
			expect.NoError(t, err)
			if namespaced {
				object.SetNamespace(metav1.NamespaceDefault)
			}
			err = env.client.Create(t.Context(), object, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
			if err != nil {
				t.Errorf("%s: %s: %v", page, object.GetKind(), err)
			}
			accepted = append(accepted, object.GetKind())
		}
	}
	for _, kind := range []string{"NetworkPolicy", "PriorityClass", "HorizontalPodAutoscaler", "PodDisruptionBudget", "ConfigMap", "CloneSet"} {
		if !slices.Contains(accepted, kind) {
			t.Errorf("the pages show %v, and no %s: the test looks for the wrong thing", accepted, kind)
		}
	}
}

// objectsOf are the whole objects that a page shows; without an apiVersion it is a part of one.
func objectsOf(t *testing.T, page string) (objects []*unstructured.Unstructured) {
	t.Helper()
	text, err := os.ReadFile(page)
	expect.NoError(t, err)
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(dedent(text), -1) {
		for document := range strings.SplitSeq(string(block[1]), "---\n") {
			if !strings.HasPrefix(document, "apiVersion:") {
				continue
			}
			object := &unstructured.Unstructured{}
			expect.NoError(t, yaml.UnmarshalStrict([]byte(document), &object.Object))
			objects = append(objects, object)
		}
	}
	return objects
}

// dedent takes the two spaces from the lines of a list's blocks.
func dedent(text []byte) []byte {
	var b strings.Builder
	inside := false
	for line := range strings.Lines(string(text)) {
		fence := strings.HasPrefix(line, "  ```")
		if inside || fence {
			line = strings.TrimPrefix(line, "  ")
		}
		if fence {
			inside = !inside
		}
		b.WriteString(line)
	}
	return []byte(b.String())
}
