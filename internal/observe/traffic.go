package observe

import (
	"errors"
	"fmt"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
)

// What a pod gets of its CloneSet's traffic, by its revision.

// traffic is what [lifecycle.AnnotationTraffic] asks for.
type traffic struct {
	lifecycle.Traffic

	refused error
	// own are the pods of this pod's side, stable or canary, and others those of the other.
	own, others clusterstate.Count
}

func (o *Observer) trafficOf(pod *lifecycle.Pod, workload *lifecycle.Workload) (t traffic) {
	t.Traffic, t.refused = lifecycle.TrafficOf(workload)
	if !t.Shared() {
		return t
	}
	t.own, t.others = o.State.Panics.Revisions.Of(clusterstate.OwnerOf(pod).UID, t.StableRevision())
	if lifecycle.RevisionOf(pod) != t.StableRevision() {
		t.own, t.others = t.others, t.own
	}
	t.own.Serving = max(t.own.Serving, 1) // it may come just now
	return t
}

// weighed returns the attributes with the weight by which the revisions get their shares in the sources.
func (t traffic) weighed(f *Facts, a service.Attributes, sources []lifecycle.Source) (service.Attributes, error) {
	if t.refused != nil || !t.Weighs() {
		return a, t.refused
	}
	for _, s := range sources {
		var why string
		switch {
		case s.ByApp():
			why = "Rollcall does not write the weight of entries that applications write"
		case f.Settings.Weightless[s.Registry]:
			why = "its clients heed no weights"
		default:
			continue
		}
		return a, fmt.Errorf("annotation %s of the CloneSet is %s, and registry %q can't share traffic out: %s; set one share to 100 and the "+
			"other to 0, or remove the annotation", lifecycle.AnnotationTraffic, t, s.Registry, why)
	}
	if a.Weight == 0 {
		return a, errors.New("annotation " + lifecycle.AnnotationTraffic + " of the CloneSet shares traffic out by weights, and the pod has " +
			`none: set the same for all instances of the service, such as weight: "100" in service.metadata`)
	}
	percent, _ := t.ShareOf(f.Input.Pod)
	a.Weight = a.Shared(percent, t.own.Serving, t.others.Serving)
	return a, nil
}

// leaveOut takes a pod out whose revision has no share, once all pods of the other that are ready are in rotation. If there are none, the
// pod stays: no other pod would serve.
func (f *Facts) leaveOut() {
	t := f.traffic
	if !t.Excludes(f.Input.Pod) || f.Input.Ending != "" {
		return
	}
	serves := f.Input.Record.Want == lifecycle.InService && !lifecycle.MustStayOut(f.Input.Pod)
	switch {
	case !serves, t.others.In > 0 && t.others.In == t.others.Serving:
		f.Input = f.Input.LeaveOut(t.Traffic)
	case t.others.Serving == 0:
		f.warn(fmt.Sprintf("annotation %s of the CloneSet is %s, and no pod of the revision that is to have all traffic is ready: the pod "+
			"stays in rotation until one is", lifecycle.AnnotationTraffic, t), invalid)
	}
}
