package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/memory"
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/internal/waiting"
)

// StaleRecheck is the fallback if no event shows our own write.
const StaleRecheck = time.Second

// Observer makes facts.
type Observer struct {
	// Client and Pods read from the cache.
	Client client.Reader
	Pods   clusterstate.Pods
	// APIReader reads from the API server, where a lagging cache could make an object look gone.
	APIReader client.Reader
	Tracker   *tracker.Tracker
	State     *clusterstate.State
	Memory    *memory.Pods
	// Identity is the cluster's UID, part of each entry's mark.
	Identity *clusterstate.Identity
	Clock    clock.PassiveClock
}

// Look is the outcome of observing a pod.
type Look struct {
	// Facts are nil if there is nothing to decide.
	Facts *Facts
	// Again is when to look again without facts; zero for not at all.
	Again time.Duration
	// Forget: the pod is not Rollcall's, or nothing is left of it.
	Forget bool
	// Behind is why the facts can't be trusted.
	Behind waiting.Blocker
}

// Look makes a pod's facts. With an error, they are what could be read all the same, to show whose pod it is.
func (o *Observer) Look(ctx context.Context, id lifecycle.PodID, settings *Settings) (Look, error) {
	// Before the cache is read, or an end in between would be missed.
	tracked := o.Tracker.Open(id)
	f := &Facts{Settings: settings, clusterUID: o.Identity.UID(), Tracked: tracked, Memory: o.Memory.Of(id)}
	look, err := o.look(ctx, id, f)
	if err != nil {
		look.Facts = o.unread(ctx, id, f)
	}
	return look, err
}

// left forgets a pod of a namespace that is no longer this manager's, once no call for it can be carried out: until then, the namespace may
// come back.
func (o *Observer) left(id lifecycle.PodID, f *Facts) Look {
	o.State.Panics.Forget(id.UID, &f.Settings.Rules)
	if lands := f.Tracked.Known().LandsUntil().Sub(o.Clock.Now()); lands > 0 {
		return Look{Again: lands}
	}
	return Look{Forget: true}
}

// unread completes facts of which a read has failed.
func (o *Observer) unread(ctx context.Context, id lifecycle.PodID, f *Facts) *Facts {
	if f.Input.Pod != nil {
		return f
	}
	pod, err := o.Pods.Get(ctx, id.NamespacedName)
	if err != nil || pod.UID != id.UID {
		pod = &lifecycle.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: id.Namespace, Name: id.Name, UID: id.UID}}
	}
	f.Input = lifecycle.Input{Pod: pod, Record: lifecycle.RecordOf(pod), Ownership: f.Settings.Ownership}
	return f
}

func (o *Observer) look(ctx context.Context, id lifecycle.PodID, f *Facts) (Look, error) {
	tracked, settings := f.Tracked, f.Settings
	if o.State.Scope.Excludes(id.Namespace) {
		return o.left(id, f), nil
	}
	if err := o.State.Workloads.Refresh(ctx, &settings.Rules, settings.everywhere, o.Clock.Now()); err != nil {
		return Look{}, err
	}
	pod, err := o.Pods.Get(ctx, id.NamespacedName)
	switch {
	case err == nil && pod.UID == id.UID:
	case err == nil, apierrors.IsNotFound(err):
		return o.uncached(ctx, id, f)
	default:
		return Look{}, fmt.Errorf("reading the pod: %w", err)
	}
	tracked.Found(lifecycle.ReachOf(pod))
	if look, waits, err := o.awaitOwnWrite(ctx, f, pod); waits || err != nil {
		return look, err
	}
	workload, err := o.pod(ctx, f, pod)
	if err != nil {
		return Look{}, err
	}
	if !f.managed() {
		return Look{Forget: true}, nil
	}
	if err := o.locate(ctx, f); err != nil {
		return Look{}, err
	}
	f.guard(workload != nil)
	f.warnOfTraffic(workload)
	tracked.Recall(f.Input.Record.Want, f.Entries(f.Input, f.Targets).OfRecord, o.Clock.Now())
	o.adoptListed(f)
	return Look{Facts: f}, nil
}

