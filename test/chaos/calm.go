package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/checker"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
	"github.com/rollcall-dev/rollcall/test/harness/wait"
)

const (
	// repairWithin is one resync period, and what its run takes on a busy machine.
	repairWithin = resyncInterval + 7*time.Second
	// moveWithin is how long a pod may stand still that is on its way somewhere: the longest back-off, and a resync.
	moveWithin = 45 * time.Second
	// leadWithin is how long no manager may lead, and backWithin the API server and our watch may be away: longer than a
	// lease, which a manager that was killed leaves behind.
	leadWithin = time.Minute
	backWithin = time.Minute
	// settleWithin bounds a whole calm.
	settleWithin = 3 * time.Minute
	calmPoll     = 250 * time.Millisecond
	// quietFor is how long everything must have been right.
	quietFor = time.Second
	// nudgeEvery is how often KWOK is reminded of a pod that it owes something.
	nudgeEvery = 5 * time.Second
	// annotationNudge means nothing to anybody.
	annotationNudge = "chaos.rollcall.dev/nudge"
)

// grievance is something that is not as it should be in the end.
type grievance struct {
	kind grievanceKind
	uid  string
	text string
	// within is how long it may stay so: from when a manager led, or whether one leads or not.
	within  time.Duration
	leading bool
}

// grievanceKind is a word of the last line.
type grievanceKind string

const (
	early  grievanceKind = "early flip"
	lost   grievanceKind = "lost"
	leaked grievanceKind = "leaked"
	stuck  grievanceKind = "stuck"
	wrong  grievanceKind = "wrong"
)

// calm waits until the registry equals the cluster and no pod is on its way, and reports what does not become so in time.
func (g *game) calm(ctx context.Context) error {
	g.say("calm: every fault has stopped")
	c := newLull(time.Now())
	for ctx.Err() == nil && !g.report.failed() {
		grievances, err := g.grievances(ctx)
		c.look(grievances, err, g.managers.leader(), time.Now())
		if c.over() {
			behind, err := g.behind(ctx)
			c.look(behind, err, g.managers.leader(), time.Now())
		}
		if c.over() {
			g.say("calm: all is well after %s, %s after a manager led",
				c.wrong.Sub(c.began).Round(time.Second), max(0, c.wrong.Sub(c.led)).Round(time.Second))
			return nil
		}
		overdue := c.overdue()
		for i := range overdue {
			overdue[i].text += g.said(ctx, overdue[i].uid)
		}
		g.report.find(overdue)
		wait.Pause(ctx, calmPoll)
	}
	return nil
}

// said is what the Events of a pod say, the last in order.
func (g *game) said(ctx context.Context, uid string) (text string) {
	var events corev1.EventList
	if uid == "" || g.k8s.List(ctx, &events, client.MatchingFields{"involvedObject.uid": uid}) != nil {
		return "" // the complaint counts as it is
	}
	slices.SortFunc(events.Items, func(a, b corev1.Event) int {
		return cmp.Or(a.EventTime.Compare(b.EventTime.Time), a.LastTimestamp.Compare(b.LastTimestamp.Time))
	})
	for _, e := range events.Items {
		text += fmt.Sprintf("\n    Event %s: %s", e.Reason, e.Message)
	}
	return text
}

// lull is what a calm has seen so far.
type lull struct {
	began, now time.Time
	leads      *contender
	led        time.Time // since when it has
	wrong      time.Time // when something was wrong last
	first      map[grievance]time.Time
}

func newLull(now time.Time) *lull {
	return &lull{began: now, now: now, led: now, wrong: now, first: map[grievance]time.Time{}}
}

// look takes in what there is to complain of, or why that is not known: then nothing that was wrong counts as repaired.
func (c *lull) look(all []grievance, err error, leads *contender, now time.Time) {
	if err != nil {
		away := grievance{kind: stuck, text: "the API server is away", within: backWithin}
		all = append(slices.Collect(maps.Keys(c.first)), away)
	}
	if leads == nil {
		all = append(all, grievance{kind: stuck, text: "no manager leads", within: leadWithin})
	}
	if leads == nil || leads != c.leads && c.leads != nil {
		c.led = now
	}
	c.leads, c.now = leads, now
	c.first = since(c.first, all, now)
	if len(all) > 0 {
		c.wrong = now
	}
}

// over reports whether all is well, and no call can still be carried out that would change it.
func (c *lull) over() bool {
	return c.now.Sub(c.wrong) >= quietFor && c.now.Sub(c.began) >= 2*callTimeout
}

// since keeps when each grievance was first seen.
func since(before map[grievance]time.Time, all []grievance, now time.Time) map[grievance]time.Time {
	kept := map[grievance]time.Time{}
	for _, one := range all {
		kept[one] = now
		if at, found := before[one]; found {
			kept[one] = at
		}
	}
	return kept
}

