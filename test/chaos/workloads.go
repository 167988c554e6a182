package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	appLabel           = "app"
	servicesAnnotation = "rollcall.dev/services"
	// registriesAnnotation names the registries of a pod.
	registriesAnnotation = "rollcall.dev/registries"
	recordAnnotation     = "rollcall.dev/registration"
	markAnnotation       = "example.io/initialing"
	markLabel            = "example.com/newly-create"
	set                  = "true"
)

// workload is one CloneSet, in one style of writing hooks.
type workload struct {
	name, namespace string
	lifecycle       appspub.Lifecycle
	// services are its instances' names and ports.
	services map[string]int
	// labels and finalizers are what the template brings for the hooks.
	labels      map[string]string
	annotations map[string]string
	finalizers  []string
	recreate    bool // instead of in place
	// registries its pods are in; none leaves that to the configuration.
	registries []string
}

// The registries. All are one server's, which knows them by the path.
const (
	defaultRegistry = "default"
	secondRegistry  = "second"
	// leasedRegistry forgets what is not renewed, and unlistedRegistry can't be asked for anything.
	leasedRegistry   = "leased"
	unlistedRegistry = "unlisted"
)

func registryNames() []string {
	return []string{defaultRegistry, secondRegistry, leasedRegistry, unlistedRegistry}
}

// keys are the instances of a pod at an address.
func (w *workload) keys(uid, address string) []key {
	names := w.registries
	if len(names) == 0 {
		names = []string{defaultRegistry}
	}
	var all []key
	for _, name := range names {
		for _, service := range slices.Sorted(maps.Keys(w.services)) {
			all = append(all, key{registry: name, uid: uid, service: service, address: address, port: w.services[service]})
		}
	}
	return all
}

// has reports whether the instance is one of a pod at the address.
func (w *workload) has(k key, address string) bool { return slices.Contains(w.keys(k.uid, address), k) }

// workloads are all styles: of hooks, and of registries.
func workloads() []*workload { return slices.Concat(separate(), shared(), elsewhere()) }

// elsewhere are in other registries than the default.
func elsewhere() []*workload {
	all := []*workload{
		{name: "two-registries", registries: []string{defaultRegistry, secondRegistry}},
		{name: "leased", registries: []string{leasedRegistry}},
		{name: "unlisted", registries: []string{unlistedRegistry}},
	}
	for _, w := range all {
		w.namespace, w.services = "chaos-b", map[string]int{w.name: 8080}
		w.lifecycle = appspub.Lifecycle{
			PreNormal:     labelHook("example.com/traffic", "online"),
			InPlaceUpdate: labelHook("example.com/update-gate", "shut"),
			PreDelete:     finalizerHook("example.io/delete-gate"),
		}
		w.labels = map[string]string{"example.com/traffic": "offline", "example.com/update-gate": "shut"}
		w.finalizers = []string{"example.io/delete-gate"}
	}
	return all
}

// separate and shared are all hook styles: labels, finalizers, one label and one finalizer for two hooks, values other than "true",
// several handlers for one hook, several services, and workloads that lack a hook. preNormal is by a label: OpenKruise 1.8.3
// can miss that a finalizer of preNormal was set.
// shared have one handler for two hooks.
func shared() []*workload {
	return []*workload{
		{
			name: "one-label", namespace: "chaos-b", services: map[string]int{"one-label": 8080},
			lifecycle: appspub.Lifecycle{
				InPlaceUpdate: labelHook("example.com/unready-blocker", set), PreDelete: labelHook("example.com/unready-blocker", set),
			},
			labels: map[string]string{"example.com/unready-blocker": set},
		},
		{
			name: "finalizer", namespace: "chaos-a", services: map[string]int{"finalizer": 8080},
			lifecycle: appspub.Lifecycle{
				InPlaceUpdate: finalizerHook("example.io/unready-blocker"), PreDelete: finalizerHook("example.io/unready-blocker"),
			},
			annotations: map[string]string{markAnnotation: set},
			finalizers:  []string{"example.io/unready-blocker"},
		},
	}
}

