package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/endpointslice"
	rightsof "github.com/rollcall-dev/rollcall/internal/rights"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestFeaturesWaitForTheirRights: the manager shows which right is missing and what brings it, and works without the feature until then.
func TestFeaturesWaitForTheirRights(t *testing.T) {
	t.Parallel()
	s := newRightsScenario(t, config.Features{Enroll: true, PodCondition: true})
	s.Poll()
	s.ExpectEvents("enroll waits for rights that the manager lacks: patch clonesets.apps.kruise.io in orders, pay. "+
		"Apply config/components/enroll, which the chart brings with config.enroll.", "podCondition waits for rights that the manager lacks: "+
		"patch pods/status in orders, pay. Apply config/components/pod-condition")
	s.Poll()
	s.ExpectEvents()
	s.ExpectWaiting("enroll", "podCondition")
	lacks := s.of(rightsof.PodCondition).lacking
	expect.Equal(t, "podCondition waits for rights that the manager lacks: patch pods/status in orders, pay. "+
		"Apply config/components/pod-condition, which the chart brings with config.podCondition.", lacks(), "what pods show")

	s.allowed["patch clonesets in orders"], s.allowed["patch pods in pay"], s.allowed["patch pods in orders"] = true, true, true
	s.Poll()
	s.ExpectEvents("patch clonesets.apps.kruise.io in pay. ")
	s.ExpectWaiting("enroll")
	expect.Equal(t, "", lacks(), "what pods show once the right is there")

	s.fails = errors.New("etcdserver: leader changed")
	s.Poll()
	s.ExpectEvents()
	s.ExpectWaiting("enroll")

	s.fails, s.allowed["patch clonesets in pay"] = nil, true
	s.Poll()
	s.ExpectEvents()
	s.ExpectWaiting()
}

// TestRightsInAllNamespaces: what is granted in the whole cluster is asked for once, and by name where it is granted so.
func TestRightsInAllNamespaces(t *testing.T) {
	t.Parallel()
	s := newRightsScenario(t, config.Features{Evictions: config.Evictions{Enabled: true, Name: "rollcall-evictions"}})
	s.namespaces = nil
	s.allowed["get podunavailablebudgets"], s.allowed["patch mutatingwebhookconfigurations rollcall-evictions"] = true, true
	s.Poll()
	s.ExpectEvents("list poddisruptionbudgets.policy in all namespaces; get mutatingwebhookconfigurations.admissionregistration.k8s.io " +
		"rollcall-evictions; get secrets rollcall-evictions. Apply config/components/evictions")
	if got := s.of(rightsof.Enroll).there; got != nil {
		t.Error("a feature that is off waits for rights")
	}
}

// TestComponentsBringTheRights: what the manager asks a person to apply has what it lacks.
func TestComponentsBringTheRights(t *testing.T) {
	t.Parallel()
	s := newRightsScenario(t, config.Features{
		Enroll: true, PodCondition: true, Evictions: config.Evictions{Enabled: true, Name: "rollcall-evictions"},
	})
	s.metrics.secure = true
	_, err := s.app.options.slices.New(t.Context(), registry.Config{})
	must(t, err)
	for _, n := range s.app.needs() {
		files, err := filepath.Glob("../../config/components/" + n.Component + "/*role.yaml")
		must(t, err)
		var rules []rbacv1.PolicyRule
		for _, file := range files {
			text, err := os.ReadFile(file)
			must(t, err)
			for part := range bytes.SplitSeq(text, []byte("\n---\n")) {
				var role rbacv1.ClusterRole
				must(t, yaml.Unmarshal(part, &role))
				rules = append(rules, role.Rules...)
			}
		}
		for _, right := range n.Rights {
			if !slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool { return grants(rule, right.Attributes("", s.webhook)) }) {
				t.Errorf("config/components/%s does not grant %s", n.Component, right.Text([]string{""}, s.webhook))
			}
		}
		for _, one := range granted(rules, s.webhook) {
			asks := func(r rightsof.Right) bool { return r.Attributes("", s.webhook) == one }
			if one.Resource+" "+one.Verb != "secrets update" && !slices.ContainsFunc(n.Rights, asks) { // which cert-manager may do
				t.Errorf("%s begins without the right to %s %s, which config/components/%s brings", n.Name, one.Verb, one.Resource, n.Component)
			}
		}
	}
}

