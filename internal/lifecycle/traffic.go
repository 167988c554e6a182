package lifecycle

import (
	"fmt"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
)

// AnnotationTraffic is, on a CloneSet, how its two revisions share the traffic, in percent: "stable=80,canary=20".
const AnnotationTraffic = "rollcall.dev/traffic"

const trafficHelp = `set both shares in whole percent, 100 together, such as "stable=80,canary=20", or remove the annotation`

// Revisions are the names of a CloneSet's revisions, by its status.
type Revisions struct{ Current, Update string }

// Rollout is how far the update of a CloneSet is.
type Rollout struct {
	Workload types.UID
	// Revision is the newer one, and Rolling reports that OpenKruise has not finished updating to it.
	Revision string
	Rolling  bool
	// In of its pods are in rotation, of ToUpdate that are to be updated.
	In, ToUpdate int
}

// Done reports whether all pods that are to be updated are in rotation.
func (r Rollout) Done() bool { return r.ToUpdate > 0 && r.In >= r.ToUpdate }

// Traffic is a parsed [AnnotationTraffic]. The zero value shares nothing out.
type Traffic struct {
	Stable, Canary int
	// current is the stable revision, by [ShortRevision].
	current string
}

// TrafficOf reads the annotation. Traffic is zero without it, and if nothing is to be shared out: before OpenKruise has counted
// the pods, and if all is to go to a canary that there is not, which is the stable revision since its update was completed. A canary of
// which the update was rolled back is still one. The workload may be nil.
func TrafficOf(w *Workload) (Traffic, error) {
	if w == nil {
		return Traffic{}, nil
	}
	text, found, err := Written(w.Annotations, AnnotationTraffic)
	if !found || err != nil {
		return Traffic{}, err
	}
	if w.Revisions == nil {
		return Traffic{}, fmt.Errorf("annotation %s is read on CloneSets only: remove it from the workload", AnnotationTraffic)
	}
	t, ok := parseTraffic(text)
	t.current = ShortRevision(w.Revisions.Current)
	if !ok || t.Stable+t.Canary != 100 {
		return Traffic{}, fmt.Errorf("annotation %s of the CloneSet is %.60q: %s", AnnotationTraffic, text, trafficHelp)
	}
	if t.current == "" || t.Stable == 0 && t.current == ShortRevision(w.Revisions.Update) {
		return Traffic{}, nil
	}
	return t, nil
}

// LeftOverTraffic explains an annotation that gives all traffic to a canary while there is none, which an earlier update needed; empty if
// there is another annotation, or none. The first pod of the next update would get all requests.
func LeftOverTraffic(w *Workload) string {
	if w == nil || w.Revisions == nil || ShortRevision(w.Revisions.Current) != ShortRevision(w.Revisions.Update) {
		return ""
	}
	text, _, err := Written(w.Annotations, AnnotationTraffic)
	t, ok := parseTraffic(text)
	if err != nil || !ok || t.Stable > 0 || t.Canary != 100 {
		return ""
	}
	return fmt.Sprintf("annotation %s of the CloneSet is %s, and no update is in progress: it has no effect now, but the next update would "+
		"send all requests to its first pod: remove it, or set stable=100,canary=0", AnnotationTraffic, t)
}

func parseTraffic(text string) (t Traffic, ok bool) {
	t.Stable, t.Canary = -1, -1
	shares := map[string]*int{"stable": &t.Stable, "canary": &t.Canary}
	for part := range strings.SplitSeq(text, ",") {
		name, percent, _ := strings.Cut(strings.TrimSpace(part), "=")
		share, err := strconv.ParseUint(percent, 10, 7)
		to := shares[name]
		if err != nil || to == nil || *to >= 0 {
			return t, false
		}
		*to = int(share)
	}
	return t, t.Stable >= 0 && t.Canary >= 0
}

// String is the annotation.
func (t Traffic) String() string { return fmt.Sprintf("stable=%d,canary=%d", t.Stable, t.Canary) }

// Shared reports whether shares apply.
func (t Traffic) Shared() bool { return t != Traffic{} }

// Weighs reports whether both revisions have a share, which takes weights.
func (t Traffic) Weighs() bool { return t.Stable > 0 && t.Canary > 0 }

// StableRevision is that of the stable pods, by [RevisionOf]. All other pods are the canary's.
func (t Traffic) StableRevision() string { return t.current }

// ShareOf is the share of the pod's revision, and its name in the annotation.
func (t Traffic) ShareOf(pod *Pod) (percent int, name string) {
	if RevisionOf(pod) == t.current {
		return t.Stable, "stable"
	}
	return t.Canary, "canary"
}

// Excludes reports whether the pod's revision has no share.
func (t Traffic) Excludes(pod *Pod) bool {
	percent, _ := t.ShareOf(pod)
	return t.Shared() && percent == 0
}

// RevisionOf is the pod's revision, by [ShortRevision].
func RevisionOf(pod *Pod) string {
	return ShortRevision(pod.Labels[appsv1.ControllerRevisionHashLabelKey])
}

// ShortRevision is the hash at the end of a revision's name. Depending on a feature gate, OpenKruise labels pods with one or the other.
func ShortRevision(name string) string { return name[strings.LastIndex(name, "-")+1:] }

// LeaveOut returns the input of a pod whose revision has no share: it is out of rotation like one that a person holds.
func (in Input) LeaveOut(t Traffic) Input {
	_, revision := t.ShareOf(in.Pod)
	in.HeldOut, in.WithoutShare = true, true
	in.Ending = fmt.Sprintf("the pod's revision, %s, has no share of the traffic: annotation %s of its CloneSet is %s", revision,
		AnnotationTraffic, t)
	return in
}

// InTraffic reports whether the pod is in rotation or about to be, as far as its record and its state show. One that leaves is not.
func (in Input) InTraffic() bool {
	if Ends(in.Pod) || MustStayOut(in.Pod) || State(in.Pod) == "" || in.Ending != "" && !in.WithoutShare {
		return false
	}
	in.Ending = ""
	return in.Ready() || in.Record.Want == InService
}
