package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
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
			if o.dry {
				fmt.Fprintf(o.Out, "lease/%s would be annotated: %s would compare the registries with the cluster (dry run)\n", lease.Name,
					*lease.Spec.HolderIdentity)
				return nil
			}
			now := o.now().UTC().Format(time.RFC3339Nano)
			if err := cluster.order(ctx, lease, now, func(*coordinationv1.Lease) error { return nil }); err != nil {
				return err
			}
			fmt.Fprintf(o.Out, "lease/%s annotated: %s compares the registries with the cluster now\n", lease.Name, *lease.Spec.HolderIdentity)
			return nil
		}),
	}
	c.Flags().BoolVar(&approve, "approve", false, "Approve the removals that Rollcall holds back.")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "Do not ask for confirmation.")
	c.Flags().BoolVar(&o.dry, "dry-run", false, "Show what would be approved, and write nothing.")
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
			"Rollcall is installed; a manager without leader election has none, nor has a dry run, nor an installation in its first 15 s",
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

// renewedAfter waits until a manager renews the Lease again, for a third of its duration: six renewals.
func (c *cluster) renewedAfter(ctx context.Context, first *coordinationv1.Lease) (lease *coordinationv1.Lease, err error) {
	if first.Spec.RenewTime.Equal(c.ended) {
		return first, c.noLeader()
	}
	read := false // a Lease that can't be read shows nothing
	within := time.Duration(*first.Spec.LeaseDurationSeconds) * time.Second / 3
	late := wait.PollUntilContextTimeout(ctx, time.Second, within, false, func(ctx context.Context) (bool, error) {
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
// held. It refuses if no manager leads, and warns if the Lease is not found or can't be read: then it is not known.
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

// readLease notes in the view that no manager leads, or since when one does. A view goes without if the Lease is not found, as in a
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

// leaderlessIn reports that no manager leads to a person who asks about a namespace, unless another Lease counts there.
func (w *world) leaderlessIn(namespace string) string {
	if namespace != "" && !w.watches(namespace) {
		return ""
	}
	return w.leaderless
}

// blocked returns the manager's Events about removals that are held back, the latest first. There is one for each set of entries, and an
// older one of the same registry has a set that has changed since.
func (c *cluster) blocked(ctx context.Context) ([]eventsv1.Event, error) {
	events, err := c.reported(ctx, c.installation)
	if err != nil {
		return nil, reading("Events", err)
	}
	slices.Reverse(events)
	return slices.DeleteFunc(events, func(e eventsv1.Event) bool {
		return e.Reason != "RemovalBlocked" || !c.aboutConfig(e) || orders.DigestIn(e.Note) == ""
	}), nil
}

// lastBlocked returns the last of the Events whose removals are not approved already.
func (c *cluster) lastBlocked(ctx context.Context, lease *coordinationv1.Lease) (last eventsv1.Event, err error) {
	events, err := c.blocked(ctx)
	if err != nil {
		return last, err
	}
	approved := orders.Digests(lease.Annotations[orders.Annotation])
	i := slices.IndexFunc(events, func(e eventsv1.Event) bool { return !slices.Contains(approved, orders.DigestIn(e.Note)) })
	if i < 0 {
		return last, fmt.Errorf("no Event in namespace %s lists removals that wait for approval at Lease %s. The API server keeps an "+
			"Event for an hour: %s makes the manager check again", c.installation, lease.Name, c.again("resync"))
	}
	return events[i], nil
}

// approve lets the manager remove what it holds back by its last Event.
func (c *cluster) approve(ctx context.Context, lease *coordinationv1.Lease, yes bool) error {
	last, err := c.lastBlocked(ctx, lease)
	if err != nil {
		return err
	}
	digest := orders.DigestIn(last.Note)
	fmt.Fprintf(c.Out, "%s ago: %s\n", short(c.now().Sub(lastSeen(last))), printable(last.Note))
	held, err := c.held(ctx, lease, digest)
	switch {
	case errors.Is(err, errOthersHeld):
		return err
	case err != nil:
		fmt.Fprintf(c.ErrOut, "Can't list the entries: %v\n", err)
		held = &orders.Held{}
	}
	for _, entry := range held.Entries {
		fmt.Fprintln(c.Out, "- "+printable(entry))
	}
	if c.dry {
		fmt.Fprintln(c.Out, "--approve would remove these entries (dry run)")
		return nil
	}
	if err := c.confirm(yes, removes(last.Note, held), "nothing was approved"); err != nil {
		return err
	}
	if err := c.order(ctx, lease, digest, func(now *coordinationv1.Lease) error { return c.stillHeld(ctx, lease, now, last) }); err != nil {
		return fmt.Errorf("nothing was approved: %w", err)
	}
	fmt.Fprintf(c.Out, "lease/%s annotated: %s removes them\n", lease.Name, *lease.Spec.HolderIdentity)
	return nil
}

// stillHeld returns why what a person has agreed to is over: another manager leads, or it holds back other entries of that registry.
func (c *cluster) stillHeld(ctx context.Context, was, now *coordinationv1.Lease, of eventsv1.Event) error {
	if holder := *was.Spec.HolderIdentity; ptr.Deref(now.Spec.HolderIdentity, "") != holder {
		return fmt.Errorf("%s leads no more, and the next manager asks again: %s shows it", holder, c.again("resync --approve"))
	}
	events, err := c.blocked(ctx)
	if err != nil {
		return err
	}
	digest, approved := orders.DigestIn(of.Note), orders.Digests(now.Annotations[orders.Annotation])
	i := slices.IndexFunc(events, func(e eventsv1.Event) bool {
		one := orders.DigestIn(e.Note)
		return orders.RegistryIn(e.Note) == orders.RegistryIn(of.Note) && (one == digest || !slices.Contains(approved, one))
	})
	if i >= 0 && orders.DigestIn(events[i].Note) != digest {
		return fmt.Errorf("the manager holds back other entries by now: %s shows them", c.again("resync --approve"))
	}
	return nil
}

// order adds a word to the Lease's annotation, unless the Lease as it is now is refused.
func (c *cluster) order(ctx context.Context, lease *coordinationv1.Lease, word string, refuse func(*coordinationv1.Lease) error) error {
	return annotate(ctx, c, "Lease", lease, orders.Annotation, func(now *coordinationv1.Lease) (string, []operation, error) {
		leads := operation{Op: "test", Path: "/spec/holderIdentity", Value: now.Spec.HolderIdentity}
		return orders.With(now.Annotations[orders.Annotation], word), []operation{leads}, refuse(now)
	})
}

// removes shows what an approval lets Rollcall remove, and how much of that a person has before their eyes.
func removes(note string, held *orders.Held) string {
	count, _, _ := strings.Cut(note, " ")
	if held.Total > 0 {
		count = strconv.Itoa(held.Total)
	}
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