// overdue returns what was not repaired in time, and all that is wrong once the whole calm has lasted too long.
func (c *lull) overdue() []finding {
	var all []finding
	for one, at := range c.first {
		if one.leading && c.led.After(at) {
			at = c.led
		}
		if c.now.Sub(at) >= one.within || c.now.Sub(c.began) > settleWithin {
			all = append(all, finding{
				kind: one.kind, uid: one.uid, text: fmt.Sprintf("%s, for %s", one.text, c.now.Sub(c.first[one]).Round(time.Second)),
			})
		}
	}
	slices.SortFunc(all, func(a, b finding) int { return cmp.Compare(a.text, b.text) })
	return all
}

// behind compares what the watch has shown with the pods that there are: it must not be an old view that equals the registry.
func (g *game) behind(ctx context.Context) ([]grievance, error) {
	pods := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	if err := g.k8s.List(ctx, &pods); err != nil {
		return nil, fmt.Errorf("listing the pods: %w", err)
	}
	var all []grievance
	known := g.journal.Known()
	for i := range pods.Items {
		pod := &pods.Items[i]
		if workloadOf(g.workloads, pod) == nil {
			continue
		}
		version, err := strconv.ParseUint(pod.ResourceVersion, 10, 64)
		if err != nil || known[string(pod.UID)].Version < version {
			all = append(all, grievance{kind: stuck, uid: string(pod.UID), within: backWithin, text: fmt.Sprintf(
				"our watch has not shown pod %s/%s as it is", pod.Namespace, pod.Name)})
		}
		delete(known, string(pod.UID))
	}
	for uid, p := range known {
		all = append(all, grievance{kind: stuck, uid: uid, within: backWithin, text: fmt.Sprintf(
			"our watch has not shown that pod %s/%s is gone", p.Name.Namespace, p.Name.Name)})
	}
	return all, nil
}

// grievances compares the registry with the cluster.
func (g *game) grievances(ctx context.Context) ([]grievance, error) {
	var sets kruisev1alpha1.CloneSetList
	if err := g.k8s.List(ctx, &sets); err != nil {
		return nil, fmt.Errorf("listing the CloneSets: %w", err)
	}
	live := g.journal.Known()
	g.separate(ctx, live)
	g.nudge(ctx, live)
	all := g.registry.grievances(ctx, live)
	g.end(ctx, live, all)
	for i := range sets.Items {
		if why := unsettled(&sets.Items[i], live); why != "" {
			all = append(all, grievance{kind: stuck, text: why, within: settleWithin, leading: true})
		}
	}
	return all, nil
}

// compare returns what is not as it should be, of the pods and of the entries that our cluster has in each registry. What
// pods leave that vanish can't be found in a registry that can't list, and what applications wrote is theirs to remove.
func compare(live map[string]checker.Pod, entries map[string][]registry.Entry) []grievance {
	var all []grievance
	held := map[checker.Key]registry.Entry{}
	for name, those := range entries {
		for _, e := range those {
			k := checker.KeyOf(name, e.Instance)
			held[k] = e
			if name != unlistedRegistry && name != appsBook && !belongs(live, k, e) {
				all = append(all, grievance{kind: leaked, uid: e.UID, within: repairWithin, leading: true, text: fmt.Sprintf(
					"%s of pod %s/%s is %s, and no live pod stands behind it", k, e.Namespace, e.Pod, e.State)})
			}
		}
	}
	for uid, p := range live {
		if p.Ends {
			all = append(all, givenAtItsEnd(p, held)...)
			continue
		}
		if !steady(p) {
			within := moveWithin
			if owedByKWOK(p) {
				within = settleWithin // no manager can do anything
			}
			all = append(all, grievance{kind: stuck, uid: uid, within: within, leading: true, text: fmt.Sprintf(
				"pod %s/%s stands in state %q (ready: %t, being deleted: %t, stamp %s)",
				p.Name.Namespace, p.Name.Name, p.State, p.Ready, p.Deleting, p.Stamp)})
			continue
		}
		all = append(all, missing(p, held)...)
	}
	return all
}

// missing is what clients should be told of a pod that is where it can stay, and are not.
func missing(p checker.Pod, held map[checker.Key]registry.Entry) (all []grievance) {
	for _, k := range p.Keys {
		if held[k].State != registry.InService {
			all = append(all, grievance{kind: lost, uid: p.UID, within: repairWithin, leading: true, text: fmt.Sprintf(
				"pod %s/%s is Normal and ready, and %s is not in service", p.Name.Namespace, p.Name.Name, k)})
		} else if p.Told != nil {
			all = append(all, untrue(p, k, held[k])...)
		}
	}
	return all
}

