package observe

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appspub "github.com/openkruise/kruise-api/apps/pub"

	"github.com/rollcall-dev/rollcall/internal/audit"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/memory"
	"github.com/rollcall-dev/rollcall/internal/receipt"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
)

// Line describes the pod for the audit log.
func (f *Facts) Line(in lifecycle.Input, targets []tracker.Target) receipt.Line {
	pod := in.Pod
	line := receipt.Line{
		Entry: podEntry(lifecycle.PodIDOf(pod)), Seconds: f.Drain.Max.Seconds(),
		Revision: pod.Labels[appsv1.ControllerRevisionHashLabelKey], State: pod.Labels[appspub.LifecycleStateKey],
		Ready: in.Ready(), Deleting: lifecycle.Ends(pod) || f.Gone(),
	}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		line.Workload = owner.Name
	}
	if moved, err := lifecycle.MovedAt(pod); err == nil {
		line.Since = moved
	}
	for _, t := range targets {
		line.Instances = append(line.Instances, receipt.EntryOf(t.Registry, t.Instance).By(string(t.Writer)))
	}
	return line
}

func podEntry(id lifecycle.PodID) receipt.Entry {
	return receipt.Entry{Namespace: id.Namespace, Pod: id.Name, UID: string(id.UID)}
}

// AuditTold logs what a registry said of an instance, as far as it may count as an acknowledgement.
func (f *Facts) AuditTold(log *audit.Log, in lifecycle.Input, of tracker.Target, state registry.State, asked time.Time) {
	if log == nil {
		return
	}
	if state == registry.Foreign { // it has no entry that Rollcall has written
		state = registry.Absent
	}
	line := f.Line(in, nil)
	line.Kind, line.Entry = receipt.Told, receipt.EntryOf(of.Registry, of.Instance).By(string(of.Writer))
	line.Says, line.Asked = string(state), asked
	log.Write(line)
}

// AuditGone logs that a gone pod waits no longer.
func AuditGone(log *audit.Log, n *memory.Pod) {
	if n != nil && n.Shown().Hook != "" {
		log.Write(receipt.Line{Kind: receipt.Waits, Deleting: true, Entry: podEntry(n.Pod)})
	}
}
