package plugin

import (
	"context"
	"io"
	"maps"
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1beta1 "github.com/openkruise/kruise-api/apps/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/bubble"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestSkip: an annotation that no manager reads would skip nothing.
func TestSkip(t *testing.T) {
	t.Parallel()
	type row struct {
		reason, configuration, want, warning, unless string
		renewed                                      time.Duration
		status                                       int
		unknown                                      bool
	}
	bubble.Each(t, map[string]row{
		"a manager leads": {reason: "it reads the annotation", configuration: configText},
		"none leads": {
			reason: "the pod would wait on", configuration: configText, renewed: time.Minute,
			want: "to release the pod without a manager, see https://github.com/rollcall-dev/rollcall/blob/v1.0.0/docs/free-a-pod.md", status: exitNoManager,
		},
		"none leads, and this clock is behind": {
			reason: "the Lease looks held", configuration: configText, renewed: -time.Minute, want: "to release the pod without a manager", status: exitNoManager,
		},
		"its Lease is not found": {
			reason: "it may be in another namespace, and a person must not be kept from the only way out", configuration: configText, unknown: true,
			warning: "warning: can't tell whether a manager leads: namespace system has no Lease rollcall", unless: ", unless it runs with --dry-run",
		},
		"not watched": {
			reason: "the manager that leads does not see the pod", configuration: configText + "namespaces: [pay]",
			want: "namespace prod is not among the namespaces in the configuration", status: exitNotManaged,
		},
	}, func(t *testing.T, c row) {
		pod := scene{
			state: appspub.LifecycleStatePreparingDelete, record: lifecycle.InService, labels: map[string]string{"example.com/delete": "true"},
		}.pod(t)
		cluster, _ := installed(t, c.configuration, pod, theCloneSet(t, cloneSetText), leaseHeld(now.Add(-c.renewed)))
		streams, _, printed, problems := genericiooptions.NewTestIOStreams()
		cluster.IOStreams, cluster.version = streams, "v1.0.0"
		if c.unknown {
			expect.NoError(t, cluster.Delete(t.Context(), leaseHeld(now)))
		}
		if c.renewed == 0 {
			renewing(t, cluster)
		}
		err := cluster.skip(t.Context(), "web-1", true)
		expect.Error(t, c.reason, err, c.want)
		expect.Equal(t, c.status, statusOf(err), "exit status: %s", c.reason)
		if want := "the manager releases preDelete when it next reconciles the pod" + c.unless + "\n"; c.want == "" && !strings.HasSuffix(printed.String(), want) {
			t.Errorf("%s: printed %q, want %q", c.reason, printed, want)
		}
		if got := problems.String(); !strings.HasPrefix(got, c.warning) || c.warning == "" && got != "" {
			t.Errorf("%s: printed %q, want %q", c.reason, got, c.warning)
		}
		expect.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
		if skips := pod.Annotations[lifecycle.AnnotationSkip] == string(lifecycle.PreDelete); skips != (c.want == "") {
			t.Errorf("%s: the pod is annotated: %t", c.reason, skips)
		}
	})
}

// TestSkipReadsAgain: an annotation that is written late would skip another hook, perhaps that of the next update.
func TestSkipReadsAgain(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		// asked is how the pod is while the person is asked.
		asked     func(*corev1.Pod)
		want, err string
		// late is how the pod is once its hook was read again.
		late func(*corev1.Pod)
	}
	const movedOn = "prod/web-1 was not annotated: it has moved on since the question"
	state := func(of appspub.LifecycleStateType) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Labels[appspub.LifecycleStateKey] = string(of) }
	}
	bubble.Each(t, map[string]row{
		"nothing": {reason: "the pod waits on", asked: func(*corev1.Pod) {}, want: "preDelete"},
		"a status": {
			reason: "kubelet writes one now and then", asked: func(*corev1.Pod) {}, want: "preDelete",
			late: func(pod *corev1.Pod) { pod.Status.HostIP = "10.0.0.9" },
		},
		"a release": {
			reason: "the registry has acknowledged just now, and OpenKruise has not moved the pod on", asked: func(*corev1.Pod) {}, err: movedOn,
			late: func(pod *corev1.Pod) { delete(pod.Labels, "example.com/delete") },
		},
		"another label":         {"that changes no hook", func(pod *corev1.Pod) { pod.Labels["team"] = "web" }, "preDelete", "", nil},
		"another hook":          {"the person has not seen it", state(appspub.LifecycleStatePreparingUpdate), "", movedOn, nil},
		"it is back in service": {"the next update would bypass the registry", state(appspub.LifecycleStateNormal), "", movedOn, nil},
		"it waits there again": {"the registry has acknowledged in between", func(pod *corev1.Pod) {
			pod.Annotations[appspub.LifecycleTimestampKey] = now.Add(-time.Second).Format(time.RFC3339)
		}, "", movedOn, nil},
		"another skip": {"both hold", func(pod *corev1.Pod) {
			pod.Annotations[lifecycle.AnnotationSkip] = "inPlaceUpdate"
		}, "inPlaceUpdate,preDelete", "", nil},
		"the same skip": {"once is enough", func(pod *corev1.Pod) {
			pod.Annotations[lifecycle.AnnotationSkip] = "preDelete"
		}, "preDelete", "", nil},
	}, func(t *testing.T, c row) {
		cluster, pod := waitingPod(t, cloneSetText)
		calm, patches := cluster.Client.(client.WithWatch), 0
		cluster.Client = interceptor.NewClient(calm, interceptor.Funcs{
			Patch: func(ctx context.Context, to client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
				if patches++; patches == 1 && c.late != nil {
					expect.NoError(t, calm.Get(ctx, client.ObjectKeyFromObject(pod), pod))
					c.late(pod)
					expect.NoError(t, calm.Update(ctx, pod))
				}
				return to.Patch(ctx, object, patch, opts...)
			},
		})
		cluster.IOStreams = genericiooptions.IOStreams{Out: io.Discard, ErrOut: io.Discard, In: asked(func() {
			expect.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
			c.asked(pod)
			expect.NoError(t, cluster.Update(t.Context(), pod))
		})}
		expect.Error(t, c.reason, cluster.skip(t.Context(), "web-1", false), c.err)
		pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
		expect.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
		if got := pod.Annotations[lifecycle.AnnotationSkip]; got != c.want {
			t.Errorf("%s: the pod has the annotation %q, want %q", c.reason, got, c.want)
		}
	})
}

