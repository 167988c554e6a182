package config_test

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestPluginRoles: who may look with Kubernetes' own roles may look with the plugin, and no role gives more than its commands need.
// TestRightsOfThePlugin runs them.
func TestPluginRoles(t *testing.T) {
	t.Parallel()
	objects := renderWith(t, "plugin-roles")
	for name, want := range map[string]struct {
		reason     string
		aggregates []string
		rules      []rbacv1.PolicyRule
	}{
		"rollcall-viewer": {
			reason: "it reads", aggregates: []string{"admin", "edit", "view"},
			rules: []rbacv1.PolicyRule{
				{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}},
				{APIGroups: []string{"apps.kruise.io"}, Resources: []string{"clonesets", "statefulsets", "daemonsets"}, Verbs: []string{"get", "list"}},
				{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"list"}},
			},
		},
		"rollcall-operator": {
			reason: "view writes nothing", aggregates: []string{"admin", "edit"},
			rules: []rbacv1.PolicyRule{
				{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"patch"}},
				{APIGroups: []string{"apps.kruise.io"}, Resources: []string{"clonesets"}, Verbs: []string{"patch"}},
				{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
			},
		},
	} {
		role := named[*rbacv1.ClusterRole](t, objects, name)
		expect.Equal(t, want.rules, role.Rules, "%s %s", name, want.reason)
		var aggregates []string
		for _, of := range []string{"admin", "edit", "view"} {
			if role.Labels["rbac.authorization.k8s.io/aggregate-to-"+of] == "true" {
				aggregates = append(aggregates, of)
			}
		}
		if !slices.Equal(aggregates, want.aggregates) {
			t.Errorf("%s is aggregated to %q, want %q: %s", name, aggregates, want.aggregates, want.reason)
		}
	}
	got := map[string][]string{}
	for _, name := range []string{"rollcall-viewer", "rollcall-operator", "rollcall-status-reader"} {
		role := named[*rbacv1.Role](t, objects, name)
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				got[name] = append(got[name], slices.Concat(rule.Verbs, []string{resource}, rule.ResourceNames)...)
			}
		}
	}
	want := map[string][]string{
		"rollcall-viewer":        {"get", "configmaps", "rollcall-config", "get", "leases", "rollcall", "list", "events"},
		"rollcall-operator":      {"patch", "leases", "rollcall"},
		"rollcall-status-reader": {"get", "list", "pods", "get", "list", "pods/proxy", "create", "pods/portforward", "get", "pods/log"},
	}
	expect.Equal(t, want, got, "what the roles give of the installation")
}
