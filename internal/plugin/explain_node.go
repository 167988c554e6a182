package plugin

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/evictions"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/internal/statuspage/entries"
)

// Answer is what the API server answers to an eviction.
type Answer string

// The answers. Hooked: OpenKruise deletes the pod by its hooks. Refused: a budget or something else refuses it for now. Allowed: the pod is
// evicted immediately. Unanswered: it could not be asked.
const (
	Hooked     Answer = "hooked"
	Refused    Answer = "refused"
	Allowed    Answer = "allowed"
	Unanswered Answer = "unknown"
)

// Eviction is what would become of a pod.
type Eviction struct {
	Answer Answer `json:"answer"`
	// Message is the API server's, or the eviction webhook's.
	Message string `json:"message,omitempty"`
	// Leaves are the entries that are not out of rotation yet, as REGISTRY SERVICE ENDPOINT.
	Leaves []string `json:"leaves"`
	// DrainMost is the longest time that the pod drains; empty if it is evicted immediately.
	DrainMost string `json:"drainMost,omitempty"`

	most time.Duration
}

// ExplainedNode is what a program reads of a node.
type ExplainedNode struct {
	Name string `json:"name"`
	// Unschedulable reports whether the node is cordoned.
	Unschedulable bool         `json:"unschedulable"`
	Pods          []EvictedPod `json:"pods"`
	Explanation   []string     `json:"explanation"`
	Remedies      []Remedy     `json:"remedies"`
}

// EvictedPod is a pod that Rollcall manages, and what its eviction would do.
type EvictedPod struct {
	Pod

	Eviction Eviction `json:"eviction"`
}

