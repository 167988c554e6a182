// Package service derives from a pod its instances, attributes, registries and drain. It is pure. Every error is bad input, with the
// remedy for the template's author.
package service

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rollcall-dev/rollcall/internal/drain"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/place"
	"github.com/rollcall-dev/rollcall/internal/shorten"
)

// What a pod's author sets. Each wins over the configuration or the node; metadata wins key by key, and tags are added.
const (
	AnnotationServices   = lifecycle.AnnotationServices // web=8080,admin=http
	AnnotationAddress    = "rollcall.dev/address"       // HostIP
	AnnotationDrain      = "rollcall.dev/drain"         // 15s, or {min: 5s, max: 10m, until: {path: /idle, port: 8080}}
	AnnotationWarmUp     = "rollcall.dev/warm-up"       // 2m
	AnnotationRegistries = "rollcall.dev/registries"    // old,new=app
	AnnotationTags       = lifecycle.AnnotationTags     // primary,http
	AnnotationMetadata   = lifecycle.AnnotationMetadata // version=v1,zone=eu-1a,weight=100
)

// Annotations are those that people set on pods.
func Annotations() []string {
	return []string{AnnotationServices, AnnotationAddress, AnnotationRegistries, AnnotationDrain, AnnotationWarmUp, AnnotationTags,
		AnnotationMetadata, lifecycle.AnnotationKeepDetached}
}

// maxEndpoints limits how long one pod holds up others.
const maxEndpoints = 50

const servicesHelp = `set "name=port", or several with commas: "web=8080,admin=9090"`

// Name is a service's name without a place: what people write, and what a [Policy] gives. [lifecycle.Service] is what registries have.
type Name string

// Endpoint is a service name of a pod, and where clients find the pod under it.
type Endpoint struct {
	Name Name
	// Address is empty for a template, and if the pod has none.
	Address string
	Port    int
}

// Placed is an [Endpoint] as a registry has it.
type Placed struct {
	Service lifecycle.Service
	Address string
	Port    int
}

// Rules apply to pods without annotations.
type Rules struct {
	Name NameTemplate
	// Port 0 means the first TCP containerPort.
	Port    int
	Address Address
	// Networks are those whose addresses pods can choose.
	Networks []string
	// NetworkAddresses are where addresses on networks must lie; nil means [PrivateRanges].
	NetworkAddresses []Range

	Tags []ValueTemplate
	// Metadata has only keys that pass [CheckMetadataKey].
	Metadata map[string]ValueTemplate
	Allowed  Policy
	// Places are the templates of registries with places.
	Places map[string]string
	// WarmUp is how long the weight of a pod grows, and CountsAtEnd is set if OpenKruise counts on the pod only then.
	WarmUp      time.Duration
	CountsAtEnd bool
}

// Subject is a pod, or a workload's template.
type Subject struct {
	Namespace       string
	NamespaceLabels map[string]string
	// Pod is empty for a template.
	Pod         string
	Workload    string
	Labels      map[string]string
	Annotations map[string]string
	// Spec can be nil: no ports.
	Spec *lifecycle.PodSpec
	// Status is nil for a template.
	Status *lifecycle.PodStatus
	// Networks are the pod's other networks.
	Networks lifecycle.Networks
	// Node is zero for a template.
	Node Node
}

// SubjectOf describes a pod, without its node.
func SubjectOf(pod *lifecycle.Pod) Subject {
	subject := Subject{
		Namespace: pod.Namespace, Pod: pod.Name, Labels: pod.Labels, Annotations: pod.Annotations, Spec: &pod.Spec, Status: &pod.Status,
		Networks: pod.Networks,
	}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		subject.Workload = owner.Name
	}
	return subject
}

// EndpointsOf returns one endpoint or more, sorted and unique.
func (r Rules) EndpointsOf(s Subject) ([]Endpoint, error) {
	endpoints, err := r.portsOf(s)
	address, addressErr := r.addressOf(s)
	if err = errors.Join(err, addressErr); err != nil {
		return nil, err
	}
	for i := range endpoints {
		e := &endpoints[i]
		switch e.Address = address.of(s); {
		case address == hostIP:
			e.Port, err = hostPort(s, e.Port)
		case e.Address != "" && strings.HasPrefix(string(address), networkPrefix):
			err = r.onNetwork(address, e.Address)
		}
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(endpoints, func(a, b Endpoint) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Port, b.Port))
	})
	return endpoints, nil
}

// EndpointsIn returns them as a registry has them: in one with places, the service begins with the subject's.
func (r Rules) EndpointsIn(registry string, s Subject) ([]Placed, error) {
	endpoints, err := r.EndpointsOf(s)
	if err != nil {
		return nil, err
	}
	at := ""
	if template := r.Places[registry]; template != "" {
		if at, err = PlaceOf(template, s); err != nil {
			return nil, fmt.Errorf("registry %q: %w", registry, err)
		}
	}
	placed := make([]Placed, 0, len(endpoints))
	for _, e := range endpoints {
		placed = append(placed, Placed{Service: lifecycle.Service(place.Join(at, string(e.Name))), Address: e.Address, Port: e.Port})
	}
	return placed, nil
}

