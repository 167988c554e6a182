package controller

import (
	"fmt"
	"slices"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/observe"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/registry"
)

// modelChoices are what a walk is configured with beside its hooks. What the registries must have of a pod follows from them, in the model's
// own words.
type modelChoices struct {
	// address is service.address; in a walk with applications it is left out.
	address service.Address
	// placed: the first registry has places, by a label of pods.
	placed bool
	// weight is that of each pod.
	weight    int
	readerLag time.Duration
	// nodesEnd: the end of nodes is announced, and called off.
	nodesEnd bool
}

const (
	modelPlace   = "place"
	modelNetwork = "storage"
	modelZone    = "z1"
	// endsAtAnnotation is written on nodes. A pod is out from the announced time less its drain and this, until so long after it.
	endsAtAnnotation        = "rollcall.dev/ends-at"
	outBeforeEnd, backAfter = 25 * time.Second, 5 * time.Minute
)

func modelAddresses() []service.Address {
	return []service.Address{"", "IPv4", "IPv6", "HostIP", "network/" + modelNetwork}
}

// choose draws the choices of a walk.
func (m *model) choose() {
	m.choices = modelChoices{
		weight: []int{100, 30, 7, 1}[m.rng.IntN(4)], readerLag: []time.Duration{0, 5 * time.Second}[m.rng.IntN(2)],
		nodesEnd: m.chance(30), placed: !m.rivals && m.chance(40),
	}
	if m.apps.by == nil {
		m.choices.address = modelAddresses()[m.rng.IntN(len(modelAddresses()))]
	}
}

// configured are the settings of the choices.
func (m *model) configured(s *observe.Settings) {
	c := m.choices
	s.Services.Address, s.Services.Networks = c.address, []string{modelNetwork}
	s.ReaderLags = map[string]time.Duration{}
	for _, name := range m.manager.all {
		s.ReaderLags[name] = c.readerLag
	}
	if c.placed {
		s.Services.Places = map[string]string{m.manager.all[0]: "{label:" + modelPlace + "}"}
	}
	s.Services.Metadata = map[string]service.ValueTemplate{registry.MetaWeight: service.ValueTemplate(fmt.Sprint(c.weight)), "team": "{label:app}"}
	m.warmUp(&s.Services)
}

// equip gives a new pod all that its choices may ask for: each is on a node of its own.
func (m *model) equip(pod *corev1.Pod) {
	pod.Spec.NodeName = "node-of-" + pod.Name
	pod.Labels[modelPlace] = "east"
	if m.apps.by == nil {
		pod.Spec.Containers = []corev1.Container{{Name: "main", Ports: []corev1.ContainerPort{
			{ContainerPort: 8080, HostPort: hostPortOf(8080)}, {ContainerPort: 8081, HostPort: hostPortOf(8081)},
			{ContainerPort: 9090, HostPort: hostPortOf(9090)},
		}}}
	}
}

func hostPortOf(port int) int32 { return int32(port + 10000) } //nolint:mnd // some other port

// connect gives a pod the addresses of its node and its network, besides its own.
func (m *model) connect(p *modelPod, pod *corev1.Pod) {
	if m.apps.by != nil {
		return
	}
	pod.Status.HostIP = fmt.Sprintf("192.168.0.%s", p.uid)
	pod.Annotations[lifecycle.AnnotationNetworks] = fmt.Sprintf(`[{"name":%q,"ips":[%q]}]`, modelNetwork, networkAddress(p, pod))
}

// networkAddress changes with the pod's IP.
func networkAddress(p *modelPod, pod *corev1.Pod) string {
	var id, ip int
	_, _ = fmt.Sscanf(string(p.uid), "pod-%d", &id)
	_, _ = fmt.Sscanf(pod.Status.PodIP, "10.0.0.%d", &ip)
	return fmt.Sprintf("172.16.%d.%d", id, ip)
}

// endpointOf is where the pod is found by the service.address in force, and at which port.
func (m *model) endpointOf(pod *corev1.Pod, port int) (address string, at int) {
	switch m.choices.address {
	case "IPv6":
		return pod.Status.PodIPs[1].IP, port
	case "HostIP":
		return pod.Status.HostIP, int(hostPortOf(port))
	case "network/" + modelNetwork:
		return networkAddress(m.podOf(pod.UID), pod), port
	default:
		return pod.Status.PodIP, port
	}
}

// hasAddress reports whether the address is one of the pod's, whichever is chosen.
func (m *model) hasAddress(pod *corev1.Pod, address string) bool {
	if pod.Status.PodIP == "" {
		return false
	}
	own := append(addressesOf(pod), pod.Status.HostIP, networkAddress(m.podOf(pod.UID), pod))
	return slices.Contains(own, address)
}

// placeOf is what a service's name begins with in a registry.
func (m *model) placeOf(pod *corev1.Pod, name string) string {
	if !m.choices.placed || name != m.manager.all[0] {
		return ""
	}
	return pod.Labels[modelPlace] + "/"
}