// explainNode shows what a drain of the node would do. It decides nothing: the API server and the webhook answer a dry run.
func (c *cluster) explainNode(ctx context.Context, name string, output *form) error {
	var node corev1.Node
	switch err := c.Get(ctx, client.ObjectKey{Name: name}, &node); {
	case apierrors.IsNotFound(err):
		return &exitError{exitNotFound, fmt.Errorf("the cluster has no node %s", name)}
	case err != nil:
		return reading("node "+name, err)
	}
	w, err := c.world(ctx, "")
	if err != nil {
		return err
	}
	pods, err := c.managed(ctx, w, client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.nodeName", name)})
	if err != nil {
		return err
	}
	e := ExplainedNode{Name: name, Unschedulable: node.Spec.Unschedulable, Pods: []EvictedPod{}}
	refusals := c.evictAll(ctx, w, &e, pods)
	e.Explanation, e.Remedies = append(w.nodeSentences(&e), refusals...), c.nodeRemedies()
	sayFirst(c.ErrOut, w.leaderlessIn(""))
	if output.forScripts() {
		noEntries(c.ErrOut, w.unknown)
		return output.print(c.Out, e)
	}
	c.printNode(e)
	if w.unknown != nil {
		fmt.Fprintf(c.ErrOut, "The entries are what the pods record: %v\n", w.unknown)
	}
	return nil
}

// evictAll asks about each pod, and returns a sentence for each namespace in which the person may not.
func (c *cluster) evictAll(ctx context.Context, w *world, e *ExplainedNode, pods []Pod) (refusals []string) {
	forbidden := map[string]bool{} // by namespace
	for _, p := range pods {
		if !w.watches(p.Namespace) {
			continue // it is another installation's
		}
		answered := Eviction{Answer: Unanswered}
		if !forbidden[p.Namespace] {
			var err error
			switch answered, err = c.tryEviction(ctx, p); {
			case apierrors.IsNotFound(err):
				continue // it has gone meanwhile
			case err != nil:
				forbidden[p.Namespace] = true
				refusals = append(refusals, fmt.Sprintf(
					"What becomes of the pods of namespace %s is not known, because you may not evict them: %v.", p.Namespace, err))
			}
		}
		answered.Leaves = leavingOf(p)
		if w.config.Evictions.Enabled && answered.Answer != Allowed {
			answered.most = w.longestDrain(p)
			answered.DrainMost = answered.most.String()
		}
		e.Pods = append(e.Pods, EvictedPod{p, answered})
	}
	return refusals
}

// longestDrain is for how long the webhook waits for the pod's drain at most.
func (w *world) longestDrain(p Pod) time.Duration {
	most := w.config.Drain.Max
	if of, err := service.DrainOf(p.facts.pod.Annotations, w.config.Drain); err == nil {
		most = of.Max
	}
	return evictions.MostDrain(most, w.config.Drain.Max, w.config.Evictions.Limit)
}

// leavingOf are the entries that clients may still be given: as the manager knows them, else those of the record.
func leavingOf(p Pod) []string {
	all := []string{}
	for _, e := range p.Entries {
		if e.State != entries.Out {
			all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", e.Registry, e.Service, e.Endpoint, e.Writer)))
		}
	}
	if p.Entries != nil || p.Rotation == Out {
		return all
	}
	for _, in := range p.Instances {
		all = append(all, fmt.Sprintf("%s %s %s", in.Source(), in.Service, net.JoinHostPort(in.Address, strconv.Itoa(in.Port))))
	}
	return all
}

func (w *world) nodeSentences(e *ExplainedNode) []string {
	if len(e.Pods) == 0 {
		return []string{fmt.Sprintf("Node %s has no pods that Rollcall manages.", e.Name)}
	}
	longest := slices.MaxFunc(e.Pods, func(a, b EvictedPod) int { return cmp.Compare(a.Eviction.most, b.Eviction.most) }).Eviction.most
	first := fmt.Sprintf("A drain of node %s evicts %s that Rollcall manages.", e.Name, counted(len(e.Pods), "pod"))
	if longest > 0 {
		first += fmt.Sprintf(" The longest of their drains takes %s at most.", longest)
	}
	all := append([]string{first}, drainSentences(e.Pods)...)
	if !w.config.Evictions.Enabled {
		return append(all, "evictions.enabled is not set in the configuration, so evictions bypass the hooks: "+
			"only a preStop sleep gives clients time.")
	}
	return append(all, fmt.Sprintf("kubectl drain asks again until each pod is gone. "+
		"From %s after a pod's first eviction that no budget refuses, its eviction is let through once the pod has drained "+
		"(evictions.limit).", w.config.Evictions.Limit))
}

// drainSentences are about what a drain does, and evictions that are tried one by one don't show.
func drainSentences(pods []EvictedPod) (all []string) {
	leave := 0
	for _, p := range pods {
		if p.Eviction.Answer == Hooked || p.Eviction.Answer == Allowed {
			leave++
		}
	}
	if leave > 1 {
		all = append(all, "Each eviction was tried alone. In a drain, pods with one PodDisruptionBudget count against each other: "+
			"those that it has no room for wait until others are replaced.")
	}
	ofDaemonSet := func(p EvictedPod) bool {
		owner := metav1.GetControllerOf(p.facts.pod)
		return owner != nil && owner.Kind == clusterstate.KindDaemonSet
	}
	if at := slices.IndexFunc(pods, ofDaemonSet); at >= 0 {
		all = append(all, fmt.Sprintf("kubectl drain evicts pods of OpenKruise's DaemonSets too, even with --ignore-daemonsets, and "+
			"OpenKruise creates them again on the node. An older kubectl evicts nothing, and fails: daemonsets.apps %q not found.",
			metav1.GetControllerOf(pods[at].facts.pod).Name))
	}
	return all
}

func (o *options) nodeRemedies() []Remedy {
	return []Remedy{{"about evictions", reason.Docs(o.version, "docs/evictions.md")}}
}

func (c *cluster) printNode(e ExplainedNode) {
	on := terminalOf(c.Out)
	c.paragraph(on, e.Explanation)
	for _, p := range e.Pods {
		fmt.Fprintln(c.Out)
		look := map[Answer]tone{Refused: waits, Allowed: waits}[p.Eviction.Answer]
		said := map[Answer]string{
			Hooked: "leaves by its hooks", Refused: "is not evicted now", Allowed: "is evicted immediately", Unanswered: "could not be asked",
		}[p.Eviction.Answer]
		text := fmt.Sprintf("%s/%s %s", p.Namespace, p.Name, said)
		if p.Eviction.Message != "" {
			text += ": " + strings.TrimSuffix(p.Eviction.Message, ".")
		}
		fmt.Fprintln(c.Out, on.paint(on.wrap(printable(text+".")), look))
		for _, entry := range p.Eviction.Leaves {
			fmt.Fprintln(c.Out, printable("  leaves: "+entry))
		}
		if p.Eviction.DrainMost != "" {
			fmt.Fprintf(c.Out, "  drains: %s at most\n", p.Eviction.DrainMost)
		}
	}
	fmt.Fprintln(c.Out)
	c.paragraph(on, remedyLines(e.Remedies))
}

// heard collects the warnings of the API server.
type heard struct {
	mu   sync.Mutex
	text []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (h *heard) HandleWarningHeader(_ int, _, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.text = append(h.text, text)
}

// dryEviction asks for an eviction as a dry run, and returns what the API server warns of. The dry run is in the body too: OpenKruise's
// webhook looks only there.
func (c *cluster) dryEviction(ctx context.Context, pod *corev1.Pod) (warnings string, err error) {
	to, said := rest.CopyConfig(c.rest), &heard{}
	to.WarningHandler, to.QPS = said, -1 // one at a time
	pods, err := corev1client.NewForConfig(to)
	if err != nil {
		return "", fmt.Errorf("connecting to the API server: %w", err)
	}
	dry := []string{metav1.DryRunAll}
	err = pods.RESTClient().Post().AbsPath("/api/v1").Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("eviction").
		Param("dryRun", metav1.DryRunAll).
		Body(&policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
			DeleteOptions: &metav1.DeleteOptions{DryRun: dry, Preconditions: metav1.NewUIDPreconditions(string(pod.UID))},
		}).Do(ctx).Error()
	return strings.Join(said.text, "; "), err
}

// tryEviction returns what the eviction of a pod would do. The error is only for a person who may not ask, or a pod that is gone.
func (c *cluster) tryEviction(ctx context.Context, p Pod) (Eviction, error) {
	text, err := c.evict(ctx, &corev1.Pod{ObjectMeta: p.facts.pod.ObjectMeta})
	if err == nil {
		return Eviction{Answer: Allowed, Message: text}, nil
	}
	text = err.Error()
	_, own, byWebhook := strings.Cut(text, "denied the request: ")
	if byWebhook {
		text = own
	}
	switch begun, hooked := strings.CutPrefix(text, evictions.Evacuation+": "); {
	case apierrors.IsForbidden(err) && !byWebhook, apierrors.IsNotFound(err):
		return Eviction{Answer: Unanswered}, err
	case apierrors.IsTooManyRequests(err) && hooked:
		return Eviction{Answer: Hooked, Message: begun}, nil
	case apierrors.IsTooManyRequests(err), apierrors.IsForbidden(err): // as OpenKruise's webhook does for a PodUnavailableBudget
		return Eviction{Answer: Refused, Message: text}, nil
	default:
		return Eviction{Answer: Unanswered, Message: text}, nil
	}
}
