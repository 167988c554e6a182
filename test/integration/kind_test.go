package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/test/harness/cluster"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestKindUp runs the script of make kind-up on a control plane: all that it applies is accepted, Rollcall would manage the CloneSet's
// pods, and the commands that it prints work.
func TestKindUp(t *testing.T) {
	t.Parallel()
	own, err := cluster.Start(t.Context(), cluster.Options{Dir: filepath.Join(env.dir, "kind-cluster"), Log: os.Stderr, APIOnly: true})
	expect.NoError(t, err)
	t.Cleanup(own.Stop)
	sh := newShell(t, own)
	out, err := sh.run("CLUSTER=existing " + sh.root + "/hack/kind/up.sh")
	if err != nil {
		t.Fatalf("the script fails: %v\n%s", err, out)
	}
	for namespace, name := range map[string]string{"rollcall-system": "rollcall", "shop": "client"} {
		expect.NoError(t, own.Client().Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &appsv1.Deployment{}))
	}
	// It refuses a configuration that the manager refuses, and hooks that no one would serve.
	if out, err := sh.run("kubectl rollcall lint " + sh.root + "/hack/kind/shop.yaml"); err != nil {
		t.Errorf("Rollcall would not manage the pods: %v\n%s", err, out)
	}
	_, printed, _ := strings.Cut(out, "update the pods")
	_, printed, _ = strings.Cut(printed, "\n")
	if out, err := sh.run(strings.ReplaceAll(printed, "rollout web", "rollout web --timeout=2s")); !strings.Contains(out, "patched") {
		t.Errorf("what the script prints does not update the CloneSet: %v\n%s", err, out)
	}
	var set kruisev1alpha1.CloneSet
	expect.NoError(t, own.Client().Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, &set))
	expect.Equal(t, "nginx:1.28", set.Spec.Template.Spec.Containers[0].Image, "the image")
}
