package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/orders"
)

func (o *options) resyncCommand() *cobra.Command {
	var approve, yes bool
	c := &cobra.Command{
		Use:   "resync",
		Short: "Compare the registries with the cluster now, or approve removals that Rollcall holds back",
		Long: "Annotate the manager's Lease: its holder compares every registry with the cluster immediately.\n\n" +
			"If more entries have no live pod than resync.maxRemovals allows, and they may be another cluster's, Rollcall removes none of " +
			"them. --approve shows how many there are and lists up to three of them, or up to 500 if the status page is turned on. It asks " +
			"for confirmation. Rollcall then removes all of them, and no others.",
		Example: "  kubectl rollcall resync\n  kubectl rollcall resync --approve",
		Args:    cobra.NoArgs,
		RunE: o.connected(func(ctx context.Context, cluster *cluster, _ []string) error {
			lease, err := cluster.renewed(ctx)
			if err != nil {
				return err
			}
			if approve {
				return cluster.approve(ctx, lease, yes)
			}
			if err := cluster.order(ctx, lease, o.now().UTC().Format(time.RFC3339Nano)); err != nil {
				return err
			}
			fmt.Fprintf(o.Out, "lease/%s annotated: %s compares the registries with the cluster now\n", lease.Name, *lease.Spec.HolderIdentity)
			return nil
		}),
	}
	c.Flags().BoolVar(&approve, "approve", false, "Approve the removals that Rollcall holds back.")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "Do not ask for confirmation.")
	return c
}

var errNoLeader = errors.New("no manager holds the Lease")

// lease reads the one that a manager holds, or held until it died. With errNoLeader it returns the one that was given back.
func (c *cluster) lease(ctx context.Context) (*coordinationv1.Lease, error) {
	var lease coordinationv1.Lease
	err := c.Get(ctx, client.ObjectKey{Namespace: c.installation, Name: orders.Lease}, &lease)
	switch spec := lease.Spec; {
	case apierrors.IsNotFound(err):
		return nil, &exitError{exitNoManager, fmt.Errorf("namespace %s has no Lease %s: set --rollcall-namespace to where "+
			"Rollcall is installed; a manager without leader election has none, nor has a dry run",
			c.installation, orders.Lease)}
	case err != nil:
		return nil, reading("Lease "+orders.Lease, err)
	case ptr.Deref(spec.HolderIdentity, "") == "" || spec.RenewTime == nil || spec.LeaseDurationSeconds == nil:
		return &lease, c.noLeader()
	}
	return &lease, nil
}

func (c *cluster) noLeader() error {
	return &exitError{exitNoManager, fmt.Errorf("%w %s/%s: kubectl -n %s get pods%s shows whether one runs",
		errNoLeader, c.installation, orders.Lease, c.installation, c.kubectl)}
}

// renewed reads the Lease, and makes sure that a manager lives which renews it. A manager does so all the time. If the local clock is
// ahead, the Lease looks expired.
func (c *cluster) renewed(ctx context.Context) (*coordinationv1.Lease, error) {
	first, err := c.lease(ctx)
	if err != nil || !c.now().After(first.Spec.RenewTime.Add(time.Duration(*first.Spec.LeaseDurationSeconds)*time.Second)) {
		return first, err
	}
	return c.renewedAfter(ctx, first)
}

// renewedAfter waits until a manager renews the Lease again.
func (c *cluster) renewedAfter(ctx context.Context, first *coordinationv1.Lease) (lease *coordinationv1.Lease, err error) {
	if first.Spec.RenewTime.Equal(c.ended) {
		return first, c.noLeader()
	}
	read := false // a Lease that can't be read says nothing
	late := wait.PollUntilContextTimeout(ctx, time.Second, 5*time.Second, false, func(ctx context.Context) (bool, error) {
		lease, err = c.lease(ctx)
		read = read || lease != nil
		return err == nil && !lease.Spec.RenewTime.Equal(first.Spec.RenewTime), nil
	})
	switch {
	case late == nil:
		return lease, nil
	case !read:
		return nil, cmp.Or(err, late)
	}
	c.ended = first.Spec.RenewTime
	return first, c.noLeader()
}