// locate adds where the pod runs and belongs.
func (o *Observer) locate(ctx context.Context, f *Facts) error {
	pod, now, rules := f.Input.Pod, o.Clock.Now(), &f.Settings.Rules
	f.Memory.ReadOut(f.Input.Record.OutSince, now)
	node, err := clusterstate.NodeOf(ctx, o.Client, pod)
	if err != nil {
		return err
	}
	o.targets(f, clusterstate.Topology(node))
	if err := o.passedOn(ctx, f); err != nil {
		return err
	}
	f.Input.Blocked = f.Problem.Reason != ""
	f.Input.NodeLost = node.Lost()
	f.warnOf(node)
	f.Input.Ending, f.Changes = lifecycle.EndOf(pod, node, now).Ending(now, f.Drain.Max)
	f.holdOut(now)
	f.leaveOut()
	if err := o.former(ctx, f); err != nil {
		return err
	}
	// Counted as it was just read, so never more pods than the threshold are taken out.
	o.State.Panics.Refresh(f.Input, rules)
	f.Panic = o.State.Panics.Of(pod.Namespace, f.Input.Record, rules)
	f.Input.KeepUnready = rules.PanicThreshold == 0 || f.Panic.Service != "" || f.damped(now)
	return nil
}

// damped reports whether the pod has just turned not ready, and is kept for as long as that may be over by itself.
func (f *Facts) damped(now time.Time) bool {
	left := lifecycle.Damped(f.Input.Pod, f.Settings.UnreadyAfter, now)
	if left > 0 {
		f.changeIn(left)
	}
	return left > 0
}

// holdOut takes a pod out that a person holds, for as long as nothing else ends it.
func (f *Facts) holdOut(now time.Time) {
	f.warn(f.hold.Refused, invalid)
	left := f.hold.Left(now)
	if left == 0 || f.Input.Ending != "" {
		return
	}
	f.Input = f.Input.HoldOut(f.hold)
	f.changeIn(left)
}

// former takes a pod out that was detached from its CloneSet, for as long as it has no controller. If the CloneSet itself has gone, or
// selects the pod without owning it, the pod stays, and a person has to know.
func (o *Observer) former(ctx context.Context, f *Facts) error {
	pod, record := f.Input.Pod, f.Input.Record
	if !lifecycle.MayBeDetached(pod) {
		f.Memory.Unadopted = nil
		return nil
	}
	former := clusterstate.Detached
	if !record.Detached {
		now := o.Clock.Now()
		var err error
		former, f.Memory.Unadopted, err = clusterstate.FormerOf(ctx, pod, o.Client, o.APIReader, f.Memory.Unadopted, now)
		if err != nil {
			return err
		}
		if left := reason.Patience - f.Memory.Unadopted.Lasts(now); former == clusterstate.Unadopted && left > 0 {
			f.changeIn(left)
			return nil
		}
	}
	switch {
	case former == clusterstate.Detached:
		f.Input = f.Input.Detach()
		f.Changes = 0
	case record.Exists() && lifecycle.Counts(pod):
		f.Warning = cmp.Or(f.Warning, waiting.Orphaned())
	}
	return nil
}

// pod adds the pod and its workload.
func (o *Observer) pod(ctx context.Context, f *Facts, pod *lifecycle.Pod) (*clusterstate.Workload, error) {
	workload, err := o.workloadOf(ctx, pod)
	if err != nil {
		return nil, err
	}
	owner, settings := workload.ForDecision(), f.Settings
	f.Skip, f.hold, f.traffic = lifecycle.SkipOf(pod, owner), lifecycle.HoldOf(pod, owner), o.trafficOf(pod, owner)
	f.Input = lifecycle.Input{
		Pod: pod, Hooks: lifecycle.HooksOf(owner, settings.Ownership), Record: o.State.Records.Of(pod), Ownership: settings.Ownership,
	}
	f.Rollout, f.Updated = o.State.Panics.Revisions.RolloutOf(workload, pod)
	return workload, nil
}

