package integration

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/test/harness/account"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/manager"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
)

// TestMissingRights: managers run with the roles that ship. One that lacks a right of them is not ready, or says what it
// was refused.
func TestMissingRights(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		resource string
		verbs    []string
		// shows looks at a manager that lacks them.
		shows func(*scenario) error
	}{
		{"clonesets", []string{"list", "watch"}, notReady("CloneSets", "forbidden")},
		{"nodes", []string{"list", "watch"}, func(s *scenario) error { return logged(s.manager, "without the right to list and watch nodes") }},
		{"clonesets", []string{"watch"}, notReady("CloneSets", "cannot watch")},
		{"leases", []string{"update"}, func(s *scenario) error { return logged(s.manager, `cannot update resource \"leases\"`) }},
		{"pods", []string{"patch"}, func(s *scenario) error {
			return s.hasEvent(nil, corev1.EventTypeWarning, "APIServerFailed", "cannot patch resource")
		}},
	} {
		name := "lacks-" + strings.Join(tc.verbs, "-") + "-" + tc.resource
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own, err := account.Install(t.Context(), env.cluster.Config(), in(name), without(tc.resource, tc.verbs))
			expect.NoError(t, err)
			m := prepareManager(t, name, own, defaultConfiguration(env.registry.URL(), name+"-pods"),
				"--leader-elect=true", "--leader-election-namespace="+name)
			expect.NoError(t, m.Start())
			s := newScenario(t, m, env.registry, preNormal, name+"-pods")
			s.Create(replicas(1))
			s.await("the manager to show what it lacks", func() error { return tc.shows(s) })
			s.DeleteCloneSet("Background")
		})
	}
}

// TestRightsInOneNamespace: the Roles of config/examples/one-namespace are enough for a rollout in that namespace, also where
// another of the list is gone with its rights. When that one exists and has them, the manager ends, to start anew and watch it.
func TestRightsInOneNamespace(t *testing.T) {
	t.Parallel()
	const name = "one-namespace"
	moved := map[string]string{"shop": name + "-pods", account.Namespace: name, metav1.NamespaceSystem: metav1.NamespaceSystem}
	var roles []client.Object
	edits := []func(client.Object){in(name), func(shipped client.Object) {
		if role, ok := shipped.(*rbacv1.ClusterRole); ok { // which the example has not
			role.Rules = nil
		}
	}}
	for _, object := range kustomize(t, "config", "examples", "one-namespace") {
		switch object.(type) {
		case *rbacv1.ClusterRole, *rbacv1.ClusterRoleBinding:
			t.Errorf("the example has a %T", object)
		case *rbacv1.Role, *rbacv1.RoleBinding:
			object.SetNamespace(moved[object.GetNamespace()])
			roles = append(roles, object)
		}
		if binding, ok := object.(*rbacv1.RoleBinding); ok {
			binding.Subjects[0].Namespace = name
		}
	}
	own, err := account.Install(t.Context(), env.cluster.Config(), edits...)
	expect.NoError(t, err)
	m := prepareManager(t, name, own, defaultConfiguration(env.registry.URL(), name+"-gone", name+"-pods"),
		"--leader-elect=true", "--leader-election-namespace="+name)
	s := newScenario(t, m, env.registry, preNormal, name+"-pods")
	for _, role := range roles {
		s.must(client.IgnoreAlreadyExists(s.k8s.Create(t.Context(), role)))
	}
	restart(t, m)
	s.zones = nil // it may not read nodes
	s.Begin(replicas(2))
	s.ScaleTo(1)
	s.ExpectNothingLeft()
	for _, word := range []string{"forbidden", "Forbidden"} {
		s.Expect(logged(m, word) != nil, "the manager lacks a right: %s", m.Tail())
	}
	s.must(s.k8s.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name + "-gone"}}))
	for _, role := range roles {
		if role.GetNamespace() == s.ns {
			role.SetNamespace(name + "-gone")
			role.SetResourceVersion("")
			s.must(s.k8s.Create(t.Context(), role))
		}
	}
	s.await("the manager to end", func() error { return logged(m, name+"-gone, "+name+"-pods can be watched now") })
	m.Kill()
}

// kustomize renders a folder of the repository.
func kustomize(t *testing.T, folder ...string) []client.Object {
	t.Helper()
	root := filepath.Join("..", "..")
	command := exec.CommandContext(t.Context(), "go", "tool", "-modfile="+filepath.Join(root, "hack", "tools", "go.mod"), "kustomize",
		"build", filepath.Join(append([]string{root}, folder...)...))
	// As in the Makefile, whatever the tests run with: so the tool is built once.
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	text, err := command.Output()
	expect.NoError(t, err)
	return decode(t, string(text))
}

// decode reads the objects of a manifest.
func decode(t *testing.T, text string) []client.Object {
	t.Helper()
	var objects []client.Object
	for part := range strings.SplitSeq(text, "\n---\n") {
		decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(part), nil, nil)
		expect.NoError(t, err)
		objects = append(objects, decoded.(client.Object))
	}
	return objects
}

// in has the manifests applied to a namespace of their own, and what has no namespace under a name of its own.
func in(namespace string) func(client.Object) {
	return func(object client.Object) {
		if object.GetNamespace() != "" {
			object.SetNamespace(namespace)
		} else {
			object.SetName(object.GetName() + "-" + namespace)
		}
		move := func(subjects []rbacv1.Subject) {
			for i := range subjects {
				subjects[i].Namespace = namespace
			}
		}
		switch o := object.(type) {
		case *rbacv1.ClusterRoleBinding:
			o.RoleRef.Name += "-" + namespace
			move(o.Subjects)
		case *rbacv1.RoleBinding:
			move(o.Subjects)
		}
	}
}

func without(resource string, verbs []string) func(client.Object) {
	take := func(rules []rbacv1.PolicyRule) {
		for i := range rules {
			if slices.Contains(rules[i].Resources, resource) {
				rules[i].Verbs = slices.DeleteFunc(rules[i].Verbs, func(v string) bool { return slices.Contains(verbs, v) })
			}
		}
	}
	return func(object client.Object) {
		switch o := object.(type) {
		case *rbacv1.ClusterRole:
			take(o.Rules)
		case *rbacv1.Role:
			take(o.Rules)
		}
	}
}

// notReady looks for a manager that says of itself that it is not ready, with these words.
func notReady(words ...string) func(*scenario) error {
	return func(s *scenario) error {
		body, err := s.manager.Get(s.Context(), manager.HealthServer, "/readyz")
		if err == nil {
			return fmt.Errorf("it is ready: %s", body)
		}
		refused := new(registries.StatusError)
		if errors.As(err, &refused) && refused.Code == http.StatusServiceUnavailable && containsAll(err.Error(), words) {
			return nil
		}
		return err
	}
}
