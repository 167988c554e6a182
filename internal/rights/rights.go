// Package rights is what the manager must be allowed: for the manager, which waits for it, and for the plugin, which checks it.
package rights

import (
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/config"
)

// Features, as the configuration and the command line have them.
const (
	Enroll        = "enroll"
	PodCondition  = "podCondition"
	Evictions     = "evictions"
	EndpointSlice = "driver endpointslice"
	SecureMetrics = "--metrics-secure"
)

// Right is what the manager must be allowed.
type Right struct {
	Verb, Group, Resource string
	Place                 Place
}

// Place is where a right counts: in the whole cluster, in each namespace of the pods, or for the objects of the webhook's name, in the
// cluster or in the manager's namespace.
type Place int

// The places.
const (
	InCluster Place = iota
	AtPods
	WebhookInCluster
	WebhookHere
)

// Feature is what needs rights in addition to those that every manager has.
type Feature struct {
	Name, Component string
	Rights          []Right
}

// Asker is where and for whom rights are asked about.
type Asker struct {
	// Namespaces are those of the pods; none means all.
	Namespaces []string
	// Own is the manager's namespace, and Webhook the name of the eviction webhook.
	Own, Webhook string
	Allowed      func(authorizationv1.ResourceAttributes) (bool, error)
}

// Always are the rights without which no manager works.
func Always() Feature {
	const kruise = "apps.kruise.io"
	base := Feature{Name: "the manager"}
	for _, verb := range []string{"get", "list", "watch", "patch"} {
		base.Rights = append(base.Rights, Right{verb, "", "pods", AtPods})
	}
	for _, kind := range clusterstate.Kinds() {
		for _, verb := range []string{"get", "list", "watch"} {
			base.Rights = append(base.Rights, Right{verb, kruise, strings.ToLower(kind) + "s", AtPods})
		}
	}
	return base
}

// Of returns what the features that are on need. slices: a registry's driver is endpointslice. secure: the metrics need a login. The right
// to update the webhook's Secret is not among them: with cert-manager the manager lacks it, and does not need it.
func Of(c config.Features, slices, secure bool) (features []Feature) {
	const endpoints = "endpointslices"
	const admission, webhooks = "admissionregistration.k8s.io", "mutatingwebhookconfigurations"
	for _, f := range []struct {
		on bool
		Feature
	}{
		{c.Enroll, Feature{Enroll, "enroll", []Right{{"patch", "apps.kruise.io", "clonesets", AtPods}}}},
		{c.PodCondition, Feature{PodCondition, "pod-condition", []Right{{"patch", "", "pods/status", AtPods}}}},
		{slices, Feature{EndpointSlice, "endpointslice", []Right{
			{"list", discoveryv1.GroupName, endpoints, AtPods}, {"watch", discoveryv1.GroupName, endpoints, AtPods},
		}}},
		{c.Evictions.Enabled, Feature{Evictions, "evictions", []Right{
			{"list", "policy", "poddisruptionbudgets", AtPods}, {"get", "policy.kruise.io", "podunavailablebudgets", AtPods},
			{"get", admission, webhooks, WebhookInCluster}, {"patch", admission, webhooks, WebhookInCluster}, {"get", "", "secrets", WebhookHere},
		}}},
		{secure, Feature{SecureMetrics, "prometheus", []Right{
			{"create", "authentication.k8s.io", "tokenreviews", InCluster}, {"create", "authorization.k8s.io", "subjectaccessreviews", InCluster},
		}}},
	} {
		if f.on {
			features = append(features, f.Feature)
		}
	}
	return features
}

// Remedy is what brings the feature's rights.
func (f Feature) Remedy() string {
	if f.Component == "" {
		return "Apply config/rbac, which the chart brings, or config/examples/one-namespace for some namespaces only."
	}
	brought := "which the chart brings with config." + f.Name
	switch {
	case strings.HasPrefix(f.Name, "--"):
		brought = "which the chart brings with the flag"
	case f.Name == EndpointSlice:
		brought = "which the chart brings with the driver"
	}
	return "Apply config/components/" + f.Component + ", " + brought + "."
}

// Missing lists the rights that the manager lacks for the feature.
func (f Feature) Missing(by Asker) (string, error) {
	verbs, missing := map[string]string{}, []string(nil) // by what they are for, each once
	for _, one := range f.Rights {
		var lacks []string
		for _, namespace := range by.at(one.Place) {
			if has, err := by.Allowed(one.Attributes(namespace, by.Webhook)); err != nil {
				return "", err
			} else if !has {
				lacks = append(lacks, namespace)
			}
		}
		if len(lacks) == 0 {
			continue
		}
		of := one.of(lacks, by.Webhook)
		if verbs[of] == "" {
			missing = append(missing, of)
		}
		verbs[of] = strings.TrimPrefix(verbs[of]+", "+one.Verb, ", ")
	}
	for i, of := range missing {
		missing[i] = verbs[of] + " " + of
	}
	return strings.Join(missing, "; "), nil
}

// at returns the namespaces to ask about; an empty one means the whole cluster.
func (a Asker) at(p Place) []string {
	switch {
	case p == AtPods && len(a.Namespaces) > 0:
		return a.Namespaces
	case p == WebhookHere:
		return []string{a.Own}
	default:
		return []string{""}
	}
}

// Attributes are what the API server is asked about.
func (r Right) Attributes(namespace, webhook string) authorizationv1.ResourceAttributes {
	resource, subresource, _ := strings.Cut(r.Resource, "/")
	of := authorizationv1.ResourceAttributes{
		Namespace: namespace, Verb: r.Verb, Group: r.Group, Resource: resource, Subresource: subresource,
	}
	if r.Place == WebhookInCluster || r.Place == WebhookHere {
		of.Name = webhook
	}
	return of
}

// Text is the right for a person.
func (r Right) Text(namespaces []string, webhook string) string {
	return r.Verb + " " + r.of(namespaces, webhook)
}

// of is what the right is to.
func (r Right) of(namespaces []string, webhook string) string {
	text := r.Resource
	if r.Group != "" {
		text += "." + r.Group
	}
	if name := r.Attributes("", webhook).Name; name != "" {
		text += " " + name
	}
	switch {
	case namespaces[0] != "":
		text += " in " + strings.Join(namespaces, ", ")
	case r.Place == AtPods:
		text += " in all namespaces"
	}
	return text
}
