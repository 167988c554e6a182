package plugin

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/reason"
)

// refresh is how often a watch looks again.
const refresh = time.Second

func (o *options) rolloutCommand() *cobra.Command {
	var watch bool
	c := &cobra.Command{
		Use:   "rollout CLONESET",
		Short: "Show how a rollout goes: a row for each pod, drains, and how many are in rotation",
		Long: "Shows a CloneSet and its pods. With --watch it looks again each second until the rollout is done: on a terminal it " +
			"draws in place, and into a pipe it writes the view again when it changes.",
		Example: "  kubectl rollcall rollout web -n prod --watch",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, arguments []string) error {
			cluster, err := o.cluster()
			if err != nil {
				return err
			}
			namespace, err := o.namespace()
			if err != nil {
				return err
			}
			v := viewer{options: o, cluster: cluster, key: client.ObjectKey{Namespace: namespace, Name: arguments[0]}}
			return v.run(cmd.Context(), watch)
		},
	}
	c.Flags().BoolVarP(&watch, "watch", "w", false, "Look again each second until the rollout is done.")
	return c
}

// viewer draws a rollout.
type viewer struct {
	*options

	cluster *cluster
	key     client.ObjectKey
	// least is the lowest number of pods in rotation so far; watched counts the views.
	least   int
	watched int
}

func (v *viewer) run(ctx context.Context, watch bool) error {
	s := screen{out: v.Out, terminal: isTerminal(v.Out)}
	for {
		rollout, err := v.look(ctx)
		if err != nil {
			return err
		}
		var text bytes.Buffer
		if err := rollout.print(&text); err != nil {
			return err
		}
		s.draw(text.Bytes())
		if !watch || rollout.done() {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(refresh):
		}
	}
}

// rollout is what is drawn.
type rollout struct {
	cloneSet *kruisev1alpha1.CloneSet
	pods     []Pod
	// in is how many pods are in rotation, and least the lowest number since the view began.
	in, least int
	now       time.Time
}

func (v *viewer) look(ctx context.Context) (*rollout, error) {
	var set kruisev1alpha1.CloneSet
	err := v.cluster.Get(ctx, v.key, &set)
	switch {
	case apierrors.IsNotFound(err):
		return nil, &exitError{exitNotFound, fmt.Errorf("namespace %s has no CloneSet %s", v.key.Namespace, v.key.Name)}
	case err != nil:
		return nil, reading("CloneSet "+v.key.Name, err)
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("reading the selector of CloneSet %s: %w", v.key.Name, err)
	}
	w, err := v.cluster.world(ctx, v.key.Namespace, v.options)
	if err != nil {
		return nil, err
	}
	pods, err := v.cluster.pods(ctx, w, client.InNamespace(v.key.Namespace), client.MatchingLabelsSelector{Selector: selector})
	if err != nil {
		return nil, err
	}
	r := &rollout{cloneSet: &set, now: w.now}
	for _, p := range pods {
		if metav1.IsControlledBy(p.facts.pod, &set) {
			r.pods = append(r.pods, p)
		}
		if p.Rotation == In {
			r.in++
		}
	}
	if v.watched++; v.watched == 1 || r.in < v.least {
		v.least = r.in
	}
	r.least = v.least
	return r, nil
}

// done reports whether every pod is of the update's revision and none waits.
func (r *rollout) done() bool {
	status := r.cloneSet.Status
	if status.ObservedGeneration < r.cloneSet.Generation || status.UpdatedAvailableReplicas < wanted(r.cloneSet) {
		return false
	}
	for _, p := range r.pods {
		if p.Hook != "" || p.State == terminating {
			return false
		}
	}
	return true
}

func (r *rollout) print(out io.Writer) error {
	set := r.cloneSet
	fmt.Fprintf(out, "CloneSet %s/%s: %d of %d pods updated, %d available, %d in rotation (least so far %d)\n",
		set.Namespace, set.Name, set.Status.UpdatedReplicas, wanted(set), set.Status.AvailableReplicas, r.in, r.least)
	table := printers.GetNewTabWriter(out)
	fmt.Fprintln(table, "POD\tREVISION\tSTATE\tAGE\tREADY\tROTATION\tWAITS AT\tREASON")
	for _, p := range r.pods {
		revision := "old"
		if p.facts.pod.Labels[appsv1.ControllerRevisionHashLabelKey] == set.Status.UpdateRevision {
			revision = "new"
		}
		why := dash(string(p.Reason))
		if p.Reason == reason.Draining {
			why += " " + short(p.facts.drainEnds.Sub(r.now))
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%t\t%s\t%s\t%s\n",
			p.Name, revision, dash(p.State), p.age(r.now), p.Ready, p.Rotation, dash(string(p.Hook)), why)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("printing the rollout: %w", err)
	}
	return nil
}

func wanted(set *kruisev1alpha1.CloneSet) int32 {
	if set.Spec.Replicas == nil {
		return 1
	}
	return *set.Spec.Replicas
}

// screen shows the latest of several texts: in the place of the one before on a terminal, below it elsewhere.
type screen struct {
	out      io.Writer
	terminal bool
	last     []byte
}

func (s *screen) draw(text []byte) {
	if bytes.Equal(text, s.last) {
		return
	}
	if s.terminal && s.last != nil {
		// Up to where the last text began, and clear from there to the end of the screen.
		fmt.Fprintf(s.out, "\x1b[%dA\x1b[J", bytes.Count(s.last, []byte("\n")))
	}
	_, _ = s.out.Write(text)
	s.last = text
}

func isTerminal(out io.Writer) bool {
	file, is := out.(*os.File)
	return is && term.IsTerminal(int(file.Fd()))
}