// relabel moves a pod to the other place.
func (m *model) relabel(p *modelPod) {
	if p.api == nil || p.api.DeletionTimestamp != nil {
		return
	}
	pod := p.api.DeepCopy()
	pod.Labels[modelPlace] = map[string]string{"east": "west", "west": "east"}[pod.Labels[modelPlace]]
	m.logf("someone: moves %s to the place %s", p.uid, pod.Labels[modelPlace])
	m.commit(p, pod)
	m.edited()
}

// announce announces the end of a pod's node, or calls it off.
func (m *model) announce(p *modelPod) {
	p.nodeEnds = time.Time{}
	if m.chance(70) {
		p.nodeEnds = m.now.Add(time.Duration(m.rng.IntN(90)) * time.Second).Truncate(time.Second)
	}
	p.mayEnd, p.disturbed = true, true
	m.logf("someone: the node of %s ends at %s", p.uid, p.nodeEnds.Format("15:04:05"))
}

// node is a pod's, as the manager's cache has it.
func (m *model) node(name string) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: modelZone}, Annotations: map[string]string{}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	for _, p := range m.pods {
		if name == "node-of-"+string(p.uid) && !p.nodeEnds.IsZero() {
			node.Annotations[endsAtAnnotation] = p.nodeEnds.Format(time.RFC3339)
		}
	}
	return node
}

// endsWithNode reports whether a pod is to be out by now since its node ends, and whether that is certain: it changes at a moment that a
// manager notices with its next visit.
func (m *model) endsWithNode(p *modelPod) (ends, certain bool) {
	if p.nodeEnds.IsZero() {
		return false, true
	}
	from, until := p.nodeEnds.Add(-m.drain-outBeforeEnd), p.nodeEnds.Add(backAfter)
	ends = m.now.After(from) && m.now.Before(until.Add(-outBeforeEnd))
	near := func(at time.Time) bool { return m.now.Sub(at).Abs() < 2*outBeforeEnd }
	return ends, !near(from) && !near(until)
}

// checkTold: clients are told of a pod what is so, and where it is.
func (m *model) checkTold(p *modelPod, e entry, in registry.Instance) {
	seen := p.versions[p.view] // a patch shows the manager no later status
	if e.isByApp() || seen == nil || m.manager.edits != m.edits {
		return
	}
	if !slices.Contains(m.instancesOf(seen), e.in) {
		m.violatef("%s is registered as %v, and belongs to %v", p.uid, e.in, m.instancesOf(seen))
	}
	if in.Metadata["team"] != "web" || len(in.Metadata) != 1 || in.Zone != modelZone || in.Namespace != p.namespace || in.Pod != string(p.uid) {
		m.violatef("%s is registered as that of pod %s/%s with %v in zone %q", p.uid, in.Namespace, in.Pod, in.Metadata, in.Zone)
	}
	if in.Weight < 1 || in.Weight > m.choices.weight || !m.warms && in.Weight != m.choices.weight {
		m.violatef("%s is registered with the weight %d, and has %d", p.uid, in.Weight, m.choices.weight)
	}
}

// checkReaders: clients had the time to notice that a pod is in. What a manager did not put in itself, it can't tell.
func (m *model) checkReaders(p *modelPod, instances []lifecycle.Key) {
	for _, in := range instances {
		since, known := m.manager.inSince[entry{p.uid, in}]
		if known && m.now.Before(since.Add(m.choices.readerLag)) {
			m.violatef("I2: a hook of %s was asserted %s after %v was acknowledged, and clients take %s to notice",
				p.uid, m.now.Sub(since), in, m.choices.readerLag)
		}
	}
}

// acknowledgedIn notes since when an entry has been in by an acknowledged call of this manager.
func (m *model) acknowledgedIn(e entry, want registry.State) {
	if _, known := m.manager.inSince[e]; want == registry.InService && !known {
		m.manager.inSince[e] = m.now
	}
}

// isReady is Kubernetes' reading, and counts whether a pod is among those of its service: not one that is being created, updated or deleted.
func isReady(pod *corev1.Pod) bool { return isTrue(pod, corev1.PodReady) }

func counts(pod *corev1.Pod) bool {
	return stateOf(pod) == appspub.LifecycleStateNormal && pod.DeletionTimestamp == nil && !isFinished(pod)
}

// managed reports whether the pod is there and Rollcall has anything to do with it: its workload has a handler of Rollcall's, or the pod has
// something that only Rollcall takes away.
func (m *model) managed(p *modelPod) bool {
	if p.api == nil {
		return false
	}
	for _, hook := range []lifecycle.Hook{lifecycle.PreNormal, lifecycle.InPlaceUpdate, lifecycle.PreDelete} {
		if len(ours(m.hook(hook))) > 0 && !p.detached {
			return true
		}
	}
	return p.api.Annotations[lifecycle.AnnotationRecord] != "" || slices.ContainsFunc(p.api.Finalizers, ownedFinalizer) ||
		p.api.Labels[modelMark] == "true" || p.api.Annotations[modelMark] == "true"
}