// separate have handlers for each hook that are its own.
func separate() []*workload {
	return []*workload{
		{
			name: "labels", namespace: "chaos-a", services: map[string]int{"labels": 8080},
			lifecycle: appspub.Lifecycle{
				InPlaceUpdate: labelHook("example.com/unready-blocker-inplace", set),
				PreDelete:     labelHook("example.com/unready-blocker-delete", set),
			},
			labels: map[string]string{
				markLabel: set, "example.com/unready-blocker-inplace": set, "example.com/unready-blocker-delete": set,
			},
		},
		{
			name: "prenormal", namespace: "chaos-a", services: map[string]int{"prenormal": 8080}, recreate: true,
			lifecycle: appspub.Lifecycle{PreNormal: labelHook("example.com/traffic-online", set)},
			labels:    map[string]string{"example.com/traffic-online": "false"},
		},
		{
			name: "all-labels", namespace: "chaos-a", services: map[string]int{"all-web": 8080, "all-admin": 9090},
			lifecycle: appspub.Lifecycle{
				PreNormal:     labelHook("example.com/traffic", "online"),
				InPlaceUpdate: labelHook("example.com/update-gate", "shut"),
				PreDelete:     labelHook("example.com/delete-gate", "shut"),
			},
			labels: map[string]string{
				"example.com/traffic": "offline", "example.com/update-gate": "shut", "example.com/delete-gate": "shut",
			},
		},
		{
			name: "mixed", namespace: "chaos-b", services: map[string]int{"mixed": 8080, "mixed-grpc": 8081, "mixed-admin": 9090},
			lifecycle: appspub.Lifecycle{
				PreNormal: labelHook("example.com/traffic", "online"),
				InPlaceUpdate: &appspub.LifecycleHook{
					LabelsHandler:     map[string]string{"example.com/update-gate": "shut"},
					FinalizersHandler: []string{"example.io/update-gate"},
				},
				PreDelete: &appspub.LifecycleHook{
					LabelsHandler:     map[string]string{"example.com/delete-gate": "shut"},
					FinalizersHandler: []string{"example.io/delete-gate"},
				},
			},
			labels: map[string]string{
				"example.com/traffic": "offline", "example.com/update-gate": "shut", "example.com/delete-gate": "shut",
			},
			finalizers: []string{"example.io/update-gate", "example.io/delete-gate"},
		},
		{
			name: "delete-only", namespace: "chaos-b", services: map[string]int{"delete-only": 8080},
			lifecycle:  appspub.Lifecycle{PreDelete: finalizerHook("example.io/delete-gate")},
			finalizers: []string{"example.io/delete-gate"},
		},
		{
			// The template brings no handler: each pod has to be armed.
			name: "unarmed", namespace: "chaos-b", services: map[string]int{"unarmed": 8080},
			lifecycle: appspub.Lifecycle{
				InPlaceUpdate: labelHook("example.com/update-gate", set), PreDelete: labelHook("example.com/delete-gate", set),
			},
		},
	}
}

func labelHook(key, value string) *appspub.LifecycleHook {
	return &appspub.LifecycleHook{LabelsHandler: map[string]string{key: value}}
}

func finalizerHook(finalizer string) *appspub.LifecycleHook {
	return &appspub.LifecycleHook{FinalizersHandler: []string{finalizer}}
}

func (w *workload) hook(name string) *appspub.LifecycleHook {
	switch name {
	case hookPreNormal:
		return w.lifecycle.PreNormal
	case hookInPlaceUpdate:
		return w.lifecycle.InPlaceUpdate
	default:
		return w.lifecycle.PreDelete
	}
}

// handlers of all hooks, each once: label=value, or the finalizer.
func (w *workload) handlers() []string {
	var all []string
	for _, name := range []string{hookPreNormal, hookInPlaceUpdate, hookPreDelete} {
		all = append(all, handlersOf(w.hook(name))...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func handlersOf(hook *appspub.LifecycleHook) []string {
	if hook == nil {
		return nil
	}
	all := slices.Clone(hook.FinalizersHandler)
	for label, value := range hook.LabelsHandler {
		all = append(all, label+"="+value)
	}
	return all
}

func (w *workload) serves(hook, handler string) bool {
	return slices.Contains(handlersOf(w.hook(hook)), handler)
}

// setOn returns the handlers that are set on a pod.
func (w *workload) setOn(pod *corev1.Pod) map[string]bool {
	on := map[string]bool{}
	for _, h := range w.handlers() {
		label, value, isLabel := strings.Cut(h, "=")
		switch {
		case isLabel && pod.Labels[label] == value, !isLabel && slices.Contains(pod.Finalizers, h):
			on[h] = true
		}
	}
	return on
}

// cloneSet is what is created.
func (w *workload) cloneSet(replicas int32) *kruisev1alpha1.CloneSet {
	labels := map[string]string{appLabel: w.name}
	maps.Copy(labels, w.labels)
	var services []string
	for _, name := range slices.Sorted(maps.Keys(w.services)) {
		services = append(services, name+"="+strconv.Itoa(w.services[name]))
	}
	annotations := map[string]string{servicesAnnotation: strings.Join(services, ",")}
	if len(w.registries) > 0 {
		annotations[registriesAnnotation] = strings.Join(w.registries, ",")
	}
	maps.Copy(annotations, w.annotations)
	update := kruisev1alpha1.CloneSetUpdateStrategy{
		Type: kruisev1alpha1.InPlaceIfPossibleCloneSetUpdateStrategyType, MaxUnavailable: new(intstr.FromString("50%")),
	}
	if w.recreate {
		update.Type, update.MaxSurge = kruisev1alpha1.RecreateCloneSetUpdateStrategyType, new(intstr.FromString("20%"))
	}
	return &kruisev1alpha1.CloneSet{
		ObjectMeta: metav1.ObjectMeta{Name: w.name, Namespace: w.namespace},
		Spec: kruisev1alpha1.CloneSetSpec{
			Replicas: &replicas, Lifecycle: w.lifecycle.DeepCopy(), UpdateStrategy: update,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{appLabel: w.name}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations, Finalizers: w.finalizers},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "main", Image: image(0), Env: []corev1.EnvVar{{Name: "GENERATION", Value: "0"}},
				}}},
			},
		},
	}
}

func image(version int) string { return fmt.Sprintf("app:%d", version) }
