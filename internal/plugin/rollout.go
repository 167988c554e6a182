package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/enroll"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
)

func (o *options) rolloutCommand() *cobra.Command {
	var watch bool
	var timeout time.Duration
	var output *form
	c := &cobra.Command{
		Use:   "rollout CLONESET",
		Short: "Show a rollout: a row for each pod, the drains, and how many pods are in rotation",
		Long: "Show a CloneSet and its pods. With --watch, refresh every second until the rollout is done: in place on a terminal, " +
			"and whenever something changes in a pipe.",
		Example: "  kubectl rollcall rollout web -n prod --watch --timeout 10m\n  kubectl rollcall rollout web -n prod -o json",
		Args:    oneName("CloneSet"),

		ValidArgsFunction: o.complete(&kruisev1alpha1.CloneSetList{}),
		RunE: o.connected(func(ctx context.Context, cluster *cluster, arguments []string) error {
			switch {
			case timeout < 0:
				return fmt.Errorf("--timeout %s: set a duration such as 10m, or 0 for no limit", timeout)
			case timeout > 0 && !watch:
				return errors.New("--timeout limits --watch: add --watch, or remove --timeout")
			}
			if err := output.once(watch); err != nil {
				return err
			}
			if output.forScripts() {
				return cluster.printRollout(ctx, arguments[0], output)
			}
			return cluster.showRollout(ctx, arguments[0], watch, timeout)
		}),
	}
	c.Flags().BoolVarP(&watch, "watch", "w", false, "Refresh every second until the rollout is done.")
	output = outputFlag(c)
	c.Flags().DurationVar(&timeout, "timeout", 0, "How long --watch waits for the rollout to finish, such as 10m; 0 means no limit.")
	return c
}

// showRollout draws it once, or until it is done, for as long as the timeout allows.
func (c *cluster) showRollout(ctx context.Context, name string, watch bool, timeout time.Duration) error {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	least, left := math.MaxInt, "the API server has not answered" // least of the pods in rotation, since the view began
	err := c.show(ctx, watch, func(out, notes io.Writer, on terminal) (bool, error) {
		rollout, err := c.rollout(ctx, name)
		if err != nil {
			return false, err
		}
		least, left = min(least, rollout.in), rollout.left()
		sayFirst(notes, rollout.leaderless)
		rollout.write(out, on, least)
		return left == "", nil
	})
	if err != nil && ctx.Err() != nil {
		return &exitError{exitTimedOut, fmt.Errorf("the rollout of CloneSet %s/%s is not done after %s: %s", c.namespace, name, timeout, left)}
	}
	return err
}

func (c *cluster) printRollout(ctx context.Context, name string, output *form) error {
	rollout, err := c.rollout(ctx, name)
	if err != nil {
		return err
	}
	sayFirst(c.ErrOut, rollout.leaderless)
	noEntries(c.ErrOut, rollout.unknown)
	return output.print(c.Out, rollout.forScripts())
}

// Rollout is what a program reads of it.
type Rollout struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Replicas are the pods that are wanted; Updated and Available are those of OpenKruise's status.
	Replicas  int32 `json:"replicas"`
	Updated   int32 `json:"updated"`
	Available int32 `json:"available"`
	// InRotation is how many of the pods are.
	InRotation int    `json:"inRotation"`
	Paused     bool   `json:"paused"`
	Partition  string `json:"partition,omitempty"`
	// Done reports whether the rollout is done, and Left what is left of it, for a person.
	Done bool         `json:"done"`
	Left string       `json:"left,omitempty"`
	Pods []RolloutPod `json:"pods"`
}

// RolloutPod is a pod as [Pod] shows it, and whether it has the revision of the update.
type RolloutPod struct {
	Pod

	Updated bool `json:"updated"`
}

func (r *rollout) forScripts() Rollout {
	set := r.cloneSet
	shown := Rollout{
		Namespace: set.Namespace, Name: set.Name, Replicas: ptr.Deref(set.Spec.Replicas, 1), Updated: set.Status.UpdatedReplicas,
		Available: set.Status.AvailableReplicas, InRotation: r.in, Paused: set.Spec.UpdateStrategy.Paused, Left: r.left(), Pods: []RolloutPod{},
	}
	shown.Done = shown.Left == ""
	if partition := set.Spec.UpdateStrategy.Partition; partition != nil {
		shown.Partition = partition.String()
	}
	for _, p := range r.pods {
		shown.Pods = append(shown.Pods, RolloutPod{p, r.updated(p)})
	}
	return shown
}

// updated reports whether the pod has the revision of the update.
func (r *rollout) updated(p Pod) bool {
	return lifecycle.RevisionOf(p.facts.pod) == lifecycle.ShortRevision(r.cloneSet.Status.UpdateRevision)
}