// NameIn is a service of a registry without its place.
func (r Rules) NameIn(in string, service lifecycle.Service) Name {
	_, name := place.Split(r.Places[in], string(service))
	return Name(name)
}

// portsOf returns the names and the containers' ports.
func (r Rules) portsOf(s Subject) ([]Endpoint, error) {
	if written, ok, err := parsed(s.Annotations, AnnotationServices, parseServices); ok {
		if err != nil {
			return nil, err
		}
		endpoints, err := endpointsOf(written, s)
		if err != nil {
			return nil, fmt.Errorf("annotation %s: %w", AnnotationServices, err)
		}
		return endpoints, nil
	}
	port := cmp.Or(r.Port, firstPort(s))
	if port == 0 {
		return nil, fmt.Errorf("no port to register%s: set service.port in the config, a containerPort, or annotation %s: %q", onlyOthers(s),
			AnnotationServices, "name=port")
	}
	name, err := r.Name.nameOf(s)
	if err != nil {
		return nil, err
	}
	return []Endpoint{{Name: Name(name), Port: port}}, nil
}

// parsed parses an annotation if there is one.
func parsed[T any](annotations map[string]string, key string, parse func(string) (T, error)) (value T, found bool, err error) {
	written, found, err := lifecycle.Written(annotations, key)
	if !found || err != nil {
		return value, found, err
	}
	if value, err = parse(written); err != nil {
		return value, true, fmt.Errorf("annotation %s: %w", key, err)
	}
	return value, true, nil
}

// DrainOf returns the pod's own drain, else def.
func DrainOf(annotations map[string]string, def drain.Policy) (drain.Policy, error) {
	p, found, err := parsed(annotations, AnnotationDrain, drain.Parse)
	if !found {
		return def, nil
	}
	return p, err
}

// DurationOf returns that of an annotation, else def.
func DurationOf(annotations map[string]string, key string, def time.Duration) (time.Duration, error) {
	d, found, err := parsed(annotations, key, parseDuration)
	if !found {
		return def, nil
	}
	return d, err
}

func parseDuration(written string) (time.Duration, error) {
	d, err := time.ParseDuration(strings.TrimSpace(written))
	if err != nil {
		return 0, fmt.Errorf(`%s is not a duration: set "15s", "1m30s" or "0s"`, shorten.Quote(written))
	}
	if d < 0 {
		return 0, fmt.Errorf(`%s is below zero: set "0s" or more`, shorten.Quote(written))
	}
	return d, nil
}

// Registration is a registry that a pod is in, and whether the pod's application registers itself there.
type Registration struct {
	Registry string
	ByApp    bool
}

// RegistriesOf returns [AnnotationRegistries] if known, else an error; without it the defaults of [DefaultsOf]. Sorted and unique. known
// are all registries, and whether applications register themselves there unless the annotation differs: "old,new=app".
func RegistriesOf(annotations map[string]string, defaults []string, known map[string]bool) ([]Registration, error) {
	all, ok, err := parsed(annotations, AnnotationRegistries, func(written string) ([]Registration, error) {
		return parseRegistries(written, known)
	})
	if !ok && len(defaults) == 0 {
		return nil, fmt.Errorf("no registry is the default for the namespace: set annotation %s, or set default of a registry in the "+
			"configuration", AnnotationRegistries)
	}
	if !ok {
		all = make([]Registration, 0, len(defaults))
		for _, name := range defaults {
			all = append(all, Registration{name, known[name]})
		}
		return all, nil
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b Registration) int { return strings.Compare(a.Registry, b.Registry) })
	return all, nil
}

