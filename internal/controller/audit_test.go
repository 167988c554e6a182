package controller

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/audit"
	"github.com/rollcall-dev/rollcall/internal/receipt"
)

// audits returns the lines of a kind that the manager writes down while something happens, and what a receipt finds wrong.
func (w *world) audits(kind receipt.Kind, happens func()) (of []receipt.Line, faults []receipt.Fault) {
	w.Helper()
	path := filepath.Join(w.TempDir(), "audit.jsonl")
	log, err := audit.Open(audit.Options{Path: path, MaxSize: 1 << 20, Failed: func(_ int, err error) { w.Error(err) }})
	w.must(err, "opening the audit log")
	w.rebuilt(func(o *Options) { o.Audit = log })
	happens()
	w.must(log.Close(w.Context(), true), "closing the audit log")
	written, err := os.ReadFile(path)
	w.must(err, "reading the audit log")
	lines, err := receipt.Read(written)
	w.must(err, "reading its lines")
	for _, l := range lines {
		if l.Kind == kind {
			of = append(of, l)
		}
	}
	return of, receipt.NewHistory(lines, time.Time{}).Faults()
}

// TestFlipsByTheTablePass has the receipt of each pass that the manager makes by the decision table.
func TestFlipsByTheTablePass(t *testing.T) {
	t.Parallel()
	oneKey := func(web *kruisev1alpha1.CloneSet) {
		web.Spec.Lifecycle.PreNormal.LabelsHandler = web.Spec.Lifecycle.InPlaceUpdate.LabelsHandler
	}
	ends := func(phase corev1.PodPhase) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { unready(pod); pod.Status.Phase = phase }
	}
	for name, tc := range map[string]struct {
		reason   string
		workload []func(*kruisev1alpha1.CloneSet)
		happens  func(w *world, pod *corev1.Pod)
	}{
		"evicted by kubelet": {"row 1 releases every hook of a pod that ends", nil, func(w *world, pod *corev1.Pod) {
			w.changePod(pod, ends(corev1.PodFailed))
		}},
		"ended by itself": {"row 1 is for a pod that has succeeded too", nil, func(w *world, pod *corev1.Pod) {
			w.changePod(pod, ends(corev1.PodSucceeded))
		}},
		"evicted while it is updated": {"row 1 comes before row 4", nil, func(w *world, pod *corev1.Pod) {
			w.kruiseMoves(pod, appspub.LifecycleStateUpdating, ends(corev1.PodFailed))
		}},
		"scaled in, with one key for preNormal and inPlaceUpdate": {
			"row 2 clears preNormal, whichever other hook has the key", []func(*kruisev1alpha1.CloneSet){oneKey},
			func(w *world, pod *corev1.Pod) { w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			pod := w.servingPod(w.cloneSet("web", tc.workload...), "web-1")
			flips, faults := w.audits(receipt.Flip, func() {
				tc.happens(w, pod)
				w.reconcile(pod)
			})
			w.expectAbsent(pod)
			if len(flips) == 0 || len(faults) > 0 {
				t.Errorf("%s; the receipt has %d flips and finds %+v, want a flip and no fault", tc.reason, len(flips), faults)
			}
		})
	}
}
