// Package lint finds what in a workload of OpenKruise will not work, before it runs: for a person who asks, and before it is enrolled.
package lint

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
)

// Workload returns a sentence for each thing in the workload that will not work by the configuration, and what to write. The labels
// are those of its namespace, nil if they are not known.
func Workload(w *clusterstate.Workload, c *config.Config, of labels.Set) []string {
	hooks := lifecycle.HooksOf(w.ForDecision(), c.Hooks)
	if hooks.Foreign || !hooks.Any() {
		return []string{fmt.Sprintf("no hook has a handler that Rollcall owns (%s): Rollcall leaves its pods alone", c.Hooks)}
	}
	var findings []string
	for _, r := range hooks.Refused {
		findings = append(findings, r.Why)
	}
	template := w.Template
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
	for _, h := range hooks.Templated(hooks.InPlaceUpdate) {
		findings = append(findings, fmt.Sprintf("the template sets %s, a handler of inPlaceUpdate: an update that adds it makes OpenKruise "+
			"count the pods as available before they are registered: remove it from spec.template.metadata; Rollcall sets it on each pod", h))
	}
	if template.Annotations[lifecycle.AnnotationSkip] != "" {
		findings = append(findings, fmt.Sprintf("the template has annotation %s, which Rollcall refuses there: remove it from "+
			"spec.template, and annotate only the pod whose hook is to be skipped", lifecycle.AnnotationSkip))
	}
	if template.Annotations[lifecycle.AnnotationHold] != "" {
		findings = append(findings, fmt.Sprintf("the template has annotation %s, which Rollcall refuses there: remove it from "+
			"spec.template, and annotate only the pod that is to be held out", lifecycle.AnnotationHold))
	}
	findings = append(findings, traffic(w, hooks)...)
	findings = append(findings, ofKind(w, hooks, c)...)
	return append(findings, Description(w, c, of)...)
}

// traffic returns what is wrong with the shares of the workload's revisions.
func traffic(w *clusterstate.Workload, hooks lifecycle.Hooks) (findings []string) {
	if _, shared := w.Annotations[lifecycle.AnnotationTraffic]; shared && (len(hooks.PreNormal) == 0 || len(hooks.InPlaceUpdate) == 0) {
		findings = append(findings, fmt.Sprintf("annotation %s needs hooks preNormal and inPlaceUpdate: without them OpenKruise replaces all "+
			"pods by pods of a revision that has no share: add both to spec.lifecycle", lifecycle.AnnotationTraffic))
	}
	if _, err := lifecycle.TrafficOf(w.ForDecision()); err != nil {
		findings = append(findings, err.Error())
	}
	if left := lifecycle.LeftOverTraffic(w.ForDecision()); left != "" {
		findings = append(findings, left)
	}
	if _, has := w.Template.Annotations[lifecycle.AnnotationTraffic]; has {
		findings = append(findings, fmt.Sprintf("the template has annotation %s, which Rollcall reads on the CloneSet only: move it from "+
			"spec.template.metadata to metadata", lifecycle.AnnotationTraffic))
	}
	return findings
}

// driverEndpointSlice takes pods out by their readiness gate.
const driverEndpointSlice = "endpointslice"

// ungated reports that the pods will lack the gate that a registry of theirs needs.
func ungated(template clusterstate.Template, registries []service.Registration, c *config.Config) []string {
	gate := corev1.PodReadinessGate{ConditionType: lifecycle.ConditionInRotation}
	for _, r := range registries {
		if c.Registries[r.Registry].Driver == driverEndpointSlice && !slices.Contains(template.Spec().ReadinessGates, gate) {
			return []string{fmt.Sprintf("the template lacks the readiness gate %s, so Rollcall could not take its pods out of registry %s: "+
				"add {conditionType: %[1]s} to spec.template.spec.readinessGates", gate.ConditionType, r.Registry)}
		}
	}
	return nil
}

// ofKind returns what will not work only because of the workload's kind.
func ofKind(w *clusterstate.Workload, hooks lifecycle.Hooks, c *config.Config) []string {
	switch w.Kind {
	case clusterstate.KindStatefulSet:
		if w.Ordered && len(hooks.InPlaceUpdate)+len(hooks.PreDelete) > 0 {
			return []string{"podManagementPolicy is OrderedReady, its default, and OpenKruise 1.8 and 1.9 then stop at the first pod that waits " +
				"at a hook, in an update and in a scale-in by two or more: set spec.podManagementPolicy to Parallel, which is immutable"}
		}
	case clusterstate.KindDaemonSet:
		return ofDaemonSet(w, hooks, c)
	}
	return nil
}

