package plugin

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/test/harness/bubble"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestConfigurationOfANewerManager: the manager reads fields that this plugin does not know.
func TestConfigurationOfANewerManager(t *testing.T) {
	t.Parallel()
	cluster, _ := installed(t, configText+"resync: {interval: 1h, jitter: 5s}")
	var warned strings.Builder
	cluster.options = &options{
		IOStreams: genericiooptions.IOStreams{ErrOut: &warned}, installation: "system", version: "v1.0.0",
		now: func() time.Time { return now },
	}
	for range 2 { // as status --watch looks
		w, err := cluster.world(t.Context(), "prod")
		expect.NoError(t, err)
		if w.config.Resync.Interval != time.Hour {
			t.Errorf("it reads the fields that it knows as %v", w.config.Resync)
		}
	}
	const want = "warning: this plugin (v1.0.0) does not know the field resync.jitter of ConfigMap system/rollcall-config; " +
		"the manager may be newer: install the plugin of its version\n"
	if warned.String() != want {
		t.Errorf("it warns\n%s\nwant once\n%s", &warned, want)
	}
	_, err := cluster.config(t.Context(), config.Limits{})
	expect.Error(t, "lint and enroll are strict", err, "it is newer than this plugin: install the plugin of its version: resync.jitter")
}

// TestConfigurationThatIsRefused: the manager goes on with the one before, and a person looks at its pods at just that time.
func TestConfigurationThatIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ reason, text, warning, err string }{
		"a value": {
			reason: "the other fields say whose a pod is", text: strings.ReplaceAll(configText, "30s", "soon"),
			warning: `and this command ignores these fields: drain: Invalid value: "soon": set a duration`,
		},
		"namespaces": {
			reason: "the manager may watch others", text: strings.ReplaceAll(configText, "30s", "-30s") + "namespaces: [Pay]",
			warning: `namespaces[0]: Invalid value: "Pay"`,
		},
		"a key of hooks.owned": {
			reason: "it may be of this pod", text: strings.ReplaceAll(configText, "[example.com/*]", "[example.com/*, a b]"),
			err: "hooks.owned[1]: Invalid value",
		},
		"hooks.owned": {reason: "it says whose a pod is", text: strings.ReplaceAll(configText, "owned", "own"), err: "hooks.own: Invalid value: unknown field"},
		"no YAML":     {reason: "nothing can be read", text: "}", err: "is invalid. If the manager accepts it"},
	} {
		cluster, _ := installed(t, c.text)
		var warned strings.Builder
		cluster.ErrOut = &warned
		for range 2 {
			w, err := cluster.world(t.Context(), "prod")
			expect.Error(t, c.reason, err, c.err)
			if err == nil && (!w.config.Drain.IsRefused() || !w.watches("prod") || !w.config.Hooks.Owns("example.com/in")) {
				t.Errorf("%s: it reads %v", name, w.config)
			}
		}
		if got := warned.String(); c.err == "" && (!strings.Contains(got, c.warning) || strings.Count(got, "\n") != 1) {
			t.Errorf("%s: it warns\n%s\nwant once\n%s", name, got, c.warning)
		}
		_, err := cluster.config(t.Context(), config.Limits{})
		expect.Error(t, "lint and enroll are strict", err, "is invalid. If the manager accepts it")
	}
}

// forbidding has the API server refuse lists of these resources.
func forbidding(c *cluster, resources ...string) {
	c.Client = interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, to client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			resource := strings.ToLower(strings.TrimSuffix(reflect.TypeOf(list).Elem().Name(), "List")) + "s"
			if slices.Contains(resources, resource) {
				return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no right"))
			}
			return to.List(ctx, list, opts...)
		},
	})
}

// TestConfigurationThatIsNotInForce: the ConfigMap says what the manager would do after a restart, and its Events what it does.
func TestConfigurationThatIsNotInForce(t *testing.T) {
	t.Parallel()
	type row struct {
		reason    string
		ago       time.Duration // of the refusal
		applied   bool          // after it
		forbidden []string
		refused   bool
	}
	bubble.Each(t, map[string]row{
		"refused":  {reason: "it goes on with the one before", ago: time.Minute, refused: true},
		"accepted": {reason: "it was corrected", ago: time.Minute, applied: true},
		"refused by an earlier manager": {
			reason: "the one that leads has read all of it, or would have said so since", ago: 3 * time.Hour,
		},
		"without a right": {reason: "it is not known, and no person must be kept from a skip", ago: time.Minute, forbidden: []string{"events"}},
	}, func(t *testing.T, c row) {
		lease := leaseHeld(now)
		lease.Spec.AcquireTime = &metav1.MicroTime{Time: now.Add(-2 * time.Hour)}
		about := corev1.ObjectReference{Kind: "ConfigMap", Namespace: "system", Name: configMapName}
		said := []client.Object{lease, &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "a"}, ReportingController: reporter, Regarding: about,
			Reason: "ConfigRefused", Note: "the previous configuration stays in force: namespaces: Invalid value",
			EventTime: metav1.MicroTime{Time: now.Add(-c.ago)},
		}}
		if c.applied {
			said = append(said, &eventsv1.Event{
				ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "b"}, ReportingController: reporter, Regarding: about,
				Reason: "ConfigApplied", EventTime: metav1.MicroTime{Time: now},
			})
		}
		set := theCloneSet(t, cloneSetText)
		set.Spec.Lifecycle = nil

		narrowed, _ := installed(t, configText+"namespaces: [pay]", said...)
		forbidding(narrowed, c.forbidden...)
		var warned strings.Builder
		narrowed.ErrOut = &warned
		for range 2 {
			w, err := narrowed.world(t.Context(), "prod")
			expect.NoError(t, err)
			if w.watches("prod") != c.refused {
				t.Errorf("%s: a pod of a namespace that was taken out is watched: %t", c.reason, !c.refused)
			}
		}
		const words = "the manager has rejected ConfigMap system/rollcall-config: the previous configuration stays in force"
		if got := strings.Count(warned.String(), words); got > 1 || got == 1 != c.refused {
			t.Errorf("%s: it warns\n%s", c.reason, &warned)
		}

		widened, applied := installed(t, configText+"namespaces: [pay, prod]", said...)
		forbidding(widened, c.forbidden...)
		widened.IOStreams = genericiooptions.NewTestIOStreamsDiscard()
		renewing(t, widened)
		want := ""
		if c.refused {
			want = "new pods might wait at the hooks forever: " + words
		}
		expect.Error(t, c.reason, widened.give(t.Context(), []kruisev1alpha1.CloneSet{*set}), want)
		if *applied > 0 == c.refused {
			t.Errorf("%s: it enrolls: %t", c.reason, !c.refused)
		}
	})
}