// untrue is what an entry in service tells clients of its pod that is not so.
func untrue(p checker.Pod, k checker.Key, e registry.Entry) []grievance {
	why := p.Told.Untrue(e.Instance, true)
	if why == "" {
		return nil
	}
	return []grievance{{kind: wrong, uid: p.UID, within: repairWithin + p.Told.WarmUp, leading: true, text: fmt.Sprintf(
		"%s, as %s of pod %s/%s", why, k, p.Name.Namespace, p.Name.Name)}}
}

// givenAtItsEnd are the entries by which clients are given a pod whose end is announced.
func givenAtItsEnd(p checker.Pod, held map[checker.Key]registry.Entry) (all []grievance) {
	for _, k := range p.Keys {
		if held[k].State == registry.InService {
			all = append(all, grievance{kind: wrong, uid: p.UID, within: repairWithin, leading: true, text: fmt.Sprintf(
				"end: pod %s/%s is to end, and %s is in service", p.Name.Namespace, p.Name.Name, k)})
		}
	}
	return all
}

// end deletes the pods whose end was announced, once clients are given none of them for that reason: one that is updated is out anyway.
func (g *game) end(ctx context.Context, live map[string]checker.Pod, all []grievance) {
	for uid, p := range live {
		given := slices.ContainsFunc(all, func(one grievance) bool { return one.uid == uid })
		if p.Ends && !p.Deleting && !given && p.State == string(appspub.LifecycleStateNormal) {
			_ = g.k8s.Delete(ctx, kube.Pod(p.Name.Namespace, p.Name.Name)) // tried again
		}
	}
}

// belongs reports whether a live pod stands behind an entry. Where it departs from, a pod that is out may stay out of service for as long
// as it is out.
func belongs(live map[string]checker.Pod, k checker.Key, e registry.Entry) bool {
	p, found := live[e.UID]
	departs := !steady(p) && e.Address == p.Address && e.State == registry.OutOfService
	return found && (departs || slices.Contains(p.Keys, k))
}

// steady reports whether the pod is where it can stay.
func steady(p checker.Pod) bool {
	return p.State == string(appspub.LifecycleStateNormal) && p.Ready && !p.Deleting
}

// unsettled says what the CloneSet still has to do, or nothing.
func unsettled(set *kruisev1alpha1.CloneSet, live map[string]checker.Pod) string {
	pods := int32(0)
	for _, p := range live {
		if p.Workload == set.Namespace+"/"+set.Name {
			pods++
		}
	}
	want, has := *set.Spec.Replicas, set.Status
	if set.Status.ObservedGeneration == set.Generation && pods == want && has.Replicas == want &&
		has.UpdatedReadyReplicas == want && has.ReadyReplicas == want {
		return ""
	}
	return fmt.Sprintf("CloneSet %s wants %d pods: there are %d, %d ready, %d updated and ready",
		set.Name, want, pods, has.ReadyReplicas, has.UpdatedReadyReplicas)
}

// separate deletes a pod that was given the address of another live one, which no network does: KWOK now and then does
// after the API server was away.
func (g *game) separate(ctx context.Context, live map[string]checker.Pod) {
	holders := map[string]string{}
	for _, uid := range slices.Sorted(maps.Keys(live)) {
		p := live[uid]
		if p.Address == "" || p.Deleting {
			continue
		}
		if _, taken := holders[p.Address]; !taken {
			holders[p.Address] = uid
			continue
		}
		g.out.printf("KWOK gave address %s to two pods: deleting %s", p.Address, p.Name.Name)
		_ = g.k8s.Delete(ctx, kube.Pod(p.Name.Namespace, p.Name.Name))
	}
}

// owedByKWOK reports whether KWOK has to remove the pod or make it ready. A pod whose hook is to be released waits for a
// manager.
func owedByKWOK(p checker.Pod) bool {
	if p.Deleting {
		return !p.Held
	}
	if p.Ends {
		return false
	}
	switch appspub.LifecycleStateType(p.State) {
	case appspub.LifecycleStatePreparingUpdate, appspub.LifecycleStatePreparingDelete:
		return false
	default:
		return !p.Ready
	}
}

// nudge touches pods for which KWOK has something to do: unlike a kubelet it does not try again what failed because the API
// server went away, until the pod changes. Pods that wait for a manager are not touched, so that nothing is hidden that a
// manager has missed.
func (g *game) nudge(ctx context.Context, live map[string]checker.Pod) {
	now := time.Now()
	for _, p := range live {
		if !owedByKWOK(p) || now.Sub(p.At) < nudgeEvery {
			continue
		}
		patch := kube.Merge(`{"metadata":{"annotations":{%q:%q}}}`, annotationNudge, now.Format(time.RFC3339))
		_ = g.k8s.Patch(ctx, kube.Pod(p.Name.Namespace, p.Name.Name), patch) // tried again
	}
}