// TestSkipThatTheManagerRefuses: it says so before it asks.
func TestSkipThatTheManagerRefuses(t *testing.T) {
	t.Parallel()
	bubble.Scenes(t, map[string]func(t *testing.T){"the template has the annotation": func(t *testing.T) {
		cluster, pod := waitingPod(t, strings.Replace(cloneSetText, "metadata: {labels: {app: web",
			`metadata: {annotations: {rollcall.dev/skip: preDelete}, labels: {app: web`, 1))
		cluster.IOStreams = genericiooptions.IOStreams{
			Out: io.Discard, ErrOut: io.Discard, In: asked(func() { t.Error("it asks for what would have no effect") }),
		}
		expect.Error(t, "every pod has it", cluster.skip(t.Context(), "web-1", false),
			"the manager would skip no hook: annotation rollcall.dev/skip is in the workload's template")
		expect.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
		if got, is := pod.Annotations[lifecycle.AnnotationSkip]; is {
			t.Errorf("the pod has the annotation %q", got)
		}
	}})
}

// waitingPod is one that waits at preDelete, of a workload, where a manager leads.
func waitingPod(t *testing.T, workload string) (*cluster, *corev1.Pod) {
	t.Helper()
	pod := scene{
		state: appspub.LifecycleStatePreparingDelete, record: lifecycle.InService, labels: map[string]string{"example.com/delete": "true"},
	}.pod(t)
	cluster, _ := installed(t, configText, pod, theCloneSet(t, workload), leaseHeld(now))
	renewing(t, cluster)
	return cluster, pod
}

// TestHold: a workload that has no pod to spare keeps it, unless a person insists.
func TestHold(t *testing.T) {
	t.Parallel()
	type row struct {
		reason, configuration string
		h                     holding
		neighbourOut, another bool
		annotations           map[string]string
		want, err             string
	}
	until := now.Add(time.Hour).UTC().Format(time.RFC3339)
	bubble.Each(t, map[string]row{
		"one pod": {reason: "the workload can spare it", h: holding{length: time.Hour, because: "heap dump"}, want: until + " heap dump"},
		"while another is out": {
			reason: "maxUnavailable is one of two", h: holding{length: time.Hour}, neighbourOut: true,
			err: "1 of the 2 pods of web are out of rotation or not ready, and its maxUnavailable is 1: wait for them, or use --force",
		},
		"while another workload's is out": {
			reason: "a StatefulSet has the CloneSet's name", h: holding{length: time.Hour}, neighbourOut: true, another: true, want: until,
		},
		"forced":      {reason: "a person insists", h: holding{length: time.Hour, force: true}, neighbourOut: true, want: until},
		"dry run":     {reason: "nothing is written", h: holding{length: time.Hour, dry: true}},
		"for ever":    {reason: "it would be forgotten", h: holding{length: 25 * time.Hour}, err: "--for 25h0m0s: use a time of up to 24h0m0s"},
		"for no time": {reason: "it would have no effect", h: holding{}, err: "--for 0s: use a time"},
		"not watched": {
			reason: "no manager of this installation reads the annotation", h: holding{length: time.Hour}, configuration: "namespaces: [pay]",
			err: "namespace prod is not among the namespaces in the configuration",
		},
		"held already": {reason: "the later one counts", h: holding{length: time.Hour}, annotations: map[string]string{lifecycle.AnnotationHold: "x"}, want: until},
	}, func(t *testing.T, c row) {
		held := scene{state: appspub.LifecycleStateNormal, ready: true, labels: armed, record: lifecycle.InService}.pod(t)
		maps.Copy(held.Annotations, c.annotations)
		neighbour := held.DeepCopy()
		neighbour.Name = "web-2"
		if c.neighbourOut {
			neighbour.Status.Conditions = nil
		}
		objects := []client.Object{held, neighbour, theCloneSet(t, cloneSetText), leaseHeld(now)}
		if c.another {
			neighbour.OwnerReferences[0].UID = "another"
			objects = append(objects, &kruisev1beta1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: held.Namespace, Name: "web", UID: "another"}})
		}
		cluster, _ := installed(t, configText+c.configuration, objects...)
		cluster.IOStreams = genericiooptions.IOStreams{Out: io.Discard, ErrOut: io.Discard}
		expect.Error(t, c.reason, cluster.hold(t.Context(), "web-1", c.h), c.err)
		expect.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(held), held))
		if got := held.Annotations[lifecycle.AnnotationHold]; got != c.want && c.annotations == nil {
			t.Errorf("%s: the pod has %q, want %q", c.reason, got, c.want)
		}
		if c.want == "" {
			return
		}
		expect.NoError(t, cluster.undoHold(t.Context(), "web-1", false))
		held.Annotations = nil
		expect.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(held), held))
		if got, is := held.Annotations[lifecycle.AnnotationHold]; is {
			t.Errorf("the hold was undone, and the pod has %q", got)
		}
		expect.Error(t, "there is none", cluster.undoHold(t.Context(), "web-1", false), "nobody holds it")
	})
}
