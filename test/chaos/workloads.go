package main

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rollcall-dev/rollcall/test/harness/checker"
	"github.com/rollcall-dev/rollcall/test/harness/cluster"
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
	versionKey           = "chaos.rollcall.dev/version"
	// restartTakes is longer than a manager is given to clear what an update brings.
	restartTakes = "4s"
)

// workload is one CloneSet, in one style of writing hooks.
type workload struct {
	name, namespace string
	// hooks are the handlers of each: label=value, or a finalizer.
	hooks checker.Hooks
	// services are its instances' names and ports; none means its own name.
	services map[string]int
	// mark is the label or annotation of a pod that is newly created, if the template brings one.
	mark     string
	unarmed  bool // the template brings no handler: each pod has to be armed
	recreate bool // instead of in place
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
	return []string{defaultRegistry, secondRegistry, leasedRegistry, unlistedRegistry, appsRegistry}
}

// keys are the instances of a pod, by its annotations, which may have changed. Without one it is in the usual registry.
func keys(pod *corev1.Pod, usual string) []checker.Key {
	names := strings.Split(cmp.Or(pod.Annotations[registriesAnnotation], usual), ",")
	if registersItself(pod) {
		names = []string{appsBook}
	}
	var all []checker.Key
	for _, name := range names {
		for service, port := range servicesOf(pod) {
			all = append(all, checker.Key{
				Registry: name, UID: string(pod.UID), Service: service, Address: pod.Status.PodIP, Port: port,
			})
		}
	}
	return all
}

// servicesOf are a pod's services and their ports, in the order in which it has them.
func servicesOf(pod *corev1.Pod) iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		for one := range strings.SplitSeq(pod.Annotations[servicesAnnotation], ",") {
			service, port, _ := strings.Cut(one, "=")
			if number, err := strconv.Atoi(port); err != nil || !yield(service, number) {
				return
			}
		}
	}
}

// names are its services as an annotation has them, each with an ending.
func (w *workload) names(ending string) string {
	var services []string
	for _, name := range slices.Sorted(maps.Keys(w.services)) {
		services = append(services, name+ending+"="+strconv.Itoa(w.services[name]))
	}
	return strings.Join(services, ",")
}

// places are where a pod of it can move: the services and the registries.
func (w *workload) places(number int) (services, registries string) {
	all := []string{defaultRegistry, secondRegistry, defaultRegistry + "," + secondRegistry, leasedRegistry}
	return w.names([]string{"", "-moved"}[number%2]), all[number/2%len(all)]
}

// id names it.
func (w *workload) id() string { return w.namespace + "/" + w.name }

// Handlers that several workloads have.
const (
	traffic, updateGate, deleteGate = "example.com/traffic=online", "example.com/update-gate=shut", "example.com/delete-gate=shut"
	updateHolder, deleteHolder      = "example.io/update-gate", "example.io/delete-gate"
)

// workloads are all styles. Of hooks: labels, finalizers, one label and one finalizer for two hooks, values other than
// "true", several handlers for one hook, and workloads that lack a hook. preNormal is by a label: OpenKruise 1.8.3 can miss
// that a finalizer of preNormal was set. And of services and registries.
func workloads() []*workload {
	const a, b = "chaos-a", "chaos-b"
	const oneLabel, oneFinalizer = "example.com/unready-blocker=true", "example.io/unready-blocker"
	hooks := func(preNormal, inPlaceUpdate, preDelete []string) checker.Hooks {
		return checker.Hooks{checker.PreNormal: preNormal, checker.InPlaceUpdate: inPlaceUpdate, checker.PreDelete: preDelete}
	}
	online := []string{traffic}
	mixed := hooks(online, []string{updateGate}, []string{deleteHolder})
	all := []*workload{
		{name: "labels", namespace: a, mark: markLabel, hooks: hooks(nil,
			[]string{"example.com/unready-blocker-inplace=true"}, []string{"example.com/unready-blocker-delete=true"})},
		{name: "prenormal", namespace: a, recreate: true, hooks: hooks([]string{"example.com/traffic-online=true"}, nil, nil)},
		{
			name: "all-labels", namespace: a, hooks: hooks(online, []string{updateGate}, []string{deleteGate}),
			services: map[string]int{"all-web": 8080, "all-admin": 9090},
		},
		{
			name: "mixed", namespace: b, hooks: hooks(online, []string{updateGate, updateHolder}, []string{deleteGate, deleteHolder}),
			services: map[string]int{"mixed": 8080, "mixed-grpc": 8081, "mixed-admin": 9090},
		},
		{name: "delete-only", namespace: b, hooks: hooks(nil, nil, []string{deleteHolder})},
		{name: "unarmed", namespace: b, unarmed: true, hooks: hooks(nil, []string{updateGate}, []string{deleteGate})},
		{name: "one-label", namespace: b, hooks: hooks(nil, []string{oneLabel}, []string{oneLabel})},
		{name: "finalizer", namespace: a, mark: markAnnotation, hooks: hooks(nil, []string{oneFinalizer}, []string{oneFinalizer})},
		{name: "two-registries", namespace: b, hooks: mixed, registries: []string{defaultRegistry, secondRegistry}},
		{name: "leased", namespace: b, hooks: mixed, registries: []string{leasedRegistry}},
		{name: "unlisted", namespace: b, hooks: mixed, registries: []string{unlistedRegistry}},
		{name: "itself", namespace: a, hooks: mixed, registries: []string{appsRegistry}},
	}
	for _, w := range all {
		if w.services == nil {
			w.services = map[string]int{w.name: 8080}
		}
	}
	return all
}

