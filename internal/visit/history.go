package visit

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/internal/drain"
	"github.com/rollcall-dev/rollcall/internal/history"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/internal/tracker"
)

// inHistory is the pod as lines of its history have it.
func (m *moment) inHistory() history.Pod {
	pod := m.pod()
	line := history.Pod{
		Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Revision: pod.Labels[appsv1.ControllerRevisionHashLabelKey],
	}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		line.Workload = owner.Kind + "/" + owner.Name
	}
	return line
}

func entryInHistory(t tracker.Target) history.Entry {
	line := history.Entry{Registry: t.Registry, Service: t.Instance.Service, Endpoint: t.Instance.Endpoint()}
	if t.Key().ByApp() {
		line.Writer = history.App
	}
	return line
}

// changed writes what the registry has acknowledged. Of an entry that was in rotation before, only weight and metadata have changed, which
// a pod that warms up does again and again.
func (e *entry) changed(stood bool, took time.Duration) {
	pod, line := e.inHistory(), entryInHistory(e.Target)
	switch {
	case e.Want == lifecycle.OutOfService:
		e.History.TakenOut(pod, line, took)
	case e.Want == lifecycle.Absent:
		e.History.Removed(pod, line, "", took)
	case !stood:
		e.History.Registered(pod, line, string(lifecycle.State(e.pod())), took)
	}
}

// released writes that OpenKruise waits no more for the hook of a decision, whose rows were brought to rest for it.
func (v *visit) released(d lifecycle.Decision, why plan.Excuse, waited time.Duration) {
	r := history.Release{
		Hook: string(d.Waiting), State: string(lifecycle.State(v.pod())),
		By: map[plan.Excuse]string{
			plan.Acknowledged: history.ByAcknowledgement, plan.Skipped: history.BySkip, plan.Proceeded: history.ByProceedAfter,
		}[why],
		Rotation: map[lifecycle.Want]string{
			lifecycle.InService: history.In, lifecycle.OutOfService: history.Out, lifecycle.Absent: history.Gone,
		}[d.Want],
	}
	if lifecycle.AtAHook(v.pod()) { // else OpenKruise has not moved it
		r.Waited = waited
	}
	if d.Row.Drains() {
		r.Drain = v.facts.Drain.Min
	}
	for _, row := range v.rows.All() {
		asked := row.Proof != plan.Never && row.Proof != plan.Lost
		if in := row.Want == lifecycle.InService; in == (d.Want == lifecycle.InService) && (in || asked) {
			r.Entries = append(r.Entries, entryInHistory(row.Target))
		}
	}
	v.History.Released(v.inHistory(), r)
}

// drainBegins writes, once for each drain, that a hook waits for it. A drain that another manager has begun is written again.
func (v *visit) drainBegins(w plan.Write, d plan.Drain) {
	if w.Drains && v.decision.Waiting != "" && !v.facts.Memory.Drain.Equal(d.Out) {
		v.facts.Memory.Drain = d.Out
		v.History.DrainBegun(v.inHistory(), d.Out, d.Min, d.Max)
	}
}

func (v *visit) drainEnds(by drain.By, d plan.Drain) {
	answer := ""
	if by != drain.ByTime {
		answer = d.Last.String()
	}
	v.History.DrainEnded(v.inHistory(), string(by), answer, v.Clock.Now().Sub(d.Out))
}
