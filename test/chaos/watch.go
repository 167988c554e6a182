package main

import (
	"strconv"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/test/harness/checker"
	"github.com/rollcall-dev/rollcall/test/harness/history"
)

// saw writes a version of a pod of the workloads into the journal. Where the API server was away, versions may be missing; what
// comes after such a gap is marked.
func (g *game) saw(v history.Version[*corev1.Pod]) {
	pod := v.Object
	w := workloadOf(g.workloads, pod)
	version, err := strconv.ParseUint(pod.ResourceVersion, 10, 64)
	if w == nil || err != nil {
		return
	}
	g.registry.plays(pod, v.Gone)
	g.moving.Lock()
	defer g.moving.Unlock()
	uid, ends := string(pod.UID), checker.IsToEnd(pod)
	g.follows[uid] = pod.Annotations[registriesAnnotation] == ""
	if g.networkless[uid] = pod.Status.PodIP; v.Gone || pod.Annotations[networksAnnotation] != "" || w.says["rollcall.dev/address"] == "" {
		delete(g.networkless, uid)
	}
	written, drain := g.registry.written(g.usual), checker.DrainOf(pod, g.journal.Drain)
	var told *checker.Attributes
	if !registersItself(pod) && written.Metadata != nil {
		told = written.Attributes(pod)
	}
	g.journal.Saw(uid, client.ObjectKeyFromObject(pod), w.hooks, checker.Sighting{
		At: time.Now(), Version: version, Gone: v.Gone, Gap: v.Gap, Workload: w.id(),
		State: pod.Labels[appspub.LifecycleStateKey], Stamp: pod.Annotations[appspub.LifecycleTimestampKey],
		Ready: checker.IsReady(pod) && !ends, Ends: ends, Deleting: pod.DeletionTimestamp != nil, Held: len(pod.Finalizers) > 0,
		Set:  checker.SetOn(w.hooks, pod),
		Keys: written.Keys(pod), Address: written.Address(pod), Image: pod.Spec.Containers[0].Image,
		Record: pod.Annotations[recordAnnotation], Told: told, Drain: &drain,
	})
}

// workloadOf returns the one that a pod belongs to, or nil.
func workloadOf(all []*workload, pod client.Object) *workload {
	for _, w := range all {
		if w.namespace == pod.GetNamespace() && w.name == pod.GetLabels()[appLabel] {
			return w
		}
	}
	return nil
}