// awaitOwnWrite waits until the cache shows this process's last write. If it never does, the API server decides: either the write was
// lost with a restored backup, or the cache hangs, which a person has to see.
func (o *Observer) awaitOwnWrite(ctx context.Context, f *Facts, pod *lifecycle.Pod) (look Look, waits bool, err error) {
	behind := clusterstate.Behind(pod.ResourceVersion, f.Memory.Written)
	lasts := f.Memory.BehindFor(behind, o.Clock.Now())
	switch {
	case !behind:
		return Look{}, false, nil
	case lasts < waiting.RolloutPatience:
		return Look{Again: StaleRecheck}, true, nil
	}
	live, err := clusterstate.Live(ctx, o.APIReader, lifecycle.PodIDOf(pod))
	switch {
	case err != nil:
		return Look{}, false, err
	case live != nil && clusterstate.Behind(live.ResourceVersion, f.Memory.Written):
		log.FromContext(ctx).Info("The API server no longer has a change of a pod that it had accepted: it was restored from a backup",
			"namespace", pod.Namespace, "pod", pod.Name, "written", f.Memory.Written, "now", live.ResourceVersion)
		f.Memory.Written = ""
		return Look{}, false, nil
	}
	if _, err := o.pod(ctx, f, pod); err != nil {
		return Look{}, false, err
	}
	return Look{Facts: f, Behind: waiting.CacheBehind(lasts)}, true, nil
}

// uncached is for a pod that is not in the cache: gone, or without the label that the cache selects by. Only its UID tells it from its
// successor.
func (o *Observer) uncached(ctx context.Context, id lifecycle.PodID, f *Facts) (Look, error) {
	last, forgotten := f.Tracked.Uncached()
	switch {
	case forgotten:
		o.Memory.Forget(id.UID)
		return Look{}, nil
	case last == nil:
		return Look{Again: StaleRecheck}, nil // the event is on its way
	}
	f.Uncached = true
	f.Input = lifecycle.Input{Pod: last, Record: lifecycle.RecordOf(last), Ownership: f.Settings.Ownership}
	nothingLeft := f.nothingLeft()
	if nothingLeft && (last.DeletionTimestamp != nil || !f.Settings.Ownership.Holds(last)) {
		return Look{Forget: true}, nil
	}
	live, err := clusterstate.Live(ctx, o.APIReader, id)
	switch {
	case err != nil:
		return Look{}, err
	case live == nil && nothingLeft:
		return Look{Forget: true}, nil
	case live != nil && !lifecycle.Ends(live):
		return Look{Again: waiting.Longest}, nil // no event will say when it is gone
	}
	return o.ends(ctx, f, live)
}

// ends is for a pod that has left the cache, and has entries: it is gone, or it ends.
func (o *Observer) ends(ctx context.Context, f *Facts, live *lifecycle.Pod) (_ Look, err error) {
	f.Memory.Lingers = live != nil
	if f.Memory.Lingers {
		err = o.lingering(ctx, f, live)
	}
	o.targets(f, service.Node{})
	if err := errors.Join(err, o.passedOn(ctx, f)); err != nil {
		return Look{}, err
	}
	return Look{Facts: f}, nil
}

// lingering is for a pod that ends without the cache's label.
func (o *Observer) lingering(ctx context.Context, f *Facts, live *lifecycle.Pod) error {
	f.Input.Pod, f.Input.Record = live, lifecycle.RecordOf(live)
	workload, err := o.workloadOf(ctx, live)
	if err != nil {
		return err
	}
	f.Skip = lifecycle.SkipOf(live, workload.ForDecision())
	f.guard(workload != nil)
	return nil
}

// nothingLeft reports whether no registry has anything of a gone pod. A registry may remember an application's, which can be cleared only
// now.
func (f *Facts) nothingLeft() bool {
	entries := f.Entries(f.Input, nil)
	instances := entries.Instances()
	for _, in := range instances {
		if in.ByApp() || !f.Certain(plan.Row{Target: entries.Target(in), Want: lifecycle.Absent}) {
			return false
		}
	}
	return !f.Memory.Lingers && (len(instances) > 0 || entries.Known.Born())
}

