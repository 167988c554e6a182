package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/test/harness/cluster"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
)

// TestKindUp runs the script of make kind-up on a cluster of nodes without containers: it leaves another installation alone, all that
// it applies is accepted and scheduled, Rollcall would manage the CloneSet's pods, and the commands that it prints work.
func TestKindUp(t *testing.T) {
	t.Parallel()
	own, err := cluster.Start(t.Context(), cluster.Options{
		Dir: filepath.Join(env.dir, "kind-cluster"), Log: os.Stderr, Nodes: 1, PodCIDR: "127.104.0.0/16",
	})
	expect.NoError(t, err)
	t.Cleanup(own.Stop)
	sh := newShell(t, own)
	up := "CLUSTER=existing " + sh.root + "/hack/kind/up.sh"
	another := defaultConfiguration("http://127.0.0.1:1").configMap("rollcall-system")
	expect.NoError(t, kube.Create(t.Context(), own.Client(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "rollcall-system"}}, another))
	if out, err := sh.run(up); err == nil || !strings.Contains(out, "rollcall-config in namespace rollcall-system is not kind-up's") {
		t.Fatalf("the script overwrites the configuration of another installation: %v\n%s", err, out)
	}
	expect.NoError(t, own.Client().Delete(t.Context(), another))
	out := ""
	for _, turn := range []string{"first", "second"} { // what it made itself is no obstacle
		if out, err = sh.run(up); err != nil {
			t.Fatalf("the script fails the %s time: %v\n%s", turn, err, out)
		}
	}
	for _, name := range []string{"rollcall", "consul", "client"} {
		if !strings.Contains(out, `deployment "`+name+`" successfully rolled out`) {
			t.Errorf("the script does not wait for %s:\n%s", name, out)
		}
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
