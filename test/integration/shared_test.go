package integration

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/test/harness/account"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestManagersOfOneCluster: the managers of config/examples/managers share a cluster, its name and a registry, with the rights
// that they have there. What the pods of one leave while it is down is not the other's to remove, and one that names a
// namespace of the other is not ready.
func TestManagersOfOneCluster(t *testing.T) {
	t.Parallel()
	r := startRegistry(t)
	objects := kustomize(t, "config", "examples", "managers")
	ofPods := []string{"orders", "orders-staging", "pay"}
	expect.NoError(t, env.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "orders-staging"}}))
	grant(t, objects, func(namespace string) bool { return !slices.Contains(ofPods, namespace) })
	prepare := func(name, suffix string, namespaces ...string) *rollcall {
		config := defaultConfiguration(r.URL(), namespaces...)
		config["resync"] = map[string]any{"interval": "1s"}
		own, err := account.Install(t.Context(), env.cluster.Config(), func(object client.Object) {
			if object.SetName(object.GetName() + suffix); object.GetNamespace() != "" {
				object.SetNamespace("rollcall" + suffix)
			}
		})
		expect.NoError(t, err)
		return prepareManager(t, name, own, config, "--leader-elect=true", "--leader-election-namespace=rollcall"+suffix)
	}
	orders := newScenario(t, prepare("orders", "-orders", "orders", "orders-staging"), r, finalizer, "orders")
	pay := newScenario(t, prepare("pay", "-pay", "pay"), r, finalizer, "pay")
	grant(t, objects, func(namespace string) bool { return slices.Contains(ofPods, namespace) })
	for _, s := range []*scenario{orders, pay} {
		s.troubled = true
		restart(t, s.manager)
		s.Begin(replicas(2))
	}
	for _, pair := range [][2]*scenario{{orders, pay}, {pay, orders}} {
		works, down := pair[0], pair[1]
		down.manager.Kill()
		works.leaveEntry()
		down.leaveEntry()
		works.ExpectSteady() // its manager has removed the entry of its own, so it has looked at both
		works.Expect(len(r.Entries(t, down.ns)) == 3, "the manager of %s left %v of %s", works.ns,
			r.Entries(t, down.ns), down.ns)
		restart(t, down.manager)
		down.ExpectSteady()
	}
	pay.manager.Kill()
	greedy := prepare("greedy", "-pay", "pay", "orders")
	expect.NoError(t, greedy.Start())
	pay.manager = greedy
	pay.await("the manager of pay to be refused the pods of orders", func() error { return notReady("pods", "forbidden")(pay) })
	greedy.Kill()
	pay.manager = prepare("pay-again", "-pay", "pay")
	restart(t, pay.manager)
	for _, s := range []*scenario{orders, pay} {
		s.ExpectNothingLeft()
		s.ExpectAlways()
	}
}

// grant creates what a manifest has of rights, where chosen says so.
func grant(t *testing.T, objects []client.Object, chosen func(namespace string) bool) {
	t.Helper()
	for _, object := range objects {
		switch object.(type) {
		case *corev1.Namespace, *corev1.ServiceAccount, *rbacv1.ClusterRole, *rbacv1.ClusterRoleBinding, *rbacv1.Role, *rbacv1.RoleBinding:
			if chosen(object.GetNamespace()) {
				expect.NoError(t, env.client.Create(t.Context(), object))
			}
		}
	}
}

// leaveEntry registers a pod of the namespace that is long gone.
func (s *scenario) leaveEntry() {
	s.Helper()
	left := s.entriesOf(s.Pods()[:1])[0].Instance
	left.Address, left.Pod, left.UID = "10.9.9.9", "long-gone", "uid-of-long-gone"
	s.must(s.registry.Register(s.Context(), left))
}
