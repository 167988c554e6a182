package observe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/rollcall-dev/rollcall/internal/audit"
	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/memory"
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/internal/waiting"
	"github.com/rollcall-dev/rollcall/registry"
)

// StaleRecheck is for a cache that has not seen our own write yet: the event of that write brings the pod back sooner.
const StaleRecheck = time.Second

// Observer gathers what a visit rests on.
type Observer struct {
	// Client reads from the cache.
	Client client.Client
	// APIReader reads from the API server, where a cache that lags could be mistaken for an object that is gone.
	APIReader client.Reader
	Tracker   *tracker.Tracker
	State     *clusterstate.State
	Memory    *memory.Pods
	// Identity is what each entry is marked with, besides the cluster's name.
	Identity *clusterstate.Identity
	// Audit writes down what receipts are made from. Nil is for no receipts.
	Audit *audit.Log
	Clock clock.PassiveClock
}

// Look is what came of looking at a pod.
type Look struct {
	// Facts are nil where there is nothing to decide.
	Facts *Facts
	// Again is when to look again where there are none, without an event; zero for not.
	Again time.Duration
	// Forget: nothing is left of the pod, or it is none of Rollcall's.
	Forget bool
	// Behind is why nothing may rest on the facts.
	Behind waiting.Blocker
}

// Look gathers what the decision about a pod rests on.
func (o *Observer) Look(ctx context.Context, id lifecycle.PodID, settings *Settings) (Look, error) {
	// Before the cache is read: the tracker notes the departure of a pod that is found in it then.
	tracked := o.Tracker.Open(id)
	f := &Facts{Settings: settings, clusterUID: o.Identity.UID(), Tracked: tracked, Memory: o.Memory.Of(id)}
	pod := &corev1.Pod{}
	err := o.Client.Get(ctx, id.NamespacedName, pod, client.UnsafeDisableDeepCopy) // nothing below changes what it reads
	switch {
	case apierrors.IsNotFound(err), err == nil && pod.UID != id.UID:
		return o.departed(ctx, id, f)
	case err != nil:
		return Look{}, fmt.Errorf("reading the pod: %w", err)
	}
	tracked.Found(lifecycle.AddressOf(pod), lifecycle.OtherAddressesOf(pod))
	if look, waits, err := o.awaitOwnWrite(ctx, f, pod); waits || err != nil {
		return look, err
	}
	if err := o.State.Workloads.Refresh(ctx, &settings.Rules, settings.everywhere, o.Clock.Now()); err != nil {
		return Look{}, err
	}
	workload, err := o.pod(ctx, f, pod)
	if err != nil {
		return Look{}, err
	}
	if !f.managed() {
		return Look{Forget: true}, nil
	}
	if err := o.place(ctx, f); err != nil {
		return Look{}, err
	}
	f.guard(workload != nil)
	tracked.Recall(f.Input.Record.Want, f.Entries(f.Input, f.Targets).OfRecord, o.Clock.Now())
	o.adoptListed(f)
	return Look{Facts: f}, nil
}

// place gathers where the pod runs, where it belongs, and what that means for it.
func (o *Observer) place(ctx context.Context, f *Facts) error {
	pod, now := f.Input.Pod, o.Clock.Now()
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
	f.Input.NodeLost = lifecycle.NodeLost(node)
	if why := lifecycle.UnreadableEnd(pod, node); why != "" && f.Warning.Reason == "" {
		f.Warning = waiting.Blocker{Reason: reason.InvalidEnd, Message: why}
	}
	f.Input.Ending, f.EndChanges = lifecycle.EndOf(pod, node, now).Ending(now, f.Drain)
	// The pod itself is counted as it was just read: so no more than the threshold are ever taken out for being not ready.
	rules := &f.Settings.Rules
	o.State.Panics.Refresh(f.Input, rules)
	f.Panic = o.State.Panics.Of(pod.Namespace, f.Input.Record, rules)
	f.Input.Panic = f.Panic.Service != ""
	return nil
}

// pod reads what the pod itself and its workload show.
func (o *Observer) pod(ctx context.Context, f *Facts, pod *corev1.Pod) (*clusterstate.Workload, error) {
	workload, err := o.workloadOf(ctx, pod)
	if err != nil {
		return nil, err
	}
	owner, settings := workload.ForDecision(), f.Settings
	f.Skip = lifecycle.SkipOf(pod, owner)
	f.Input = lifecycle.Input{
		Pod: pod, Hooks: lifecycle.HooksOf(owner, settings.Ownership), Record: lifecycle.RecordOf(pod), Ownership: settings.Ownership,
		Unready: settings.Unready,
	}
	return workload, nil
}

