// Package service says which instances a pod has: under which service names, at which ports, in which registries, what
// they carry besides, and how long the pod drains. It is pure. Every error it returns is bad input, and tells the author of
// the pod's template what to write.
package service

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// AnnotationServices names a pod's services and their ports, and wins over the rules: "web=8080,admin=9090".
	AnnotationServices = "rollcall.dev/services"
	// AnnotationDrain is how long a pod stays up after it was taken out of rotation, and wins over the default: "15s".
	AnnotationDrain = "rollcall.dev/drain"
	// AnnotationRegistries names the registries that a pod is in, and wins over the default: "old,new".
	AnnotationRegistries = "rollcall.dev/registries"
	// AnnotationRegisteredBy says who writes a pod's entries, and wins over what its registries say: "app" or "rollcall".
	AnnotationRegisteredBy = "rollcall.dev/registered-by"
	// AnnotationWeight is the share of requests that a pod should get, relative to the others of its service: "100".
	AnnotationWeight = "rollcall.dev/weight"
	// AnnotationZone is where a pod is, and wins over what its node says.
	AnnotationZone = "rollcall.dev/zone"
	// AnnotationTags holds what clients select the pod by, beside the tags of the rules: "primary,http".
	AnnotationTags = "rollcall.dev/tags"
	// AnnotationMetadata holds pairs for clients, each of which wins over that of the rules: "version=v1,team=a".
	AnnotationMetadata = "rollcall.dev/metadata"
	// annotationDefaultContainer names the application's container. Service meshes write it where they inject theirs.
	// https://kubernetes.io/docs/reference/labels-annotations-taints/#kubectl-kubernetes-io-default-container
	annotationDefaultContainer = "kubectl.kubernetes.io/default-container"
)

// Annotations are those that a person writes on pods.
func Annotations() []string {
	return []string{AnnotationServices, AnnotationRegistries, AnnotationRegisteredBy, AnnotationDrain, AnnotationWeight, AnnotationZone,
		AnnotationTags, AnnotationMetadata}
}

// maxEndpoints bounds how long one pod's services hold up all others.
const maxEndpoints = 50

const servicesHelp = `write "name=port", several with commas: "web=8080,admin=9090"`

// Endpoint is one service name and port of a pod.
type Endpoint struct {
	Service string
	Port    int
}

// Rules say which endpoints and attributes a pod has that does not name them itself, and which names it may use.
type Rules struct {
	// Name makes the service's name.
	Name NameTemplate
	// Port is the port to register; 0 means the first TCP port that a container of the pod names.
	Port int
	// Tags make the tags.
	Tags []ValueTemplate
	// Metadata makes the metadata, by key. A key for which [CheckMetadataKey] has an error must not be in it.
	Metadata map[string]ValueTemplate
	// SharedAcrossNamespaces allows one name in several namespaces.
	SharedAcrossNamespaces bool
	// Allowed says which namespaces may use which names; nil allows all names to all namespaces.
	Allowed Policy
}

// Subject is what the rules look at: a pod, or a workload's template.
type Subject struct {
	Namespace string
	// Workload is the name of the workload that owns the pod; empty where there is none.
	Workload    string
	Labels      map[string]string
	Annotations map[string]string
	// Spec may be nil, which is a pod that names no port.
	Spec *corev1.PodSpec
	// Node is where the pod runs; zero for a template.
	Node Node
}

// SubjectOf describes a pod, but for its node. The pod names its workload, which may be gone already.
func SubjectOf(pod *corev1.Pod) Subject {
	subject := Subject{Namespace: pod.Namespace, Labels: pod.Labels, Annotations: pod.Annotations, Spec: &pod.Spec}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		subject.Workload = owner.Name
	}
	return subject
}

// EndpointsOf returns the endpoints of s, at least one, sorted by service and port and without duplicates.
func (r Rules) EndpointsOf(s Subject) ([]Endpoint, error) {
	if written, ok := s.Annotations[AnnotationServices]; ok {
		endpoints, err := parseServices(written)
		if err != nil {
			return nil, fmt.Errorf("annotation %s: %w", AnnotationServices, err)
		}
		return endpoints, nil
	}
	port := cmp.Or(r.Port, firstPort(s))
	if port == 0 {
		return nil, fmt.Errorf("no port to register: set service.port in the config, a containerPort, or annotation %s: %q",
			AnnotationServices, "name=port")
	}
	name, err := r.Name.nameOf(s)
	if err != nil {
		return nil, err
	}
	return []Endpoint{{Service: name, Port: port}}, nil
}

// DrainOf returns how long the pod with these annotations drains: what [AnnotationDrain] says, else def.
func DrainOf(annotations map[string]string, def time.Duration) (time.Duration, error) {
	written, ok := annotations[AnnotationDrain]
	if !ok {
		return def, nil
	}
	drain, err := time.ParseDuration(strings.TrimSpace(written))
	if err != nil {
		return 0, fmt.Errorf(`annotation %s: %q is not a duration: write "15s", "1m30s" or "0s"`, AnnotationDrain, written)
	}
	if drain < 0 {
		return 0, fmt.Errorf(`annotation %s: %q is below zero: write "0s" or more`, AnnotationDrain, written)
	}
	return drain, nil
}

