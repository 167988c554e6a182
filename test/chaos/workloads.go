package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

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
	metadataAnnotation   = "rollcall.dev/metadata"
	warmUpAnnotation     = "rollcall.dev/warm-up"
	networksAnnotation   = "k8s.v1.cni.cncf.io/network-status"
	// placeLabel chooses a pod's place in the registry that has places, and storage is the network that pods can choose.
	placeLabel     = "chaos.rollcall.dev/place"
	storage        = "storage"
	markAnnotation = "example.io/initialing"
	markLabel      = "example.com/newly-create"
	set            = "true"
	versionKey     = "chaos.rollcall.dev/version"
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
	// says are the annotations by which its pods choose what clients are told, and how long a drain takes.
	says map[string]string
}

// The registries. All are one server's, which knows them by the path.
const (
	defaultRegistry = "default"
	secondRegistry  = "second"
	// leasedRegistry forgets what is not renewed, unlistedRegistry can't be asked for anything, and placedRegistry has places.
	leasedRegistry   = "leased"
	unlistedRegistry = "unlisted"
	placedRegistry   = "placed"
)

func registryNames() []string {
	return []string{defaultRegistry, secondRegistry, leasedRegistry, unlistedRegistry, placedRegistry, appsRegistry}
}

// secondLags is how long clients of the second registry take to notice.
const secondLags = time.Second

// names are its services as an annotation has them, each with an ending.
func (w *workload) names(ending string) string {
	var services []string
	for _, name := range slices.Sorted(maps.Keys(w.services)) {
		services = append(services, name+ending+"="+strconv.Itoa(w.services[name]))
	}
	return strings.Join(services, ",")
}

// places are where a pod of it can move: the services, the registries, and the place where a registry has places.
func (w *workload) places(number int) (services, registries, place string) {
	all := []string{defaultRegistry, secondRegistry, placedRegistry, defaultRegistry + "," + secondRegistry, leasedRegistry}
	if w.says[warmUpAnnotation] != "" {
		all = all[:len(all)-1] // it has no weights: a pod that warms up is refused there
	}
	return w.names([]string{"", "-moved"}[number%2]), all[number/2%len(all)], []string{"east", "west"}[number%2]
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
// that a finalizer of preNormal was set. And of services and registries, and of what clients are told.
func workloads() []*workload {
	const a, b = "chaos-a", "chaos-b"
	const oneLabel, oneFinalizer = "example.com/unready-blocker=true", "example.io/unready-blocker"
	hooks := func(preNormal, inPlaceUpdate, preDelete []string) checker.Hooks {
		return checker.Hooks{checker.PreNormal: preNormal, checker.InPlaceUpdate: inPlaceUpdate, checker.PreDelete: preDelete}
	}
	online := []string{traffic}
	mixed := hooks(online, []string{updateGate}, []string{deleteHolder})
	all := []*workload{
		{name: "labels", namespace: a, mark: markLabel, says: map[string]string{metadataAnnotation: "weight=7,team=red"}, hooks: hooks(nil,
			[]string{"example.com/unready-blocker-inplace=true"}, []string{"example.com/unready-blocker-delete=true"})},
		{name: "prenormal", namespace: a, recreate: true, hooks: hooks([]string{"example.com/traffic-online=true"}, nil, nil)},
		{
			name: "all-labels", namespace: a, hooks: hooks(online, []string{updateGate}, []string{deleteGate}),
			services: map[string]int{"all-web": 8080, "all-admin": 9090},
			says:     map[string]string{metadataAnnotation: "weight=100,team=blue", warmUpAnnotation: "6s"},
		},
		{
			name: "mixed", namespace: b, hooks: hooks(online, []string{updateGate, updateHolder}, []string{deleteGate, deleteHolder}),
			services: map[string]int{"mixed": 8080, "mixed-grpc": 8081, "mixed-admin": 9090},
		},
		{
			name: "delete-only", namespace: b, hooks: hooks(nil, nil, []string{deleteHolder}),
			says: map[string]string{"rollcall.dev/address": "network/" + storage},
		},
		{name: "unarmed", namespace: b, unarmed: true, hooks: hooks(nil, []string{updateGate}, []string{deleteGate})},
		{
			name: "one-label", namespace: b, hooks: hooks(nil, []string{oneLabel}, []string{oneLabel}),
			says: map[string]string{"rollcall.dev/drain": "2500ms"},
		},
		{name: "finalizer", namespace: a, mark: markAnnotation, hooks: hooks(nil, []string{oneFinalizer}, []string{oneFinalizer})},
		{name: "two-registries", namespace: b, hooks: mixed, registries: []string{defaultRegistry, secondRegistry}},
		{name: "leased", namespace: b, hooks: mixed, registries: []string{leasedRegistry}},
		{name: "unlisted", namespace: b, hooks: mixed, registries: []string{unlistedRegistry}},
		{name: "placed", namespace: a, hooks: mixed, registries: []string{placedRegistry}},
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
		Labels:      map[string]string{appLabel: w.name, versionKey: strconv.Itoa(version), placeLabel: "east"},
		Annotations: map[string]string{servicesAnnotation: w.names(""), versionKey: strconv.Itoa(version)},
	}
	maps.Copy(t.Annotations, w.says)
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
func (w *workload) setVersion(version int) func(*kruisev1alpha1.CloneSetSpec) {
	return func(spec *kruisev1alpha1.CloneSetSpec) {
		spec.Template.ObjectMeta, spec.Template.Spec.Containers[0].Image = w.template(version), image(version)
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
