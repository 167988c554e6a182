package config_test

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/cmd/app"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// The API server finds the manager, waits for it long enough, and goes on without it; and the component grants no more than
// the webhook needs.
func TestEvictionsComponent(t *testing.T) {
	t.Parallel()
	objects := renderWith(t, "evictions")
	name := configuration(t).Evictions.Name
	webhooks := named[*admissionv1.MutatingWebhookConfiguration](t, objects, name).Webhooks
	service, _ := named[*corev1.Service](t, objects, name), named[*corev1.Secret](t, objects, name)
	container := named[*appsv1.Deployment](t, objects, "rollcall").Spec.Template.Spec.Containers[0]

	if len(webhooks) != 1 {
		t.Fatalf("%d webhooks, want 1", len(webhooks))
	}
	want := admissionv1.MutatingWebhook{
		Name: "evictions.rollcall.dev", AdmissionReviewVersions: []string{"v1"},
		FailurePolicy: new(admissionv1.Ignore), SideEffects: new(admissionv1.SideEffectClassNoneOnDryRun), TimeoutSeconds: new(int32(10)),
		ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{
			Namespace: namespace, Name: service.Name, Port: new(service.Spec.Ports[0].Port),
		}},
		Rules: []admissionv1.RuleWithOperations{ruleFor(admissionv1.Create, "pods/eviction"), ruleFor(admissionv1.Update, "pods/resize")},
		NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{metav1.NamespaceSystem, namespace},
		}}},
	}
	expect.Equal(t, want, webhooks[0], "the webhook")
	port := slices.IndexFunc(container.Ports, func(p corev1.ContainerPort) bool { return p.Name == service.Spec.Ports[0].TargetPort.StrVal })
	if port < 0 || app.Flags().Lookup("eviction-webhook-bind-address").DefValue != ":9443" || container.Ports[port].ContainerPort != 9443 {
		t.Errorf("the Service leads to port %s of %v, want where the manager listens", service.Spec.Ports[0].TargetPort.StrVal, container.Ports)
	}
	flags := app.Flags()
	flags.Init("", flag.ContinueOnError)
	if err := flags.Parse(container.Args); err != nil {
		t.Errorf("the manager refuses its arguments: %v", err)
	}
	rules := slices.Concat(named[*rbacv1.ClusterRole](t, objects, name).Rules, named[*rbacv1.Role](t, objects, name).Rules)
	expect.Equal(t, []rbacv1.PolicyRule{
		{APIGroups: []string{"policy"}, Resources: []string{"poddisruptionbudgets"}, Verbs: []string{"list"}},
		{APIGroups: []string{"policy.kruise.io"}, Resources: []string{"podunavailablebudgets"}, Verbs: []string{"get"}},
		{
			APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"mutatingwebhookconfigurations"},
			ResourceNames: []string{name}, Verbs: []string{"get", "patch"},
		},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{name}, Verbs: []string{"get", "update"}},
	}, rules, "what the component grants")
}

func ruleFor(operation admissionv1.OperationType, resource string) admissionv1.RuleWithOperations {
	return admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{operation},
		Rule: admissionv1.Rule{
			APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource}, Scope: new(admissionv1.NamespacedScope),
		},
	}
}

// renderWith renders config/default with a component.
func renderWith(t *testing.T, component string) []client.Object {
	t.Helper()
	objects, err := renderOn(t, "resources: [HERE/default]\ncomponents: [HERE/components/"+component+"]", "")
	expect.NoError(t, err)
	return objects
}

// TestAnotherNamespace: with components/namespace, nothing that any other component adds is of rollcall-system.
func TestAnotherNamespace(t *testing.T) {
	t.Parallel()
	found, err := filepath.Glob("components/*/kustomization.yaml")
	expect.NoError(t, err)
	var all []string
	for _, component := range found {
		if folder := filepath.Dir(component); folder != "components/namespace" {
			all = append(all, "HERE/"+folder)
		}
	}
	type row struct {
		reason     string
		components []string
		want       []string
	}
	expect.Each(t, map[string]row{
		"no component": {
			reason: "the managers have no rights otherwise", want: []string{"namespace: platform"},
		},
		"evictions": {
			reason: "the certificate is not cert-manager's, so nothing refers to it", components: []string{"HERE/components/evictions"},
			want: []string{"- platform"},
		},
		"every component": {
			reason: "no policy applies and no alert fires otherwise", components: append(all, "HERE/components/evictions/cert-manager"),
			want: []string{
				"cert-manager.io/inject-ca-from: platform/rollcall-evictions", "rollcall-evictions.platform.svc",
				"'system:serviceaccount:platform:rollcall'", `namespace="platform"`,
			},
		},
	}, func(t *testing.T, c row) {
		inner := overlay(t, "namespace: platform\nresources: [HERE/default]\ncomponents: ["+strings.Join(c.components, ", ")+"]", "")
		outer := overlay(t, "components: [HERE/components/namespace]\nresources: ["+filepath.Join("..", filepath.Base(inner))+"]", "")
		text, err := built(outer)
		expect.NoError(t, err)
		for line := range strings.Lines(text.String()) {
			line = strings.TrimSpace(line)
			if strings.Contains(line, "rollcall-system") && !strings.HasPrefix(line, "#") {
				t.Errorf("%s: %q is of another namespace", c.reason, line)
			}
		}
		for _, want := range c.want {
			if !strings.Contains(text.String(), want) {
				t.Errorf("%s: there is no %q", c.reason, want)
			}
		}
	})
}

// renderOn renders a kustomization elsewhere, beside a file more.yaml. HERE in it stands for this folder.
func renderOn(t *testing.T, kustomization, more string) ([]client.Object, error) {
	t.Helper()
	return render(overlay(t, kustomization, more))
}

func overlay(t *testing.T, kustomization, more string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	here, err := os.Getwd()
	expect.NoError(t, err)
	here, err = filepath.Rel(folder, here) // kustomize takes no absolute path
	expect.NoError(t, err)
	text := "kind: Kustomization\n" + strings.ReplaceAll(kustomization, "HERE", here) + "\n"
	expect.NoError(t, os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o600))
	expect.NoError(t, os.WriteFile(filepath.Join(folder, "more.yaml"), []byte(more), 0o600))
	return folder
}

// named returns the one object of its type and name.
func named[T client.Object](t *testing.T, objects []client.Object, name string) T {
	t.Helper()
	var found []T
	for _, object := range objects {
		if typed, is := object.(T); is && typed.GetName() == name {
			found = append(found, typed)
		}
	}
	if len(found) != 1 {
		t.Fatalf("there are %d objects of type %T called %s, want 1", len(found), *new(T), name)
	}
	return found[0]
}