// ofDaemonSet: OpenKruise asks only the hook preDelete, and gives a pod no state before that, so Rollcall neither sees nor arms it.
func ofDaemonSet(w *clusterstate.Workload, hooks lifecycle.Hooks, c *config.Config) (findings []string) {
	if w.Lifecycle.InPlaceUpdate != nil {
		findings = append(findings, "OpenKruise refuses the hook inPlaceUpdate in a DaemonSet: remove spec.lifecycle.inPlaceUpdate")
	}
	if w.Lifecycle.PreNormal != nil {
		findings = append(findings, "OpenKruise does not wait at the hook preNormal of a DaemonSet: remove spec.lifecycle.preNormal")
	}
	state, seen := w.Template.Labels[appspub.LifecycleStateKey]
	switch {
	case state == string(appspub.LifecycleStateNormal):
		return findings
	case seen:
		return append(findings, fmt.Sprintf("the template sets label %s=%s, which OpenKruise never changes: set it to %s",
			appspub.LifecycleStateKey, state, appspub.LifecycleStateNormal))
	case !RegistersItself(w.Template.Annotations, c):
		return append(findings, fmt.Sprintf("the template does not set label %s, so Rollcall does not see the pods and registers none: "+
			"set it to %s in spec.template.metadata.labels", appspub.LifecycleStateKey, appspub.LifecycleStateNormal))
	}
	born := bornOf(w.Template)
	for _, h := range hooks.PreDelete {
		if !h.SetOn(born) {
			findings = append(findings, fmt.Sprintf("the template does not set %s, so OpenKruise deletes the pods without waiting: set it in "+
				"spec.template.metadata", h))
		}
	}
	return findings
}

// RegistersItself reports whether the application of pods with these annotations may do so in one of their registries at least.
func RegistersItself(annotations map[string]string, c *config.Config) bool {
	registries, err := service.RegistriesOf(annotations, defaultsOf("", nil, c), c.RegisteredByApp()) // Description returns the error
	return err != nil || slices.ContainsFunc(registries, func(r service.Registration) bool { return r.ByApp })
}

// Hookless reports whether the workload has no hooks, and nothing that shows that it should have some already: it may be enrolled later.
func Hookless(w *clusterstate.Workload) bool {
	return len(lifecycle.HandlersOf(w.Lifecycle)) == 0 && (w.Lifecycle == nil || !Annotated(w))
}

// Annotated reports whether the template has annotations for Rollcall, by which its author counts on it.
func Annotated(w *clusterstate.Workload) bool {
	isRollcalls := func(key string) bool { return strings.HasPrefix(key, lifecycle.Domain) }
	return slices.ContainsFunc(slices.Collect(maps.Keys(w.Template.Annotations)), isRollcalls)
}

// Annotations returns a sentence for each annotation of Rollcall's domain that has no effect where it stands.
func Annotations(w *clusterstate.Workload) []string {
	var findings []string
	born := bornOf(w.Template)
	in := lifecycle.Input{Pod: born, Hooks: lifecycle.HooksOf(w.ForDecision(), lifecycle.Ownership{})}
	if unknown := in.UnknownName(service.Annotations()); unknown != "" {
		findings = append(findings, "the template has "+unknown)
	}
	for _, key := range slices.Sorted(maps.Keys(w.GetAnnotations())) {
		if slices.Contains(service.Annotations(), key) {
			findings = append(findings, fmt.Sprintf("metadata.annotations has %s, which Rollcall reads on pods: move it to "+
				"spec.template.metadata.annotations", key))
		}
	}
	return findings
}