// granted are the single rights of the rules.
func granted(rules []rbacv1.PolicyRule, webhook string) (all []authorizationv1.ResourceAttributes) {
	for _, rule := range rules {
		for _, verb := range rule.Verbs {
			for _, resource := range rule.Resources {
				one := rightsof.Right{Verb: verb, Group: rule.APIGroups[0], Resource: resource, Place: rightsof.InCluster}
				if len(rule.ResourceNames) > 0 {
					one.Place = rightsof.WebhookInCluster
				}
				all = append(all, one.Attributes("", webhook))
			}
		}
	}
	return all
}

func grants(rule rbacv1.PolicyRule, r authorizationv1.ResourceAttributes) bool {
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	return slices.Contains(rule.APIGroups, r.Group) && slices.Contains(rule.Resources, resource) && slices.Contains(rule.Verbs, r.Verb) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, r.Name))
}

// rightsScenario is a manager of two namespaces that leads, whose rights the test holds.
type rightsScenario struct {
	*rights
	*flags

	t       *testing.T
	app     *app
	allowed map[string]bool
	fails   error
	made    []string
}

func newRightsScenario(t *testing.T, features config.Features) *rightsScenario {
	t.Helper()
	s := &rightsScenario{t: t, flags: &flags{}, allowed: map[string]bool{}}
	s.app = &app{options: &options{slices: endpointslice.NewWatch()}, flags: s.flags, features: features}
	elected := make(chan struct{})
	close(elected)
	server := interceptor.NewClient(clientfake.NewClientBuilder().WithScheme(newScheme()).Build(), interceptor.Funcs{Create: s.create})
	s.rights = &rights{
		server: server, namespaces: []string{"orders", "pay"}, webhook: features.Evictions.Name, needs: s.app.needs(), logger: quiet(),
		events: &configEvents{server: server, elected: elected, logger: quiet()},
	}
	return s
}

func (s *rightsScenario) create(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
	switch o := object.(type) {
	case *authorizationv1.SelfSubjectAccessReview:
		of := o.Spec.ResourceAttributes
		text := strings.TrimSpace(of.Verb + " " + of.Resource + " " + of.Name)
		if of.Namespace != "" {
			text += " in " + of.Namespace
		}
		o.Status.Allowed = s.allowed[text]
		return s.fails
	case *eventsv1.Event:
		s.made = append(s.made, fmt.Sprintf("%s %s %s: %s", o.Type, o.Reason, o.Regarding.Name, o.Note))
		return nil
	default:
		return fmt.Errorf("a %T is created", object)
	}
}

func (s *rightsScenario) Poll() { s.once(s.t.Context()) }

// ExpectEvents expects these Events since the last, in their order.
func (s *rightsScenario) ExpectEvents(parts ...string) {
	s.t.Helper()
	if len(s.made) != len(parts) {
		s.t.Fatalf("Events are %q, want %d", s.made, len(parts))
	}
	for i, part := range parts {
		if !strings.HasPrefix(s.made[i], "Warning RightsMissing rollcall-config: ") || !strings.Contains(s.made[i], part) {
			s.t.Errorf("the Event is %q, want %q in it", s.made[i], part)
		}
	}
	s.made = nil
}

func (s *rightsScenario) ExpectWaiting(want ...string) {
	s.t.Helper()
	var waiting []string
	for _, n := range s.needs {
		if !isClosed(n.there) {
			waiting = append(waiting, n.Name)
		}
	}
	expect.Equal(s.t, want, waiting, "the features that wait")
}