// rollout is what is drawn.
type rollout struct {
	cloneSet *kruisev1alpha1.CloneSet
	pods     []Pod
	// in is how many pods are in rotation.
	in int
	// leaderless shows that no manager leads, if that is so, and unknown why it is not known what the manager knows.
	leaderless string
	unknown    error
}

func (c *cluster) rollout(ctx context.Context, name string) (*rollout, error) {
	var set kruisev1alpha1.CloneSet
	if err := c.one(ctx, "CloneSet", name, &set); err != nil {
		return nil, err
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("reading the selector of CloneSet %s: %w", name, err)
	}
	w, err := c.world(ctx, c.namespace)
	if err != nil {
		return nil, err
	}
	if err := w.forbidden[clusterstate.KindCloneSet]; err != nil {
		return nil, err
	}
	pods, err := c.managed(ctx, w, client.InNamespace(c.namespace), client.MatchingLabelsSelector{Selector: selector})
	if err != nil {
		return nil, err
	}
	r := rolloutOf(&set, pods)
	r.leaderless, r.unknown = w.leaderlessIn(c.namespace), w.unknown
	if len(r.pods) == 0 && !enroll.Managed(&set, w.config) {
		return nil, w.notManaged(c.options, clusterstate.AsWorkload(&set))
	}
	return r, nil
}

// rolloutOf has those of the pods that are the CloneSet's.
func rolloutOf(set *kruisev1alpha1.CloneSet, pods []Pod) *rollout {
	r := &rollout{cloneSet: set}
	for _, p := range pods {
		if !metav1.IsControlledBy(p.facts.pod, set) {
			continue
		}
		if r.pods = append(r.pods, p); p.Rotation == In {
			r.in++
		}
	}
	return r
}

// left is what keeps the rollout from being done, empty once no pod waits and each that the partition lets be updated has the new
// revision.
func (r *rollout) left() string {
	for _, p := range r.pods {
		switch {
		case p.waits():
			return fmt.Sprintf("pod %s waits, reason %s", p.Name, p.Reason)
		case p.State == terminating:
			return fmt.Sprintf("pod %s is being deleted", p.Name)
		}
	}
	status, replicas := r.cloneSet.Status, ptr.Deref(r.cloneSet.Spec.Replicas, 1)
	switch {
	case status.ObservedGeneration < r.cloneSet.Generation:
		return "OpenKruise has not seen the last change of the CloneSet"
	case status.AvailableReplicas < replicas:
		return fmt.Sprintf("%d of %d pods are available", status.AvailableReplicas, replicas)
	case status.UpdatedAvailableReplicas < status.ExpectedUpdatedReplicas:
		return fmt.Sprintf("%d of %d pods are updated and available", status.UpdatedAvailableReplicas, status.ExpectedUpdatedReplicas)
	default:
		return ""
	}
}

// held shows what in the CloneSet keeps pods at their revision.
func held(s kruisev1alpha1.CloneSetUpdateStrategy) (text string) {
	if s.Paused {
		text = ", paused"
	}
	if s.Partition != nil && s.Partition.String() != "0" && s.Partition.String() != "0%" {
		text += ", partition " + s.Partition.String()
	}
	return text
}

func (r *rollout) write(out io.Writer, on terminal, least int) {
	set := r.cloneSet
	fmt.Fprintln(out, on.wrap(fmt.Sprintf("CloneSet %s/%s: %d of %d pods updated, %d available, %d in rotation (least so far %d)%s",
		set.Namespace, set.Name, set.Status.UpdatedReplicas, ptr.Deref(set.Spec.Replicas, 1), set.Status.AvailableReplicas, r.in, least,
		held(set.Spec.UpdateStrategy))))
	t := table{
		head:  []string{"POD", "REVISION", "STATE", "IN STATE", "READY", "ROTATION", "WAITS AT", "REASON"},
		spare: []string{"READY", "IN STATE", "WAITS AT"},
	}
	for _, p := range r.pods {
		revision := "old"
		if r.updated(p) {
			revision = "new"
		}
		why := dash(string(p.Reason))
		switch {
		case p.Reason != reason.Draining || p.facts.undated:
		case p.facts.untilIdle:
			why += " up to " + short(p.facts.drainLeft)
		default:
			why += " " + short(p.facts.drainLeft)
		}
		t.rows = append(t.rows, row{p.tone(), []string{
			p.Name, revision, dash(p.State), p.inState(), strconv.FormatBool(p.Ready), string(p.Rotation), dash(string(p.Hook)), why,
		}})
	}
	t.write(out, on)
}