// lifecycle is the hook as the CloneSet has it, or nil.
func (w *workload) lifecycle(name string) *appspub.LifecycleHook {
	if len(w.hooks[name]) == 0 {
		return nil
	}
	hook := &appspub.LifecycleHook{LabelsHandler: map[string]string{}}
	for _, h := range w.hooks[name] {
		if label, value, isLabel := strings.Cut(h, "="); isLabel {
			hook.LabelsHandler[label] = value
		} else {
			hook.FinalizersHandler = append(hook.FinalizersHandler, h)
		}
	}
	return hook
}

// template is the metadata of its pods in a version. At first preNormal is not set yet, and the other handlers are. What follows differs
// in labels, annotations and handlers, which an update in place writes too: every third version sets preNormal as well and restarts
// slowly, and every third has no handler but preDelete's. Versions that differ have other images, or Kruise would be done with the
// update before anybody could see it.
func (w *workload) template(version int) metav1.ObjectMeta {
	t := metav1.ObjectMeta{
		Labels:      map[string]string{appLabel: w.name, versionKey: strconv.Itoa(version)},
		Annotations: map[string]string{servicesAnnotation: w.names(""), versionKey: strconv.Itoa(version)},
	}
	if len(w.registries) > 0 {
		t.Annotations[registriesAnnotation] = strings.Join(w.registries, ",")
	}
	switch w.mark {
	case markLabel:
		t.Labels[markLabel] = "true"
	case markAnnotation:
		t.Annotations[markAnnotation] = "true"
	}
	brings, lacks := version%3 == 1, version%3 == 2
	if brings {
		t.Annotations[cluster.AnnotationStartDelay] = restartTakes
	}
	if !w.unarmed || brings {
		w.setHandlers(&t, brings, lacks)
	}
	return t
}

// setHandlers puts the handlers into a template: preNormal's set where it brings them, and none but preDelete's where it lacks them.
func (w *workload) setHandlers(t *metav1.ObjectMeta, brings, lacks bool) {
	for _, h := range checker.HandlersOf(w.hooks) {
		label, value, isLabel := strings.Cut(h, "=")
		preNormal, inPlace := w.hooks.Serves(checker.PreNormal, h), w.hooks.Serves(checker.InPlaceUpdate, h)
		switch {
		case lacks && (preNormal || inPlace):
		case preNormal && !brings:
			t.Labels[label] = "offline"
		case isLabel:
			t.Labels[label] = value
		default:
			t.Finalizers = append(t.Finalizers, h)
		}
	}
}

// setVersion has its pods be of a version.
func (w *workload) setVersion(version int) func(*kruisev1alpha1.CloneSet) {
	return func(set *kruisev1alpha1.CloneSet) {
		set.Spec.Template.ObjectMeta, set.Spec.Template.Spec.Containers[0].Image = w.template(version), image(version)
	}
}

func (w *workload) cloneSet(replicas int32) *kruisev1alpha1.CloneSet {
	update := kruisev1alpha1.CloneSetUpdateStrategy{
		Type: kruisev1alpha1.InPlaceIfPossibleCloneSetUpdateStrategyType, MaxUnavailable: new(intstr.FromString("50%")),
	}
	if w.recreate {
		update.Type, update.MaxSurge = kruisev1alpha1.RecreateCloneSetUpdateStrategyType, new(intstr.FromString("20%"))
	}
	return &kruisev1alpha1.CloneSet{
		ObjectMeta: metav1.ObjectMeta{Name: w.name, Namespace: w.namespace},
		Spec: kruisev1alpha1.CloneSetSpec{
			Replicas: &replicas, UpdateStrategy: update,
			Lifecycle: &appspub.Lifecycle{
				PreNormal: w.lifecycle(checker.PreNormal), InPlaceUpdate: w.lifecycle(checker.InPlaceUpdate), PreDelete: w.lifecycle(checker.PreDelete),
			},
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{appLabel: w.name}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: w.template(0),
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "main", Image: image(0), Env: []corev1.EnvVar{{Name: "GENERATION", Value: "0"}},
				}}},
			},
		},
	}
}

func image(version int) string { return fmt.Sprintf("app:%d", version) }