// targets adds where the pod belongs, or what is wrong with its description.
func (o *Observer) targets(f *Facts, node service.Node) {
	pod, settings := f.Input.Pod, f.Settings
	var drainErr error
	f.Drain, drainErr = service.DrainOf(pod.Annotations, settings.Drain)
	if drainErr != nil {
		f.Drain = settings.Drain
	}
	subject := o.State.SubjectOf(pod)
	subject.Node = node
	attributes, attributesErr := settings.Services.AttributesOf(subject)
	sources, sourcesErr := settings.SourcesOf(subject)
	if sourcesErr != nil && len(f.Entries(f.Input, nil).Instances()) == 0 {
		sources = settings.everywhere // nothing tells which of them it is in
	}
	f.Sources = sources
	if sourcesErr != nil {
		f.Sources = settings.everywhere
	}
	attributesErr = errors.Join(attributesErr, sourcesErr)
	if attributesErr == nil {
		attributes, attributesErr = f.traffic.weighed(f, attributes, sources)
	}
	targets, err := f.targetsIn(sources, subject, attributes, o.Clock.Now())
	f.Targets, err = targets, errors.Join(err, drainErr, attributesErr, tooMany(pod))
	refused := o.names(f)
	noAddress, unknown := settings.Services.NoAddress(subject)
	f.AddressUnknown = unknown
	if noAddress != "" {
		f.Targets = nil
	}
	unsteered := refused.Reason != "" && f.dropRefused()
	switch {
	case err != nil:
		f.Problem = invalid(err.Error())
	case noAddress != "":
		f.Problem = waiting.Described(reason.NoAddress, noAddress)
	default:
		f.Problem = refused
	}
	if unsteered {
		f.Unsteered = f.Problem
	}
}

func invalid(why string) waiting.Blocker { return waiting.Described(reason.InvalidPod, why) }

// tooMany is an error, since what of a pod is not read may be what its place depends on.
func tooMany(pod *lifecycle.Pod) error {
	if pod.TooMany == "" {
		return nil
	}
	return errors.New(pod.TooMany)
}

// names reports which service name the pod may not use. Under one that it is registered under it stays, with a Warning.
func (o *Observer) names(f *Facts) waiting.Blocker {
	for _, t := range f.Targets {
		refusal, registered := o.State.Claims.Ask(f.Use(t.Key(), o.Clock.Now()))
		refused := NameRefused(refusal)
		switch {
		case refused.Reason == "":
		case !registered:
			return refused
		default:
			refused.Message += "; the pod stays, since it is registered under that name already"
			f.Warning = refused
			if f.Keeps == nil {
				f.Keeps = map[string]bool{}
			}
			f.Keeps[t.Instance.Service] = true
		}
	}
	return waiting.Blocker{}
}

// NameRefused turns a refusal into what a pod waits for.
func NameRefused(r *clusterstate.Refusal) waiting.Blocker {
	if r == nil {
		return waiting.Blocker{}
	}
	return waiting.Blocker{Reason: r.Reason, Message: r.Message, After: min(r.After, waiting.Longest), Calm: r.Calm}
}

func (f *Facts) guard(hasWorkload bool) {
	ownerGone := !hasWorkload && clusterstate.OwnerOf(f.Input.Pod) != nil
	f.Input.Guard = lifecycle.GuardOf(f.Input.Pod, f.Input.Hooks, f.Settings.Guard, ownerGone)
}

// adoptListed takes a listed entry for an acknowledged Register, in Normal only: if OpenKruise waits, the call is made.
func (o *Observer) adoptListed(f *Facts) {
	pod := f.Input.Pod
	if !lifecycle.Counts(pod) {
		return
	}
	for _, t := range f.Targets {
		if f.Tracked.Adopt(t) {
			o.State.Claims.Acknowledged(lifecycle.PodIDOf(pod), t.Key())
		}
	}
}

// workloadOf returns the pod's workload, or nil. Before one counts as gone the API server is asked, except for pods that are deleted, of
// which there may be many.
func (o *Observer) workloadOf(ctx context.Context, pod *lifecycle.Pod) (*clusterstate.Workload, error) {
	if pod.DeletionTimestamp != nil {
		return clusterstate.WorkloadOf(ctx, pod, o.Client)
	}
	return clusterstate.WorkloadOf(ctx, pod, o.Client, o.APIReader)
}
