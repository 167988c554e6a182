package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
)

// longestHold bounds what a slip of the finger can do.
const longestHold = 24 * time.Hour

// holding is what a person asks for.
type holding struct {
	length           time.Duration
	because          string
	undo, force, dry bool
}

func (o *options) holdCommand() *cobra.Command {
	h := holding{length: time.Hour}
	c := &cobra.Command{
		Use:   "hold POD",
		Short: "Take one pod out of rotation for a time, alive",
		Long: "Write the annotation " + lifecycle.AnnotationHold + ": the pod leaves the rotation in all its registries, stays alive, and " +
			"comes back by itself when the time has passed. Updates and deletions pass as for any pod that is out. Not more pods of a workload " +
			"than its maxUnavailable are held, unless you use --force.",
		Example: "  kubectl rollcall hold web-x7k2p -n prod --for 1h --because \"heap dump\"\n" +
			"  kubectl rollcall hold web-x7k2p -n prod --undo",
		Args: oneName("pod"),

		ValidArgsFunction: o.complete(&corev1.PodList{}, client.HasLabels{appspub.LifecycleStateKey}),
		RunE: o.connected(func(ctx context.Context, cluster *cluster, arguments []string) error {
			if h.undo {
				return cluster.undoHold(ctx, arguments[0], h.dry)
			}
			return cluster.hold(ctx, arguments[0], h)
		}),
	}
	c.Flags().DurationVar(&h.length, "for", h.length, "How long, at most "+longestHold.String()+".")
	c.Flags().StringVar(&h.because, "because", "", "Why, for everybody who finds the pod out of rotation.")
	c.Flags().BoolVar(&h.undo, "undo", false, "Put the pod back into rotation now.")
	c.Flags().BoolVar(&h.force, "force", false, "Hold the pod although more of its workload would be out than maxUnavailable allows.")
	c.Flags().BoolVar(&h.dry, "dry-run", false, "Check, and write nothing.")
	return c
}

func (c *cluster) hold(ctx context.Context, name string, h holding) error {
	if h.length <= 0 || h.length > longestHold {
		return fmt.Errorf("--for %s: use a time of up to %s, such as 1h", h.length, longestHold)
	}
	p, w, err := c.pod(ctx, name)
	if err != nil {
		return err
	}
	if p.Reason == reason.NotWatched { // no manager of this installation reads the annotation
		return &exitError{exitNotManaged, errors.New(p.Message)}
	}
	if lifecycle.Ends(p.facts.pod) {
		return fmt.Errorf("%s/%s is being deleted, or has ended: there is nothing to hold", p.Namespace, p.Name)
	}
	if err := c.allowsHold(ctx, w, p); err != nil && !h.force {
		return err
	}
	hold := lifecycle.Hold{Until: w.now.Add(h.length), Why: h.because}
	with := *p.facts.pod
	with.ObjectMeta = *with.ObjectMeta.DeepCopy()
	metav1.SetMetaDataAnnotation(&with.ObjectMeta, lifecycle.AnnotationHold, hold.String())
	if refused := lifecycle.HoldOf(&with, p.facts.workload).Refused; refused != "" {
		return fmt.Errorf("the manager would not hold the pod: %s", refused)
	}
	sayFirst(c.ErrOut, p.facts.leaderless)
	until := hold.Until.UTC().Format(time.RFC3339)
	if h.dry {
		fmt.Fprintf(c.Out, "pod/%s would be held out of rotation until %s (dry run)\n", p.Name, until)
		return nil
	}
	was := &corev1.Pod{ObjectMeta: p.facts.pod.ObjectMeta}
	err = annotate(ctx, c, "pod", was, lifecycle.AnnotationHold, func(*corev1.Pod) (string, []operation, error) {
		return hold.String(), nil, nil
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "pod/%s is held out of rotation until %s: %s shows when it is out\n", p.Name, until,
		c.again("explain %s -n %s", p.Name, p.Namespace))
	return nil
}

// allowsHold returns why the workload can't spare one more pod.
func (c *cluster) allowsHold(ctx context.Context, w *world, p Pod) error {
	all, err := c.managed(ctx, w, client.InNamespace(p.Namespace))
	if err != nil {
		return err
	}
	pods, out := 0, 0
	for _, other := range all {
		if ownerOf(other) != ownerOf(p) {
			continue
		}
		if pods++; other.Name != p.Name && (!other.Ready || other.Rotation != In) {
			out++
		}
	}
	if most := sparesOf(p.facts.set, pods); out >= most {
		return fmt.Errorf("%d of the %d pods of %s are out of rotation or not ready, and its maxUnavailable is %d: wait for them, or use --force",
			out, pods, p.Workload, most)
	}
	return nil
}

// ownerOf tells workloads of different kinds with one name apart.
func ownerOf(p Pod) types.UID {
	if owner := metav1.GetControllerOfNoCopy(p.facts.pod); owner != nil {
		return owner.UID
	}
	return ""
}

// sparesOf is how many pods of the CloneSet may be out, which is nil for another kind: its maxUnavailable, and at least one.
func sparesOf(set *kruisev1alpha1.CloneSet, pods int) int {
	allowed := intstr.FromString("20%") // OpenKruise's default
	if set != nil && set.Spec.UpdateStrategy.MaxUnavailable != nil {
		allowed = *set.Spec.UpdateStrategy.MaxUnavailable
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(&allowed, pods, true)
	if err != nil {
		return 1
	}
	return max(n, 1)
}

func (c *cluster) undoHold(ctx context.Context, name string, dry bool) error {
	var pod corev1.Pod
	if err := c.one(ctx, "pod", name, &pod); err != nil {
		return err
	}
	_, held := pod.Annotations[lifecycle.AnnotationHold]
	switch {
	case !held:
		return fmt.Errorf("%s/%s has no annotation %s: nobody holds it", pod.Namespace, pod.Name, lifecycle.AnnotationHold)
	case dry:
		fmt.Fprintf(c.Out, "pod/%s would be held no longer (dry run)\n", pod.Name)
		return nil
	}
	patch, err := json.Marshal([]operation{
		{Op: "test", Path: "/metadata/uid", Value: pod.UID}, same("annotations", pod.Annotations, lifecycle.AnnotationHold),
		{Op: "remove", Path: pointer("annotations", lifecycle.AnnotationHold)},
	})
	if err == nil {
		err = c.Patch(ctx, &pod, client.RawPatch(types.JSONPatchType, patch))
	}
	switch {
	case lifecycle.IsMoved(err):
		return errors.New("the pod or its hold has changed meanwhile: look again, and repeat the command")
	case err != nil:
		return fmt.Errorf("removing annotation %s of pod %s: %w", lifecycle.AnnotationHold, pod.Name, err)
	}
	fmt.Fprintf(c.Out, "pod/%s is held no longer: it comes back into rotation once it is ready\n", pod.Name)
	return nil
}