// RegistriesOf returns the names of the registries that the pod with these annotations is in, sorted and without
// duplicates: what [AnnotationRegistries] says, else the defaults. known are all that there are.
func RegistriesOf(annotations map[string]string, defaults, known []string) ([]string, error) {
	written, ok := annotations[AnnotationRegistries]
	if !ok {
		return slices.Compact(slices.Sorted(slices.Values(defaults))), nil
	}
	help := fmt.Sprintf("the configuration has %s; write one, or several with commas",
		strings.Join(slices.Sorted(slices.Values(known)), ", "))
	names, err := itemsOf(written, help)
	for i, name := range names {
		if !slices.Contains(known, name) {
			err = fmt.Errorf("%q is not a registry: %s", name, help)
		} else if slices.Contains(names[:i], name) {
			err = fmt.Errorf("%s occurs twice: remove one", name)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("annotation %s: %w", AnnotationRegistries, err)
	}
	slices.Sort(names)
	return names, nil
}

// RegisteredByApp reports whether the application in the pod with these annotations registers itself: what
// [AnnotationRegisteredBy] says, else what the registry says.
func RegisteredByApp(annotations map[string]string, registrySays bool) (bool, error) {
	written, ok := annotations[AnnotationRegisteredBy]
	switch {
	case !ok:
		return registrySays, nil
	case strings.TrimSpace(written) == "app":
		return true, nil
	case strings.TrimSpace(written) == "rollcall":
		return false, nil
	}
	return false, fmt.Errorf(`annotation %s: %q is neither: write "app" where the application registers itself, or "rollcall"`,
		AnnotationRegisteredBy, written)
}

func parseServices(written string) ([]Endpoint, error) {
	items, err := itemsOf(written, servicesHelp)
	if err != nil {
		return nil, err
	}
	if len(items) > maxEndpoints {
		return nil, fmt.Errorf("%d services: write at most %d", len(items), maxEndpoints)
	}
	endpoints := make([]Endpoint, 0, len(items))
	for _, item := range items {
		endpoint, err := parseEndpoint(item)
		if err != nil {
			return nil, err
		}
		if slices.Contains(endpoints, endpoint) {
			return nil, fmt.Errorf("%s=%d occurs twice: remove one", endpoint.Service, endpoint.Port)
		}
		endpoints = append(endpoints, endpoint)
	}
	slices.SortFunc(endpoints, func(a, b Endpoint) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Port, b.Port))
	})
	return endpoints, nil
}

func parseEndpoint(item string) (Endpoint, error) {
	name, number, found := cutPair(item)
	if !found {
		return Endpoint{}, fmt.Errorf("%q is not a service and its port: %s", item, servicesHelp)
	}
	if err := checkName(name); err != nil {
		return Endpoint{}, err
	}
	port, err := strconv.ParseUint(number, 10, 16)
	if err != nil || port == 0 {
		return Endpoint{}, fmt.Errorf("%q is not a port: write a number from 1 to 65535, as in %q", number, name+"=8080")
	}
	return Endpoint{Service: name, Port: int(port)}, nil
}

// itemsOf splits an annotation at its commas; help is for an empty item.
func itemsOf(written, help string) ([]string, error) {
	items := strings.Split(written, ",")
	for i := range items {
		if items[i] = strings.TrimSpace(items[i]); items[i] == "" {
			return nil, errors.New("an entry is empty: " + help)
		}
	}
	return items, nil
}

// cutPair splits name=value; an empty name is none.
func cutPair(item string) (name, value string, found bool) {
	name, value, found = strings.Cut(item, "=")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	return name, value, found && name != ""
}

// firstPort is that of the container that [annotationDefaultContainer] names, else of the first one that no SidecarSet has put in:
// what is injected comes before the application's containers, or the other way round.
func firstPort(s Subject) (first int) {
	if s.Spec == nil {
		return 0
	}
	for i := range s.Spec.Containers {
		container := &s.Spec.Containers[i]
		port := portOf(container)
		switch {
		case port == 0 || IsInjected(container):
		case container.Name == s.Annotations[annotationDefaultContainer]:
			return port
		case first == 0:
			first = port
		}
	}
	return first
}

func portOf(container *corev1.Container) int {
	for _, port := range container.Ports {
		if port.ContainerPort > 0 && (port.Protocol == "" || port.Protocol == corev1.ProtocolTCP) {
			return int(port.ContainerPort)
		}
	}
	return 0
}

// IsInjected reports a container that a SidecarSet has put into the pod.
// https://github.com/openkruise/kruise/blob/v1.8.3/pkg/control/sidecarcontrol/util.go#L59
func IsInjected(container *corev1.Container) bool {
	return slices.Contains(container.Env, InjectedMark())
}

// InjectedMark is what [IsInjected] looks for.
func InjectedMark() corev1.EnvVar { return corev1.EnvVar{Name: "IS_INJECTED", Value: "true"} }
