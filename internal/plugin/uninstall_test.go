package plugin

import (
	"cmp"
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/bubble"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestUninstall(t *testing.T) {
	t.Parallel()
	type row struct {
		reason, configuration string

		options uninstallOptions
		answer  string
		// held: the pod has a finalizer; moves: it waits at a hook; leads: a manager does; clean: there is nothing to remove.
		held, moves, leads, clean bool
		err                       string
		status                    int
		out                       []string
		stripped, freed           bool
	}
	const nothing = "nothing depends on Rollcall: remove its installation"
	bubble.Each(t, map[string]row{
		"dry run": {
			reason: "a person looks first", options: uninstallOptions{dryRun: true}, held: true, leads: true, err: "objects that depend on Rollcall: 2",
			status: exitFailed, out: []string{"CloneSet prod/web: preNormal waits for label example.com/in=true", "Pod prod/web-1: finalizer rollcall.dev/guard"},
		},
		"it is safe": {reason: "a script goes by the status", options: uninstallOptions{dryRun: true}, clean: true, out: []string{nothing}},
		"no answer":  {reason: "hooks are not removed by accident", err: "nothing was changed", status: exitFailed},
		"yes": {
			reason: "the pods are free already", answer: "yes\n", stripped: true,
			out: []string{"removed from CloneSet prod/web: preNormal waits for", nothing},
		},
		"a pod that is held": {
			reason: "the manager has not released it in time", options: uninstallOptions{yes: true}, held: true, leads: true, stripped: true,
			err: "objects that depend on Rollcall: 1", status: exitTimedOut, out: []string{"Pod prod/web-1: finalizer rollcall.dev/guard"},
		},
		"no time": {
			reason: "it would read nothing", options: uninstallOptions{yes: true, timeout: -time.Second}, err: "--timeout -1s: set how long",
			status: exitFailed,
		},
		"an invalid configuration": {
			reason: "namespaces that can't be read are not all namespaces", configuration: configText + "namespaces: [Prod]\n",
			options: uninstallOptions{yes: true}, err: "namespaces[0]", status: exitFailed,
		},
		"no manager": {
			reason: "it would wait in vain", options: uninstallOptions{yes: true}, held: true, err: "pods that only a manager releases: 1",
			status: exitNoManager,
		},
		"no manager, and a pod at a hook": {
			reason: "nobody releases the hook", options: uninstallOptions{yes: true}, moves: true, err: "pods that only a manager releases: 1",
			status: exitNoManager,
		},
		"no manager, and a person frees a pod at a hook": {
			reason: "Rollcall is gone", options: uninstallOptions{yes: true, freePods: true}, held: true, moves: true, stripped: true, freed: true,
			out: []string{nothing},
		},
		"no manager, and a person frees the pods": {
			reason: "Rollcall is gone", options: uninstallOptions{yes: true, freePods: true}, held: true, stripped: true, freed: true, out: []string{nothing},
		},
		"pods are freed under a manager": {
			reason: "it would put the finalizers back", options: uninstallOptions{yes: true, freePods: true}, held: true, leads: true, err: "a manager leads",
			status: exitFailed,
		},
	}, func(t *testing.T, c row) {
		set := theCloneSet(t, cloneSetText)
		if c.clean {
			set.Spec.Lifecycle = nil
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web-1", UID: "1"}}
		if c.held {
			pod.Finalizers = []string{lifecycle.GuardFinalizer}
		}
		if c.moves {
			set.UID = "set"
			pod.Labels = map[string]string{appspub.LifecycleStateKey: string(appspub.LifecycleStatePreparingNormal)}
			pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, kruisev1alpha1.GroupVersion.WithKind("CloneSet"))}
		}
		renewed := now.Add(-time.Hour)
		if c.leads {
			renewed = now
		}
		cluster, _ := installed(t, cmp.Or(c.configuration, configText), leaseHeld(renewed), set, pod)
		if c.leads {
			renewing(t, cluster)
		}
		streams, in, out, _ := genericiooptions.NewTestIOStreams()
		in.WriteString(c.answer)
		cluster.IOStreams = streams
		c.options.timeout = cmp.Or(c.options.timeout, time.Minute)
		err := cluster.uninstall(t.Context(), c.options)
		expect.Error(t, c.reason, err, c.err)
		expect.Equal(t, c.status, statusOf(err), "exit status: %s", c.reason)
		for _, line := range c.out {
			if !strings.Contains(out.String(), line) {
				t.Errorf("%s: it prints %q, want %q in it", c.reason, out, line)
			}
		}
		stripped, freed := &kruisev1alpha1.CloneSet{}, &corev1.Pod{}
		expect.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(set), stripped))
		expect.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(pod), freed))
		left := lifecycle.HandlersOf(stripped.Spec.Lifecycle)
		if gone := len(left) == 1 && left[0].Label == "other.io/gate"; gone != c.stripped && !c.clean {
			t.Errorf("%s: the CloneSet has handlers %v, want Rollcall's removed: %t", c.reason, left, c.stripped)
		}
		if c.held && (len(freed.Finalizers) == 0) != c.freed {
			t.Errorf("%s: the pod has finalizers %v, want none: %t", c.reason, freed.Finalizers, c.freed)
		}
	})
}
