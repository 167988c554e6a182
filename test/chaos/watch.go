package main

import (
	"strconv"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/history"
)

// podWatch writes every version of every pod of the workloads into the journal. Where the API server was away, versions
// may be missing; what comes after such a gap is marked.
type podWatch struct {
	journal   *journal
	workloads []*workload
}

func (p *podWatch) saw(v history.Version[*corev1.Pod]) {
	pod := v.Object
	w := workloadOf(p.workloads, pod)
	version, err := strconv.ParseUint(pod.ResourceVersion, 10, 64)
	if w == nil || err != nil {
		return
	}
	p.journal.saw(string(pod.UID), podName{pod.Namespace, pod.Name}, w, sighting{
		at: time.Now(), version: version, gone: v.Gone, gap: v.Gap,
		state: pod.Labels[appspub.LifecycleStateKey], stamp: pod.Annotations[appspub.LifecycleTimestampKey],
		ready: lifecycle.IsReady(pod), deleting: pod.DeletionTimestamp != nil, held: len(pod.Finalizers) > 0, set: w.setOn(pod),
		address: pod.Status.PodIP, image: pod.Spec.Containers[0].Image, record: pod.Annotations[recordAnnotation],
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
