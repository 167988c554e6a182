package controller

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/podqueue"
)

func TestQueueHasRolloutsFirst(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		state appspub.LifecycleStateType
		dies  bool
		want  int
	}{
		"PreparingNormal": {state: appspub.LifecycleStatePreparingNormal},
		"Normal":          {state: appspub.LifecycleStateNormal},
		"Updating":        {state: appspub.LifecycleStateUpdating},
		"Updated":         {state: appspub.LifecycleStateUpdated},
		"PreparingUpdate": {state: appspub.LifecycleStatePreparingUpdate, want: podqueue.PriorityRollout},
		"PreparingDelete": {state: appspub.LifecycleStatePreparingDelete, want: podqueue.PriorityRollout},
		"being deleted":   {state: appspub.LifecycleStateNormal, dies: true, want: podqueue.PriorityRollout},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			pod := w.pod(w.cloneSet("web"), "web-1", inState(tc.state))
			if tc.dies {
				w.deletePod(pod)
			}
			pod = w.current(pod)
			before := pod.DeepCopy()
			before.ResourceVersion = "1" // the same version on both sides would be a resync, which can wait
			handlers := w.r.podEvents()
			handlers.Create(t.Context(), event.TypedCreateEvent[*corev1.Pod]{Object: pod}, w.queue)
			handlers.Update(t.Context(), event.TypedUpdateEvent[*corev1.Pod]{ObjectOld: before, ObjectNew: pod}, w.queue)
			handlers.Delete(t.Context(), event.TypedDeleteEvent[*corev1.Pod]{Object: pod}, w.queue)
			w.r.enqueueAll(t.Context(), w.queue)

			want := added{Request: lifecycle.PodID{NamespacedName: lifecycle.PodIDOf(pod).NamespacedName, UID: pod.UID}, Priority: tc.want}
			if diff := cmp.Diff([]added{want, want, want, want}, w.queue.take()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

func (w *world) askedFor() []string {
	var names []string
	for _, a := range w.queue.take() {
		names = append(names, a.Request.Name)
	}
	slices.Sort(names)
	return names
}

func TestQueueAfterAWorkloadChanged(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		happen func(w *world, web *kruisev1alpha1.CloneSet)
		want   string
	}{
		"its status changed": {
			reason: "each pod that becomes ready changes it, and nothing follows from it",
			happen: func(w *world, web *kruisev1alpha1.CloneSet) {
				w.r.workloadEvents().Update(w.Context(),
					event.TypedUpdateEvent[client.Object]{ObjectOld: web, ObjectNew: web}, w.queue)
			},
		},
		"its replicas changed": {
			reason: "an autoscaler sets them all day",
			happen: func(w *world, web *kruisev1alpha1.CloneSet) {
				w.changeCloneSet(web, func(web *kruisev1alpha1.CloneSet) { web.Spec.Replicas = ptr.To[int32](40) })
			},
		},
		"its template changed": {
			reason: "its pods may ask for other services",
			happen: func(w *world, web *kruisev1alpha1.CloneSet) {
				w.changeCloneSet(web, func(web *kruisev1alpha1.CloneSet) { web.Spec.Template.Labels["app"] = "shop" })
			},
			want: "web-1 web-2",
		},
		"its hooks changed": {
			reason: "its hooks may be others now",
			happen: func(w *world, web *kruisev1alpha1.CloneSet) {
				w.changeCloneSet(web, func(web *kruisev1alpha1.CloneSet) { web.Spec.Lifecycle = nil })
			},
			want: "web-1 web-2",
		},
		"it is gone": {
			reason: "no workload names its handlers any more",
			happen: func(w *world, web *kruisev1alpha1.CloneSet) { w.deleteCloneSet(web) },
			want:   "web-1 web-2",
		},
		"another has its name": {
			reason: "a watch that was broken for a while shows that as an update",
			happen: func(w *world, web *kruisev1alpha1.CloneSet) {
				heir := web.DeepCopy()
				heir.UID = "heir"
				w.pod(heir, "web-3")
				w.r.workloadEvents().Update(w.Context(),
					event.TypedUpdateEvent[client.Object]{ObjectOld: web, ObjectNew: heir}, w.queue)
			},
			want: "web-1 web-2 web-3",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			web, api := w.cloneSet("web"), w.cloneSet("api")
			w.pod(web, "web-1")
			w.pod(web, "web-2")
			w.pod(api, "api-1")
			tc.happen(w, web)
			if got := strings.Join(w.askedFor(), " "); got != tc.want {
				t.Errorf("looks at %q, want %q\nwhy: %s", got, tc.want, tc.reason)
			}
		})
	}
}

func TestAppliedSettingsBringEveryPodUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		web := w.cloneSet("web")
		w.servingPod(web, "web-1")
		gone := w.servingPod(web, "web-2")
		w.removePod(gone)
		ctx, stop := context.WithCancel(t.Context())
		w.must(podqueue.Signalled(w.r.applied, w.r.enqueueAll).Start(ctx, w.queue), "starting to watch the settings")
		synctest.Wait()
		w.queue.take()

		w.r.Apply(w.built())
		synctest.Wait()
		if diff := cmp.Diff([]string{"web-1", "web-2"}, w.askedFor()); diff != "" {
			t.Errorf("looked at (-want +got):\n%swhy: what departed pods left may be undone at once with other credentials", diff)
		}

		stop()
		synctest.Wait()
		w.r.Apply(w.built())
		w.r.Apply(w.built())
		synctest.Wait()
		if got := w.askedFor(); len(got) > 0 {
			t.Errorf("looks at %v after the end", got)
		}
	})
}