// led takes what [cluster.renewed] returned, and sees the Lease renewed once more: if the local clock is behind, one that has ended looks
// held. It refuses where no manager leads, and warns where the Lease is not found or can't be read: then it is not known.
func (c *cluster) led(ctx context.Context, lease *coordinationv1.Lease, unled error) (known bool, err error) {
	if unled == nil {
		_, unled = c.renewedAfter(ctx, lease)
	}
	if unled == nil || errors.Is(unled, errNoLeader) {
		return true, unled
	}
	fmt.Fprintf(c.ErrOut, "warning: can't tell whether a manager leads: %v\n", unled)
	return false, nil
}

// readLease has the view say that no manager leads, or since when one does. A view goes without where the Lease is not found, as in a
// dry run, or can't be read.
func (w *world) readLease(c *cluster) {
	switch {
	case w.unled == nil && w.lease.Spec.AcquireTime != nil:
		w.leads = w.lease.Spec.AcquireTime.Time
	case errors.Is(w.unled, errNoLeader):
		since := ""
		if renewed := w.lease.Spec.RenewTime; renewed != nil {
			since = fmt.Sprintf(" (last renewed %s ago)", short(w.now.Sub(renewed.Time)))
		}
		w.leaderless = fmt.Sprintf("No manager holds Lease %s/%s%s: no hook is set or released.", c.installation, orders.Lease, since)
	}
}

// leaderlessIn says that no manager leads to a person who looks at a namespace, unless another Lease counts there.
func (w *world) leaderlessIn(namespace string) string {
	if namespace != "" && !w.config.Watches(namespace) {
		return ""
	}
	return w.leaderless
}

// lastBlocked returns the last Event about removals that are held back, nil where all of them are approved already.
func lastBlocked(events []eventsv1.Event, approved []string) *eventsv1.Event {
	blocked := slices.DeleteFunc(events, func(e eventsv1.Event) bool {
		digest := orders.DigestIn(e.Note)
		return e.Reason != "RemovalBlocked" || digest == "" || slices.Contains(approved, digest)
	})
	if len(blocked) == 0 {
		return nil
	}
	return new(slices.MaxFunc(blocked, byLastSeen))
}

// approve lets the manager remove what its last Event says that it holds back. There is one for each set of entries, and an older
// one names a set that has changed since.
func (c *cluster) approve(ctx context.Context, lease *coordinationv1.Lease, yes bool) error {
	var events eventsv1.EventList
	if err := c.List(ctx, &events, client.InNamespace(c.installation)); err != nil {
		return reading("Events", err)
	}
	last := lastBlocked(events.Items, orders.Digests(lease.Annotations[orders.Annotation]))
	if last == nil {
		return fmt.Errorf("no Event in namespace %s lists removals that wait for approval at Lease %s. The API server keeps an "+
			"Event for an hour: %s makes the manager check again", c.installation, lease.Name, c.again("resync"))
	}
	fmt.Fprintf(c.Out, "%s ago: %s\n", short(c.now().Sub(lastSeen(*last))), printable(last.Note))
	digest := orders.DigestIn(last.Note)
	held, err := c.held(ctx, lease, digest)
	if err != nil {
		fmt.Fprintf(c.ErrOut, "Can't list the entries: %v\n", err)
		held = &orders.Held{}
	}
	for _, entry := range held.Entries {
		fmt.Fprintln(c.Out, "- "+printable(entry))
	}
	if err := c.confirm(yes, removes(last.Note, held), "nothing was approved"); err != nil {
		return err
	}
	if err := c.order(ctx, lease, digest); err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "lease/%s annotated: %s removes them\n", lease.Name, *lease.Spec.HolderIdentity)
	return nil
}

// order adds a word to the Lease's annotation.
func (c *cluster) order(ctx context.Context, lease *coordinationv1.Lease, word string) error {
	return c.annotate(ctx, "Lease", lease, orders.Annotation, orders.With(lease.Annotations[orders.Annotation], word))
}

// removes says what an approval lets Rollcall remove, and how much of that a person has before their eyes.
func removes(note string, held *orders.Held) string {
	count, _, _ := strings.Cut(note, " ")
	switch named := len(held.Entries); {
	case count == "1":
		return "Rollcall removes the entry above."
	case named == 0:
		return fmt.Sprintf("Rollcall removes all %s entries; the line above shows at most three of them.", count)
	case named < held.Total:
		return fmt.Sprintf("Rollcall removes all %s entries; the lines above show %d of them.", count, named)
	default:
		return fmt.Sprintf("Rollcall removes the %s entries above.", count)
	}
}
