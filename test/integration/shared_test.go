package integration

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/test/harness/account"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestManagersOfOneCluster: two managers share a cluster, its name and a registry, and each has namespaces and a lease of its
// own. What the pods of one leave while it is down is not the other's to remove.
func TestManagersOfOneCluster(t *testing.T) {
	t.Parallel()
	r := startRegistry(t, onlyRegistry, registryOptions{})
	const leases = "shared-leases"
	share := func(name, lease string) *scenario {
		config := defaultConfiguration(r.URL(), name)
		config["resync"] = map[string]any{"interval": "1s"}
		allowLease(t, leases, lease)
		m := startManager(t, name, config, append(elect(t, leases), "--leader-election-id="+lease)...)
		s := newScenario(t, m, r, finalizer, name)
		s.troubled = true
		return s
	}
	one, other := share("shared-one", account.Lease), share("shared-other", "rollcall-other")
	for _, s := range (scenarios{one, other}) {
		s.Begin(replicas(2))
	}
	for _, pair := range [][2]*scenario{{one, other}, {other, one}} {
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
	scenarios{one, other}.finish()
}

// leaveEntry registers a pod of the namespace that is long gone.
func (s *scenario) leaveEntry() {
	s.Helper()
	left := s.instance(s.Pods()[0])
	left.Address, left.Pod, left.UID = "10.9.9.9", "long-gone", "uid-of-long-gone"
	s.must(s.registry.Register(s.Context(), left))
}

// allowLease gives the ServiceAccount that ships the right to a lease of another name than the one that ships.
func allowLease(t *testing.T, namespace, lease string) {
	t.Helper()
	elect(t, namespace) // which makes the namespace
	object := metav1.ObjectMeta{Namespace: namespace, Name: "lease-" + lease}
	expect.NoError(t, env.client.Create(t.Context(), &rbacv1.Role{ObjectMeta: object, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{lease},
		Verbs: []string{"get", "update"},
	}}}))
	expect.NoError(t, env.client.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: object,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: object.Name},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: account.Lease, Namespace: account.Namespace}},
	}))
}
