package controller

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	"go.uber.org/zap/zapcore"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/drain"
	"github.com/rollcall-dev/rollcall/internal/history"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/logged"
)

// history returns the lines that the manager logs while something happens.
func (w *world) history(happens func()) *history.History {
	w.Helper()
	var log bytes.Buffer
	w.lines = history.New(logged.JSON(&log, zapcore.InfoLevel, w.clock.Now))
	w.rebuilt(func(o *Options) { o.History = w.lines })
	happens()
	return history.Read(log.Bytes())
}

// expectHistory expects these lines, each shortened to what is not the same in all: message, hook or endpoint, by.
func (w *world) expectHistory(reason string, h *history.History, want ...string) {
	w.Helper()
	var got []string
	for _, l := range h.Lines() {
		line := strings.Join(strings.Fields(fmt.Sprint(l.Kind, " ", l.Hook, " ", l.Endpoint, " ", l.Writer, " ", l.By)), " ")
		if l.Kind == history.Registered {
			line += " in " + l.State
		}
		if l.Kind == history.Released {
			line += fmt.Sprintf(": %s, %d entries, drain %gs", l.Rotation, len(l.Entries), l.DrainMin)
		}
		got = append(got, line)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		w.Errorf("%s: the lines are\n  %s\nwant\n  %s", reason, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func (w *world) expectFindings(h *history.History, rules ...string) {
	w.Helper()
	var got []string
	for _, f := range h.Findings() {
		got = append(got, f.Rule)
	}
	if fmt.Sprint(got) != fmt.Sprint(rules) {
		w.Errorf("the history shows %q, want %q: %+v", got, rules, h.Findings())
	}
}

// TestHistory_OfALife: each change has one line, and a pod that is looked at again has none.
func TestHistory_OfALife(t *testing.T) {
	t.Parallel()
	w := newWorld(t, draining15s)
	var pod *corev1.Pod
	h := w.history(func() {
		pod = w.servingPod(w.cloneSet("web"), "web-1")
		w.reconcile(pod)
		w.reconcileIn(pod, appspub.LifecycleStatePreparingUpdate)
		w.reconcile(pod)
		w.sleep(15 * time.Second)
		w.reconcile(pod)
		w.reconcileIn(pod, appspub.LifecycleStateUpdating)
		w.reconcileIn(pod, appspub.LifecycleStateUpdated)
		w.reconcileIn(pod, appspub.LifecycleStateNormal)
		w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
		w.sleep(15 * time.Second)
		w.reconcile(pod)
		w.reconcile(pod)
	})
	w.expectHistory("", h,
		"registered 10.0.0.1:8080 in PreparingNormal",
		"released preNormal acknowledgement: in, 1 entries, drain 0s",
		"taken out 10.0.0.1:8080", "drain begun", "drain ended fixed",
		"released inPlaceUpdate acknowledgement: out, 1 entries, drain 15s",
		"registered 10.0.0.1:8080 in Updated",
		"released inPlaceUpdate acknowledgement: in, 1 entries, drain 0s",
		"removed 10.0.0.1:8080", "drain begun", "drain ended fixed",
		"released preDelete acknowledgement: removed, 1 entries, drain 15s",
	)
	w.expectFindings(h)
	for _, l := range h.Lines() {
		if l.Namespace != pod.Namespace || l.Pod.Name != pod.Name || l.UID != string(pod.UID) || l.Workload != "CloneSet/web" {
			t.Errorf("a line is about %+v", l.Pod)
		}
	}
}

// TestHistory_ByTheTable: what the decision table has Rollcall do is nothing that the history finds wrong.
func TestHistory_ByTheTable(t *testing.T) {
	t.Parallel()
	oneKey := func(web *kruisev1alpha1.CloneSet) {
		web.Spec.Lifecycle.PreNormal.LabelsHandler = web.Spec.Lifecycle.InPlaceUpdate.LabelsHandler
	}
	evicted := func(pod *corev1.Pod) { unready(pod); pod.Status.Phase = corev1.PodFailed }
	const removed, released = "removed 10.0.0.1:8080", "released preDelete acknowledgement: removed, 1 entries, drain 0s"
	type row struct {
		reason   string
		workload []func(*kruisev1alpha1.CloneSet)
		happens  func(w *world, pod *corev1.Pod)
		want     []string
	}
	expect.Each(t, map[string]row{
		"evicted by kubelet": {"row 1 releases every hook of a pod that ends", nil, func(w *world, pod *corev1.Pod) {
			w.changePod(pod, evicted)
		}, []string{removed, released}},
		"scaled in, with one key for preNormal and inPlaceUpdate": {
			"row 2 clears preNormal, whichever other hook has the key", []func(*kruisev1alpha1.CloneSet){oneKey},
			func(w *world, pod *corev1.Pod) { w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete) }, []string{removed, released},
		},
	}, func(t *testing.T, tc row) {
		w := newWorld(t)
		pod := w.servingPod(w.cloneSet("web", tc.workload...), "web-1")
		h := w.history(func() {
			tc.happens(w, pod)
			w.reconcile(pod)
		})
		w.expectHistory(tc.reason, h, tc.want...)
		w.expectFindings(h)
	})
}

// TestHistory_ByProceedAfter: the pod is updated while clients are given it, which is shown, and its entry is taken out later.
func TestHistory_ByProceedAfter(t *testing.T) {
	t.Parallel()
	w := newWorld(t, proceeds)
	h := w.history(func() {
		pod := w.servingPod(w.cloneSet("web"), "web-1")
		w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)
		repair := w.registry.Fail(anyCall(), errors.New("down"))
		w.reconcile(pod)
		w.sleep(time.Minute)
		w.restart()
		w.reconcile(pod)
		repair()
		w.sleep(time.Minute)
		w.reconcileIn(pod, appspub.LifecycleStateUpdating, unready)
	})
	w.expectHistory("a person sees who has released it", h,
		"registered 10.0.0.1:8080 in PreparingNormal", "released preNormal acknowledgement: in, 1 entries, drain 0s",
		"released inPlaceUpdate proceedAfter: out, 1 entries, drain 0s", "taken out 10.0.0.1:8080",
	)
	w.expectFindings(h, history.LeftInRotation)
}

// TestHistory_BySkip of a drain: the entry was out.
func TestHistory_BySkip(t *testing.T) {
	t.Parallel()
	w := newWorld(t, draining15s)
	h := w.history(func() {
		pod := w.servingPod(w.cloneSet("web"), "web-1")
		w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
		w.changePod(pod, skips("preDelete"))
		w.reconcile(pod)
	})
	w.expectHistory("", h,
		"registered 10.0.0.1:8080 in PreparingNormal", "released preNormal acknowledgement: in, 1 entries, drain 0s",
		"removed 10.0.0.1:8080", "drain begun", "released preDelete skip: removed, 1 entries, drain 15s",
	)
	w.expectFindings(h)
}

// TestHistory_OfADrain: each drain has one beginning, another manager's has another, and idle is one line.
func TestHistory_OfADrain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, untilIdle)
	a := &answers{w: w}
	h := w.history(func() {
		w.r.visitor.Asker = a
		pod := w.servingPod(w.cloneSet("web"), "web-1")
		w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
		for a.next.Left = range int64(5) {
			w.sleep(10 * time.Second)
			w.reconcile(pod)
		}
		w.restart()
		w.r.visitor.Asker = a
		w.reconcile(pod)
		a.next = drain.Answer{Idle: true}
		w.sleep(time.Second)
		w.reconcile(pod)
		w.reconcile(pod)
		w.expectHooks("", pod, "inPlaceUpdate")
	})
	w.expectHistory("", h,
		"registered 10.0.0.1:8080 in PreparingNormal", "released preNormal acknowledgement: in, 1 entries, drain 0s",
		"removed 10.0.0.1:8080", "drain begun", "removed 10.0.0.1:8080", "drain begun", "drain ended idle",
		"released preDelete acknowledgement: removed, 1 entries, drain 5s",
	)
	w.expectFindings(h)
	if lines := h.Lines(); len(lines) > 6 && (!lines[3].Since.Equal(lines[5].Since) || lines[3].DrainMax != 600 || lines[6].Took != 51) {
		t.Errorf("the drain is %+v, %+v and %+v, want one since the entry was removed, of at most 10 minutes, ended after 51 s",
			lines[3], lines[5], lines[6])
	}
}

// TestHistory_OfAnAppEntryThatPassesOn is reported once.
func TestHistory_OfAnAppEntryThatPassesOn(t *testing.T) {
	t.Parallel()
	w, pod, app := servingApp(t)
	h := w.history(func() {
		w.changePod(pod, func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.9" })
		w.addresses = 0
		w.bornPod(w.cloneSet("web-2"), "web-2", annotated(service.AnnotationServices, "web=8080"))
		for range 3 {
			w.reconcile(pod)
		}
	})
	w.expectApp("it is another pod's by now", app, registry.InService)
	w.expectHistory("nothing was asked", h, "removed 10.0.0.1:8080 app anotherPod")
}