// TestWithoutARight: Kubernetes' own roles have neither the right to these Events nor to OpenKruise's kinds.
func TestWithoutARight(t *testing.T) {
	t.Parallel()
	type row struct {
		reason, warning, err string
		forbidden            []string
		status               int
	}
	expect.Each(t, map[string]row{
		"Events":     {reason: "the pods are there", forbidden: []string{"events"}, warning: "the reasons are only what the pods show: reading Events: events is forbidden"},
		"a kind":     {reason: "pods of the others are there", forbidden: []string{"daemonsets"}, warning: "pods of DaemonSets are not shown: reading workloads: daemonsets is forbidden"},
		"its kind":   {reason: "a pod without its workload looks abandoned", forbidden: []string{"clonesets"}, warning: "pods of CloneSets", err: "clonesets is forbidden", status: exitForbidden},
		"every kind": {reason: "there is nothing to show", forbidden: []string{"clonesets", "statefulsets", "daemonsets"}, err: "reading workloads", status: exitForbidden},
	}, func(t *testing.T, c row) {
		pod := scene{
			state: appspub.LifecycleStatePreparingDelete, ready: true, record: lifecycle.InService, labels: map[string]string{"app": "web", "example.com/delete": "true"},
		}.pod(t)
		cluster, _ := installed(t, configText, pod, theCloneSet(t, cloneSetText))
		forbidding(cluster, c.forbidden...)
		var warned strings.Builder
		cluster.ErrOut = &warned
		p, _, err := cluster.pod(t.Context(), "web-1")
		expect.Error(t, c.reason, err, c.err)
		expect.Equal(t, c.status, statusOf(err), "exit status: %s", c.reason)
		if err == nil && (p.Hook != lifecycle.PreDelete || p.Reason != reason.Acknowledgement) {
			t.Errorf("%s: the pod waits at %q, reason %s", c.reason, p.Hook, p.Reason)
		}
		_, err = cluster.rollout(t.Context(), "web")
		expect.Error(t, "rollout: "+c.reason, err, c.err)
		if !strings.Contains(warned.String(), c.warning) || strings.Count(warned.String(), "\n") > 1 {
			t.Errorf("%s: it warns\n%s\nwant once\n%s", c.reason, &warned, c.warning)
		}
		if s, err := cluster.status(t.Context(), "prod", client.HasLabels{}); c.err != "" && err == nil && len(s.pods) > 0 {
			t.Errorf("%s: status shows %v", c.reason, s.pods)
		}
	})
}

// TestNotWatched: a pod or a CloneSet that looks like none of Rollcall's by this configuration may be another installation's.
func TestNotWatched(t *testing.T) {
	t.Parallel()
	pod := scene{state: appspub.LifecycleStateNormal, labels: map[string]string{"app": "web"}}.pod(t)
	for configuration, want := range map[string]string{
		"":                                       "is not managed by Rollcall", // and can't be enrolled
		"namespaces: [pay]":                      "namespace prod is not among the namespaces in the configuration: if another installation watches it, pass",
		"namespaces: {matchLabels: {team: pay}}": "otherwise label it so that team=pay matches",
		"namespaces: {matchLabels: {team: web}}": "is not managed by Rollcall",
		"namespaces: {matchExpressions: [{key: team, operator: DoesNotExist}]}": "namespace prod is not among the namespaces",
	} {
		cluster, _ := installed(t, strings.ReplaceAll(configText, "example.com", "acme.io")+configuration, pod, theCloneSet(t, cloneSetText))
		_, _, err := cluster.pod(t.Context(), "web-1")
		expect.Error(t, "explain", err, want)
		_, err = cluster.rollout(t.Context(), "web")
		expect.Error(t, "rollout", err, want)
		if advises := strings.Contains(err.Error(), "kubectl rollcall enroll"); advises {
			t.Errorf("%s: it advises to enroll, which is refused: the hooks are another controller's: %v", configuration, err)
		}
	}
	bare := theCloneSet(t, cloneSetText).DeepCopy()
	bare.Spec.Lifecycle, bare.ResourceVersion = nil, ""
	cluster, _ := installed(t, configText, bare)
	_, err := cluster.rollout(t.Context(), "web")
	expect.Error(t, "nothing keeps it from being enrolled", err, "kubectl rollcall enroll web -n prod gives it hooks")
}
