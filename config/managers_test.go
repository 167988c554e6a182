package config_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

const managersFolder = "examples/managers"

// Each manager of the example watches, may change and is asked about the same namespaces, and no namespace has two.
// TestManagersOfOneCluster runs them.
func TestManagersHaveNamespacesOfTheirOwn(t *testing.T) {
	t.Parallel()
	objects, err := render(managersFolder)
	expect.NoError(t, err)
	seen := map[string]string{}
	for name, want := range map[string][]string{"orders": {"orders", "orders-staging"}, "pay": {"pay"}} {
		its := "rollcall-" + name
		elsewhere := func(o client.Object) bool { return o.GetNamespace() != its }
		// The kubectl plugin looks for it by this name.
		configMap := named[*corev1.ConfigMap](t, slices.DeleteFunc(slices.Clone(objects), elsewhere), "rollcall-config")
		c, err := config.Parse([]byte(configMap.Data["config.yaml"]), config.Limits{Drivers: []string{"consul"}})
		expect.NoError(t, err)
		if diff := cmp.Diff(want, c.Namespaces.Names); diff != "" || c.Cluster != "example" {
			t.Errorf("%s watches cluster %s (-want +got):\n%s", its, c.Cluster, diff)
		}
		webhook := named[*admissionv1.MutatingWebhookConfiguration](t, objects, "rollcall-evictions-"+name).Webhooks[0]
		if diff := cmp.Diff(want, webhook.NamespaceSelector.MatchExpressions[0].Values); diff != "" ||
			webhook.ClientConfig.Service.Namespace != its || webhook.ClientConfig.Service.Name != "rollcall-evictions-"+name {
			t.Errorf("%s is asked by %+v (-want +got):\n%s", its, webhook.ClientConfig.Service, diff)
		}
		if got := c.Evictions; !got.Enabled || got.Name != "rollcall-evictions-"+name {
			t.Errorf("%s does not know its webhook by %+v", its, got)
		}
		deployment := named[*appsv1.Deployment](t, objects, its)
		if account := deployment.Spec.Template.Spec.ServiceAccountName; deployment.Namespace != its || account != its {
			t.Errorf("%s runs in %s as %s", its, deployment.Namespace, account)
		}
		for _, namespace := range want {
			if other := seen[namespace]; other != "" {
				t.Errorf("%s and %s have namespace %s", its, other, namespace)
			}
			seen[namespace] = its
		}
		var bound []string
		for _, b := range bindings(objects) {
			if b.Role == "rollcall-manager-"+name {
				bound = append(bound, b.Namespace)
			}
		}
		if slices.Sort(bound); !slices.Equal(want, bound) {
			t.Errorf("%s may change pods in %q, want %q", its, bound, want)
		}
	}
}

// kustomize does not follow what it renames everywhere.
func TestManagersBindRolesToTheirAccounts(t *testing.T) {
	t.Parallel()
	objects, err := render(managersFolder)
	expect.NoError(t, err)
	all := bindings(objects)
	if len(all) != 13 {
		t.Errorf("%d bindings, want 5 for each manager and one for each of 3 namespaces", len(all))
	}
	for _, b := range all {
		account := rbacv1.Subject{Kind: "ServiceAccount", Name: b.Subject.Namespace, Namespace: b.Subject.Namespace}
		if account != b.Subject || named[*corev1.ServiceAccount](t, objects, b.Subject.Name).Namespace != b.Subject.Namespace {
			t.Errorf("a binding in %q names %v", b.Namespace, b.Subject)
		}
		if suffix := strings.TrimPrefix(b.Subject.Name, "rollcall"); !strings.HasSuffix(b.Role, suffix) {
			t.Errorf("%s has role %s of another manager", b.Subject.Name, b.Role)
		}
		if !slices.ContainsFunc(objects, func(o client.Object) bool {
			return o.GetObjectKind().GroupVersionKind().Kind == b.Kind && o.GetName() == b.Role
		}) {
			t.Errorf("%s has %s %s, which is not there", b.Subject.Name, b.Kind, b.Role)
		}
	}
}

func TestTwoManagersOfOneNamespaceAreNotRendered(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(managersFolder + "/namespaces.yaml")
	expect.NoError(t, err)
	again, _, _ := strings.Cut(string(text), "\n---\n")
	_, err = renderOn(t, "resources: [HERE/"+managersFolder+", more.yaml]", strings.ReplaceAll(again, "rollcall-orders", "rollcall-pay"))
	expect.Error(t, "namespace orders is rollcall-orders's", err, "already registered id")
}

// binding is who has a role, in a namespace or everywhere.
type binding struct {
	Namespace, Kind, Role string
	Subject               rbacv1.Subject
}

func bindings(objects []client.Object) (all []binding) {
	for _, object := range objects {
		switch b := object.(type) {
		case *rbacv1.RoleBinding:
			all = append(all, binding{b.Namespace, b.RoleRef.Kind, b.RoleRef.Name, b.Subjects[0]})
		case *rbacv1.ClusterRoleBinding:
			all = append(all, binding{"", b.RoleRef.Kind, b.RoleRef.Name, b.Subjects[0]})
		}
	}
	return all
}
