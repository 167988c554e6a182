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

// TestGuidesAreAccepted: the API server takes each object that docs/deploy.md shows, and knows all of its fields. What is for
// kustomize, Argo CD and Flux has kinds that it does not serve.
func TestGuidesAreAccepted(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "deploy.md"))
	expect.NoError(t, err)
	elsewhere := regexp.MustCompile(`^(kustomize\.config\.k8s\.io|argoproj\.io|[a-z]+\.toolkit\.fluxcd\.io)/`)
	var accepted []string
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(dedent(text), -1) {
		object := &unstructured.Unstructured{}
		expect.NoError(t, yaml.UnmarshalStrict(block[1], &object.Object))
		if elsewhere.MatchString(object.GetAPIVersion()) {
			continue
		}
		if object.GetNamespace() != "" {
			object.SetNamespace(metav1.NamespaceDefault)
		}
		if err := env.client.Create(t.Context(), object, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
			t.Errorf("docs/deploy.md: %s: %v", object.GetKind(), err)
		}
		accepted = append(accepted, object.GetKind())
	}
	for _, kind := range []string{"NetworkPolicy", "PriorityClass", "HorizontalPodAutoscaler", "PodDisruptionBudget", "ConfigMap"} {
		if !slices.Contains(accepted, kind) {
			t.Errorf("docs/deploy.md shows %v, and no %s: the test looks for the wrong thing", accepted, kind)
		}
	}
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
