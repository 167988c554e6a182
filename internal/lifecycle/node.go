package lifecycle

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Node is all that Rollcall reads of a node. [NodeOf] makes it, and the cache keeps nothing else: a rule that needs more adds a field here.
type Node struct {
	Name, Zone, Region string
	// Unread: nothing but the name is known, for want of the right.
	Unread bool
	// Ready is its condition, empty if there is none.
	Ready corev1.ConditionStatus
	// ShutsDown: kubelet reports [NodeShutsDown].
	ShutsDown bool
	// EndsAt is the text of [AnnotationEndsAt], nil without one.
	EndsAt *string
	// Ends are the taints that announce an end, and since when.
	Ends []EndTaint
	// VirtualIP is the address of a node that vCluster shows: its own, at which no pod's hostPort is.
	VirtualIP string
}

// EndTaint is a taint that announces the end of a node. Since is zero if it is not known.
type EndTaint struct {
	Key   string
	Since time.Time
}

// NodeOf takes what is read of a node, which may be nil.
func NodeOf(node *corev1.Node) *Node {
	if node == nil {
		return nil
	}
	of := &Node{
		Name: node.Name, Zone: node.Labels[corev1.LabelTopologyZone], Region: node.Labels[corev1.LabelTopologyRegion],
		VirtualIP: virtualIP(node.Status.Addresses),
	}
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			of.Ready, of.ShutsDown = c.Status, strings.Contains(c.Message, NodeShutsDown)
		}
	}
	if text, announced := node.Annotations[AnnotationEndsAt]; announced {
		of.EndsAt = &text
	}
	for i := range node.Spec.Taints {
		t := &node.Spec.Taints[i]
		if t.Key != taintSpot && t.Key != taintOff && t.Key != corev1.TaintNodeOutOfService {
			continue
		}
		end := EndTaint{Key: t.Key}
		if t.TimeAdded != nil {
			end.Since = t.TimeAdded.Time
		}
		of.Ends = append(of.Ends, end)
	}
	return of
}

// virtualDomain ends the host names of the nodes of virtual clusters.
// https://github.com/loft-sh/vcluster/blob/v0.36.1/pkg/controllers/resources/nodes/fake_syncer.go
const virtualDomain = ".nodes.vcluster.com"

func virtualIP(addresses []corev1.NodeAddress) string {
	virtual := slices.ContainsFunc(addresses, func(a corev1.NodeAddress) bool {
		return a.Type == corev1.NodeHostName && strings.HasSuffix(a.Address, virtualDomain)
	})
	for _, a := range addresses {
		if virtual && a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	return ""
}

// NodeObject returns what [NodeOf] reads of a node, in the node's own type, without the memory of the rest. firstSeen dates the taints
// that have no time.
func NodeObject(node *corev1.Node, firstSeen func() metav1.Time) *corev1.Node {
	of := NodeOf(node)
	kept := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, Labels: map[string]string{}, Annotations: map[string]string{},
	}}
	for key, value := range map[string]string{corev1.LabelTopologyZone: of.Zone, corev1.LabelTopologyRegion: of.Region} {
		if value != "" {
			kept.Labels[key] = value
		}
	}
	if of.EndsAt != nil {
		kept.Annotations[AnnotationEndsAt] = *of.EndsAt
	}
	for _, end := range of.Ends {
		since := metav1.NewTime(end.Since)
		if since.IsZero() {
			since = firstSeen()
		}
		kept.Spec.Taints = append(kept.Spec.Taints, corev1.Taint{Key: end.Key, TimeAdded: &since})
	}
	if of.Ready != "" {
		ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: of.Ready}
		if of.ShutsDown {
			ready.Message = NodeShutsDown
		}
		kept.Status.Conditions = []corev1.NodeCondition{ready}
	}
	if of.VirtualIP != "" {
		kept.Status.Addresses = []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: virtualDomain}, {Type: corev1.NodeInternalIP, Address: of.VirtualIP},
		}
	}
	return kept
}

// SameFate reports whether the end of the node is announced as before.
func (n *Node) SameFate(before *Node) bool {
	sameText := n.EndsAt == nil && before.EndsAt == nil || n.EndsAt != nil && before.EndsAt != nil && *n.EndsAt == *before.EndsAt
	return sameText && n.Ready == before.Ready && n.ShutsDown == before.ShutsDown &&
		slices.EqualFunc(n.Ends, before.Ends, func(a, b EndTaint) bool { return a.Key == b.Key && a.Since.Equal(b.Since) })
}

// SamePlace reports whether the node is where it was.
func (n *Node) SamePlace(before *Node) bool {
	return n.Zone == before.Zone && n.Region == before.Region && n.VirtualIP == before.VirtualIP
}

// Lost reports whether the node (may be nil) is not Ready, as far as known; see [PodStatus.OnlyGates].
func (n *Node) Lost() bool { return n != nil && !n.Unread && n.Ready != corev1.ConditionTrue }

// ends are the announced ends of the node.
func (n *Node) ends() (ends []End) {
	if n.Ready == corev1.ConditionFalse && n.ShutsDown {
		ends = append(ends, End{Why: "its node is shutting down"})
	}
	for _, t := range n.Ends {
		switch {
		case t.Key != taintSpot:
			ends = append(ends, End{Why: "its node is off (taint " + t.Key + ")"})
		case !t.Since.IsZero():
			ends = append(ends, endWithNode(t.Since.Add(spotNotice), "taint "+t.Key))
		}
	}
	if at, announced := n.endsAt(); announced {
		ends = append(ends, endWithNode(at, "annotation "+AnnotationEndsAt))
	}
	return ends
}

func (n *Node) endsAt() (at time.Time, announced bool) {
	if n.EndsAt == nil {
		return time.Time{}, false // an error costs memory
	}
	at, err := time.Parse(time.RFC3339, *n.EndsAt)
	return at, err == nil
}
