// Package lint says what in a CloneSet will not work, before it runs: for a person who asks, and before it is enrolled.
package lint

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
)

// domain begins the keys that no other controller has.
const domain = "rollcall.dev/"

// CloneSet returns a sentence for each thing in the CloneSet that will not work by the configuration, and what to write. The labels
// are those of its namespace, nil where they are not known.
func CloneSet(set *kruisev1alpha1.CloneSet, c *config.Config, of labels.Set) []string {
	hooks := lifecycle.HooksOf(clusterstate.AsWorkload(set).ForDecision(), c.Hooks)
	if hooks.Foreign || !hooks.Any() {
		return []string{fmt.Sprintf("no hook has a handler that hooks.owned claims (%s): Rollcall leaves its pods alone",
			strings.Join(c.Hooks.Owned, ", "))}
	}
	var findings []string
	for _, r := range hooks.Refused {
		findings = append(findings, r.Why)
	}
	for _, n := range unowned(set, c) {
		if strings.HasPrefix(n.Key(), domain) {
			findings = append(findings, fmt.Sprintf("spec.lifecycle.%s has %s, which is no handler that Rollcall sets: write %s, %s or %s",
				n.Hook, n, lifecycle.LabelPreNormal, lifecycle.LabelInPlaceUpdate, lifecycle.LabelPreDelete))
		}
	}
	template := set.Spec.Template
	for _, h := range hooks.PreNormal {
		switch {
		case h.Finalizer != "":
			findings = append(findings, fmt.Sprintf("preNormal waits for finalizer %s, and OpenKruise up to 1.8.4 can miss that it was "+
				"added: use a label in spec.lifecycle.preNormal.labelsHandler", h.Finalizer))
		case template.Labels[h.Label] == h.Value:
			findings = append(findings, fmt.Sprintf("the template sets label %s=%s, so preNormal waits for nothing: remove it from "+
				"spec.template.metadata.labels", h.Label, h.Value))
		}
	}
	if template.Annotations[lifecycle.AnnotationSkip] != "" {
		findings = append(findings, fmt.Sprintf("the template has annotation %s, which Rollcall refuses there: remove it from "+
			"spec.template, and write it on the one pod that is to go on", lifecycle.AnnotationSkip))
	}
	return append(findings, description(set, c, of)...)
}

// Annotations returns a sentence for each annotation of Rollcall's domain that has no effect where it stands.
func Annotations(set *kruisev1alpha1.CloneSet) []string {
	var findings []string
	for _, key := range slices.Sorted(maps.Keys(set.Spec.Template.Annotations)) {
		if strings.HasPrefix(key, domain) && key != lifecycle.AnnotationSkip && !slices.Contains(service.Annotations(), key) {
			findings = append(findings, fmt.Sprintf("the template has annotation %s, which Rollcall does not read there: correct it, or remove it; "+
				"it reads %s", key, strings.Join(service.Annotations(), ", ")))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(set.Annotations)) {
		if slices.Contains(service.Annotations(), key) {
			findings = append(findings, fmt.Sprintf("metadata.annotations has %s, which Rollcall reads on pods: move it to "+
				"spec.template.metadata.annotations", key))
		}
	}
	return findings
}

// Notes returns a sentence for each handler beside Rollcall's that may be misspelt, and may be another controller's.
func Notes(set *kruisev1alpha1.CloneSet, c *config.Config) []string {
	handlers := unowned(set, c)
	if len(handlers) == len(lifecycle.HandlersOf(set.Spec.Lifecycle)) {
		return nil // CloneSet says so
	}
	var notes []string
	for _, n := range handlers {
		if !strings.HasPrefix(n.Key(), domain) {
			notes = append(notes, fmt.Sprintf("spec.lifecycle.%s has %s, which hooks.owned does not claim (%s), so Rollcall leaves it alone: "+
				"if it is no other controller's, correct the key or add it to hooks.owned", n.Hook, n, strings.Join(c.Hooks.Owned, ", ")))
		}
	}
	return notes
}

// unowned are the handlers that Rollcall never sets.
func unowned(set *kruisev1alpha1.CloneSet, c *config.Config) []lifecycle.Named {
	return slices.DeleteFunc(lifecycle.HandlersOf(set.Spec.Lifecycle), func(n lifecycle.Named) bool { return c.Hooks.Owns(n.Key()) })
}

// description says what of the template's own description the manager does not accept.
func description(set *kruisev1alpha1.CloneSet, c *config.Config, of labels.Set) []string {
	template, subject := set.Spec.Template, clusterstate.AsWorkload(set).Subject()
	endpoints, endpointsErr := c.Service.EndpointsOf(subject)
	_, attributesErr := c.Service.AttributesOf(subject)
	_, registriesErr := service.RegistriesOf(template.Annotations, c.DefaultRegistries, c.RegistryNames())
	_, byErr := service.RegisteredByApp(template.Annotations, false)
	_, drainErr := service.DrainOf(template.Annotations, c.Drain)
	var findings []string
	if err := errors.Join(endpointsErr, attributesErr, registriesErr, byErr, drainErr); err != nil {
		findings = strings.Split(err.Error(), "\n")
	}
	return append(slices.Compact(findings), notAllowed(set.Namespace, c.Service.Allowed, of, endpoints)...)
}

// notAllowed says which names the policy refuses. A manifest without a namespace may be for any.
func notAllowed(namespace string, policy service.Policy, of labels.Set, endpoints []service.Endpoint) []string {
	if namespace == "" {
		return nil
	}
	if of == nil {
		policy = policy.AtMost()
	}
	var findings []string
	for _, e := range endpoints {
		if !policy.Allows(namespace, of, e.Service) {
			findings = append(findings, service.NotAllowed(namespace, e.Service))
		}
	}
	return slices.Compact(findings)
}