// Notes returns a sentence for each thing that may be meant so, such as a handler that may be misspelt or another controller's.
func Notes(w *clusterstate.Workload, c *config.Config) []string {
	handlers := unowned(w, c)
	if len(handlers) == len(lifecycle.HandlersOf(w.Lifecycle)) {
		return nil // Workload returns it
	}
	var notes []string
	if w.UpdatesInPlace {
		notes = append(notes, "an update in place of a DaemonSet waits at no hook, so requests can be lost in it: "+
			"set spec.updateStrategy.rollingUpdate.rollingUpdateType to Standard")
	}
	if gate := lifecycle.KeptAsTarget(w.Template.Spec().ReadinessGates); gate != "" {
		notes = append(notes, fmt.Sprintf("the template has readiness gate %s, %s", gate, lifecycle.BalancerRemedy))
	}
	for _, n := range handlers {
		notes = append(notes, fmt.Sprintf("spec.lifecycle.%s has %s, which Rollcall does not own (%s) and leaves alone: "+
			"unless the handler is another controller's, correct its key or add it to hooks.owned", n.Hook, n, c.Hooks))
	}
	return notes
}

// bornOf is a pod of the template, as far as metadata goes.
func bornOf(t clusterstate.Template) *lifecycle.Pod {
	return &lifecycle.Pod{ObjectMeta: metav1.ObjectMeta{Labels: t.Labels, Annotations: t.Annotations, Finalizers: t.Finalizers}}
}

// unowned are the handlers that Rollcall never sets.
func unowned(w *clusterstate.Workload, c *config.Config) []lifecycle.Named {
	return slices.DeleteFunc(lifecycle.HandlersOf(w.Lifecycle), func(n lifecycle.Named) bool {
		return c.Hooks.Owns(n.Key()) || n.Key() == lifecycle.GuardFinalizer // which is a refused handler
	})
}

// defaultsOf may be all of them if the labels of the namespace are not known.
func defaultsOf(namespace string, of labels.Set, c *config.Config) []string {
	if of == nil && len(c.DefaultsFor) > 0 {
		return c.RegistryNames()
	}
	return service.DefaultsOf(c.DefaultRegistries, c.DefaultsFor, namespace, of)
}

// Description returns a sentence for each thing that the manager does not accept in the template's own description, with hooks or without.
func Description(w *clusterstate.Workload, c *config.Config, of labels.Set) []string {
	template, subject := w.Template, w.Subject()
	endpoints, endpointsErr := c.Service.EndpointsOf(subject)
	_, attributesErr := c.Service.AttributesOf(subject)
	registries, registriesErr := service.RegistriesOf(template.Annotations, defaultsOf(w.GetNamespace(), of, c), c.RegisteredByApp())
	_, drainErr := service.DrainOf(template.Annotations, c.Drain)
	var findings []string
	if err := errors.Join(endpointsErr, attributesErr, registriesErr, drainErr); err != nil {
		findings = strings.Split(err.Error(), "\n")
	}
	findings = append(slices.Compact(findings), ungated(template, registries, c)...)
	if _, chosen := template.Annotations[service.AnnotationRegistries]; chosen || of != nil || len(c.DefaultsFor) == 0 {
		subject.NamespaceLabels = of
		findings = append(findings, unplaced(subject, registries, c)...)
	}
	return append(findings, notAllowed(w.GetNamespace(), c.Service.Allowed, of, endpoints)...)
}

// unplaced reports which label the pods lack, or their namespace if its labels are known, by which a registry's options place them.
func unplaced(subject service.Subject, registries []service.Registration, c *config.Config) (findings []string) {
	subject.Namespace = cmp.Or(subject.Namespace, "any")
	for _, r := range registries {
		var options map[string]any
		_ = json.Unmarshal(c.Registries[r.Registry].Options, &options) // its driver returns the error
		for _, key := range slices.Sorted(maps.Keys(options)) {
			template, _ := options[key].(string)
			byNamespace := strings.Contains(template, "{nsLabel:")
			if !byNamespace && !strings.Contains(template, "{label:") || byNamespace && subject.NamespaceLabels == nil {
				continue
			}
			if _, err := service.PlaceOf(template, subject); err != nil {
				findings = append(findings, fmt.Sprintf("registry %q: %s", r.Registry, err))
			}
		}
	}
	return findings
}

// notAllowed reports which service names are refused by the policy. A manifest without a namespace may be for any.
func notAllowed(namespace string, policy service.Policy, of labels.Set, endpoints []service.Endpoint) []string {
	if namespace == "" {
		return nil
	}
	if of == nil {
		policy = policy.AtMost()
	}
	var findings []string
	for _, e := range endpoints {
		if !policy.Allows(namespace, of, e.Name) {
			findings = append(findings, service.NotAllowed(namespace, e.Name))
		}
	}
	return slices.Compact(findings)
}