func parseRegistries(written string, known map[string]bool) (all []Registration, err error) {
	help := fmt.Sprintf("the configuration has %s; set one, or several with commas, each with =app behind it if the application registers "+
		"itself there, or =rollcall", strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	items, err := itemsOf(written, max(len(known), 1), "registries", help)
	for _, item := range items {
		name, by, says := strings.Cut(item, "=")
		name, by = strings.TrimSpace(name), strings.TrimSpace(by)
		byApp, has := known[name]
		switch {
		case !has:
			return nil, fmt.Errorf("%s is not a registry: %s", shorten.Quote(name), help)
		case slices.ContainsFunc(all, func(r Registration) bool { return r.Registry == name }):
			return nil, fmt.Errorf("%s occurs twice: remove one", name)
		case says && by != "app" && by != "rollcall":
			return nil, fmt.Errorf("%s is neither =app nor =rollcall: set %s=app if the application registers itself there, or %s=rollcall",
				shorten.Quote(item), name, name)
		case says:
			byApp = by == "app"
		}
		all = append(all, Registration{name, byApp})
	}
	return all, err
}

// writtenEndpoint is an item of [AnnotationServices]: its port is a number, or the name of a container's port.
type writtenEndpoint struct {
	name   Name
	number int
	named  string
}

func parseServices(written string) ([]writtenEndpoint, error) {
	items, err := itemsOf(written, maxEndpoints, "services", servicesHelp)
	if err != nil {
		return nil, err
	}
	endpoints := make([]writtenEndpoint, 0, len(items))
	for _, item := range items {
		endpoint, err := parseEndpoint(item)
		if err != nil {
			return nil, err
		}
		endpoints = append(endpoints, endpoint)
	}
	return endpoints, nil
}

func parseEndpoint(item string) (writtenEndpoint, error) {
	name, port, found := cutPair(item)
	if !found {
		return writtenEndpoint{}, fmt.Errorf("%s is not a service and its port: %s", shorten.Quote(item), servicesHelp)
	}
	if err := checkName(name); err != nil {
		return writtenEndpoint{}, err
	}
	if len(validation.IsValidPortName(port)) == 0 {
		return writtenEndpoint{name: Name(name), named: port}, nil
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return writtenEndpoint{}, fmt.Errorf("%s is not a port: set a number from 1 to 65535, as in %s, or the name of a container's port",
			shorten.Quote(port), shorten.Quote(name+"=8080"))
	}
	return writtenEndpoint{name: Name(name), number: int(number)}, nil
}

// endpointsOf looks up the ports that were written by name.
func endpointsOf(written []writtenEndpoint, s Subject) ([]Endpoint, error) {
	endpoints := make([]Endpoint, 0, len(written))
	for _, w := range written {
		e := Endpoint{Name: w.name, Port: cmp.Or(w.number, namedPort(s, w.named))}
		if e.Port == 0 {
			return nil, fmt.Errorf("no container has a port with the name %q: set the port's number, or that name in ports[].name", w.named)
		}
		if slices.Contains(endpoints, e) {
			return nil, fmt.Errorf("%s=%d occurs twice: remove one", e.Name, e.Port)
		}
		endpoints = append(endpoints, e)
	}
	return endpoints, nil
}

func namedPort(s Subject, name string) int {
	if s.Spec == nil {
		return 0
	}
	for _, c := range s.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == name {
				return int(p.ContainerPort)
			}
		}
	}
	return 0
}

// itemsOf counts before it parses anything.
func itemsOf(written string, most int, what, help string) ([]string, error) {
	if n := strings.Count(written, ",") + 1; n > most {
		return nil, fmt.Errorf("%d %s: use at most %d", n, what, most)
	}
	items := strings.Split(written, ",")
	for i := range items {
		if items[i] = strings.TrimSpace(items[i]); items[i] == "" {
			return nil, errors.New("an entry is empty: " + help)
		}
	}
	return items, nil
}

// cutPair splits "name=value", but not "=value".
func cutPair(item string) (name, value string, found bool) {
	name, value, found = strings.Cut(item, "=")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	return name, value, found && name != ""
}

// firstPort is the port of [firstContainer].
func firstPort(s Subject) int {
	if c := firstContainer(s); c != nil {
		return portOf(c)
	}
	return 0
}

// firstContainer is the default one, else the first with a port that no SidecarSet injected, which can be before or after it.
func firstContainer(s Subject) (first *lifecycle.Container) {
	if s.Spec == nil {
		return nil
	}
	for i := range s.Spec.Containers {
		container := &s.Spec.Containers[i]
		switch {
		case portOf(container) == 0 || container.Injected:
		case container.Name == s.Annotations[lifecycle.AnnotationDefaultContainer]:
			return container
		case first == nil:
			first = container
		}
	}
	return first
}

// Injected returns a sentence if the port of the pod is by default that of a container which a webhook has put before the application's:
// the workload's template lacks it, and has another with a port.
func (r Rules) Injected(pod Subject, template *lifecycle.PodSpec) string {
	if _, chosen := pod.Annotations[AnnotationServices]; chosen || r.Port > 0 {
		return ""
	}
	of := func(c *lifecycle.Container) bool {
		return slices.ContainsFunc(template.Containers, func(t lifecycle.Container) bool { return t.Name == c.Name })
	}
	first := firstContainer(pod)
	if first == nil || first.Name == pod.Annotations[lifecycle.AnnotationDefaultContainer] || of(first) {
		return ""
	}
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; portOf(c) > 0 && of(c) {
			return fmt.Sprintf("the pod's port is %d, of container %s, which the workload's template lacks, and not %d, of container %s: "+
				"set annotation %s, or %s: %s, in the template", portOf(first), first.Name, portOf(c), c.Name, AnnotationServices,
				lifecycle.AnnotationDefaultContainer, c.Name)
		}
	}
	return ""
}

// onlyOthers reports that the pod has ports, and none that is registered by default.
func onlyOthers(s Subject) string {
	has := func(c lifecycle.Container) bool { return len(c.Ports) > 0 && !c.Injected }
	if s.Spec == nil || !slices.ContainsFunc(s.Spec.Containers, has) {
		return ""
	}
	return ", since no container has a TCP port"
}

func portOf(container *lifecycle.Container) int {
	for _, port := range container.Ports {
		if port.ContainerPort > 0 && isTCP(port) {
			return int(port.ContainerPort)
		}
	}
	return 0
}

func isTCP(p corev1.ContainerPort) bool { return p.Protocol == "" || p.Protocol == corev1.ProtocolTCP }
