// Package lint says what in a CloneSet will not work, before it runs: for a person who asks, and before it is enrolled.
package lint

import (
	"fmt"
	"slices"
	"strings"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
)

// CloneSet returns a sentence for each thing in the CloneSet that will not work by the configuration, and what to write.
func CloneSet(set *kruisev1alpha1.CloneSet, c *config.Config) []string {
	hooks := lifecycle.HooksOf(clusterstate.AsWorkload(set).ForDecision(), c.Hooks)
	if hooks.Foreign || !hooks.Any() {
		return []string{fmt.Sprintf("no hook has a handler that hooks.owned claims (%s): Rollcall leaves its pods alone",
			strings.Join(c.Hooks.Owned, ", "))}
	}
	var findings []string
	for _, r := range hooks.Refused {
		findings = append(findings, r.Why)
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
	return append(findings, description(set, c)...)
}

// description says what of the template's own description the manager does not accept.
func description(set *kruisev1alpha1.CloneSet, c *config.Config) []string {
	template := set.Spec.Template
	subject := service.Subject{
		Namespace: set.Namespace, Workload: set.Name, Labels: template.Labels, Annotations: template.Annotations, Spec: &template.Spec,
	}
	_, endpointsErr := c.Service.EndpointsOf(subject)
	_, attributesErr := c.Service.AttributesOf(subject)
	_, registriesErr := service.RegistriesOf(template.Annotations, c.DefaultRegistries, c.RegistryNames())
	_, byErr := service.RegisteredByApp(template.Annotations, false)
	_, drainErr := service.DrainOf(template.Annotations, c.Drain)
	var findings []string
	for _, err := range []error{endpointsErr, attributesErr, registriesErr, byErr, drainErr} {
		if err != nil {
			findings = append(findings, strings.Split(err.Error(), "\n")...)
		}
	}
	return slices.Compact(findings)
}