// awaitOwnWrite waits for the cache to have this process's last write of a pod. If that takes long, the API server is asked. A write
// that it does not have either was lost when its store was restored from a backup, and the cache counts; otherwise the cache does not
// follow the API server, which a person has to see.
func (o *Observer) awaitOwnWrite(ctx context.Context, f *Facts, pod *corev1.Pod) (look Look, waits bool, err error) {
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
	return Look{Facts: f, Behind: waiting.Blocker{Reason: reason.CacheBehind, After: waiting.Longest, Message: fmt.Sprintf(
		"the manager's cache has not shown the manager's own last change of the pod for %s, and the API server is ahead of it: if this "+
			"stays, restart the manager", lasts.Round(time.Second))}}, true, nil
}

// departed gathers what it takes to undo what is left of a pod that is no longer in the cache: the pod as it was last
// seen, or as it is where it lingers without the label that the cache selects by. It knows the pod by its UID: another may have
// its name and its address by now.
func (o *Observer) departed(ctx context.Context, id lifecycle.PodID, f *Facts) (Look, error) {
	last := f.Tracked.Departed()
	if last == nil {
		return o.unknown(id, f), nil
	}
	f.Departed = true
	f.Input = lifecycle.Input{Pod: last, Record: lifecycle.RecordOf(last), Ownership: f.Settings.Ownership}
	nothingLeft := f.nothingLeft()
	if nothingLeft && (last.DeletionTimestamp != nil || !f.Input.HasFinalizer()) {
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
	if f.Memory.Lingers = live != nil; f.Memory.Lingers {
		err = o.lingering(ctx, f, live)
	}
	o.targets(f, service.Node{})
	if err := errors.Join(err, o.passedOn(ctx, f)); err != nil {
		return Look{}, err
	}
	return Look{Facts: f}, nil
}

// unknown is for a pod that the cache does not have, and of which no event has said yet that it is gone.
func (o *Observer) unknown(id lifecycle.PodID, f *Facts) Look {
	if !f.Tracked.CloseUnlessFound() {
		return Look{Again: StaleRecheck} // the event is on its way
	}
	AuditGone(o.Audit, o.Memory.Forget(id.UID))
	return Look{}
}

// lingering gathers what holds a pod that ends and that the cache does not select.
func (o *Observer) lingering(ctx context.Context, f *Facts, live *corev1.Pod) error {
	f.Input.Pod, f.Input.Record = live, lifecycle.RecordOf(live)
	workload, err := o.workloadOf(ctx, live)
	if err != nil {
		return err
	}
	f.Skip = lifecycle.SkipOf(live, workload.ForDecision())
	f.guard(workload != nil)
	return nil
}

// nothingLeft reports whether a registry has nothing of a pod that is gone: all of its instances are known to be absent, or it never had
// any. What a registry remembers of its application can be cleared only now. One that was not being deleted when it was last seen may have
// lost the label alone, and be held by a finalizer of Rollcall's once it is deleted.
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

// targets says which instances the pod has in which registries, or what is wrong with how it is described.
func (o *Observer) targets(f *Facts, node service.Node) {
	pod, settings := f.Input.Pod, f.Settings
	var drainErr error
	if f.Drain, drainErr = service.DrainOf(pod.Annotations, settings.Drain); drainErr != nil {
		f.Drain = settings.Drain
	}
	subject := service.SubjectOf(pod)
	subject.Node = node
	endpoints, err := settings.Services.EndpointsOf(subject)
	attributes, attributesErr := settings.Services.AttributesOf(subject)
	sources, sourcesErr := settings.sourcesOf(pod.Annotations)
	if sourcesErr != nil && len(f.Entries(f.Input, nil).Instances()) == 0 {
		sources = settings.everywhere // nothing tells which of them it is in
	}
	if f.Sources = sources; sourcesErr != nil {
		f.Sources = settings.everywhere
	}
	err = errors.Join(err, drainErr, attributesErr, sourcesErr)
	refused := o.names(f, endpoints)
	if pod.Status.PodIP != "" {
		f.Targets = slices.DeleteFunc(f.targetsIn(sources, endpoints, attributes), func(t tracker.Target) bool {
			apps := t.Key().ByApp() || f.Tracked.Foreign(t.Key())
			// To take out for good what its application registered, a pod needs no right to the name, and gets none.
			drops := refused.Reason != "" && !(apps && lifecycle.Leaves(pod))
			f.Unsteered = f.Unsteered || drops && apps
			return drops
		})
	}
	switch {
	case err != nil:
		f.Problem = waiting.Blocker{Reason: reason.InvalidPod, Message: err.Error()}
	case pod.Status.PodIP == "":
		f.Problem = waiting.Blocker{Reason: reason.NoAddress, Message: "the pod has no IP yet"}
	case refused.Reason != "":
		f.Problem = refused
	}
}

// names says why the pod may not use one of its service names. A name that it is registered under stays its own, and
// only the warning is shown.
func (o *Observer) names(f *Facts, endpoints []service.Endpoint) waiting.Blocker {
	f.Keeps = map[string]bool{}
	for _, e := range endpoints {
		refusal, registered := o.State.Claims.Ask(f.Use(e.Service, o.Clock.Now()))
		refused := NameRefused(refusal)
		switch {
		case refused.Reason == "":
		case !registered:
			return refused
		default:
			refused.Message += "; the pod stays, since it is registered under that name already"
			f.Warning, f.Keeps[e.Service] = refused, true
		}
	}
	return waiting.Blocker{}
}

// NameRefused is why the pod may not use a service name.
func NameRefused(r *clusterstate.Refusal) waiting.Blocker {
	if r == nil {
		return waiting.Blocker{}
	}
	return waiting.Blocker{Reason: r.Reason, Message: r.Message, After: min(r.After, waiting.Longest)}
}

func (f *Facts) guard(hasWorkload bool) {
	ownerGone := !hasWorkload && clusterstate.OwnerOf(f.Input.Pod) != nil
	f.Input.Guard = lifecycle.GuardOf(f.Input.Pod, f.Input.Hooks, f.Settings.Guard, ownerGone)
}

// passedOn says which entries belong to the applications of other pods by now. Those of the host's network share an address,
// where this one has its targets, or all that it ever had while its description does not tell.
func (o *Observer) passedOn(ctx context.Context, f *Facts) error {
	if !f.Settings.steers() {
		return nil
	}
	f.PassedOn = map[lifecycle.Key]bool{}
	entries := f.Entries(f.Input, f.Targets)
	instances := entries.Instances()
	for _, t := range f.Targets {
		instances = append(instances, t.Key())
	}
	for _, in := range instances {
		if _, asked := f.PassedOn[in]; asked || !in.ByApp() || entries.Has(in) && (entries.IsTarget(in) || entries.Undescribed) {
			continue
		}
		var err error
		if f.PassedOn[in], err = clusterstate.AnotherHas(ctx, o.Client, f.Settings.Services, in, f.Input.Pod.UID); err != nil {
			return err
		}
	}
	return nil
}

// adoptListed takes what is listed in service for an acknowledgement of Register, only in Normal, where no hook hangs on
// it: a pod that OpenKruise waits for costs the call.
func (o *Observer) adoptListed(f *Facts) {
	pod := f.Input.Pod
	if !lifecycle.Counts(pod) {
		return
	}
	for _, t := range f.Targets {
		if f.Tracked.Adopt(t) {
			o.State.Claims.Acknowledged(lifecycle.PodIDOf(pod), t.Key())
			f.AuditTold(o.Audit, f.Input, t, registry.InService, f.Tracked.Standing(t.Key()).AcknowledgedAt())
		}
	}
}

// workloadOf returns the workload that owns the pod, or nil. The cache may not have seen a new one yet, and a workload
// that is taken for gone has its handlers released, so the API server is asked before that. Nothing hangs on it for a pod
// that is being deleted, and there may be many at once.
func (o *Observer) workloadOf(ctx context.Context, pod *corev1.Pod) (*clusterstate.Workload, error) {
	if pod.DeletionTimestamp != nil {
		return clusterstate.WorkloadOf(ctx, pod, o.Client)
	}
	return clusterstate.WorkloadOf(ctx, pod, o.Client, o.APIReader)
}
