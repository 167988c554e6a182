package plugin

import (
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/rollcall-dev/rollcall/internal/config"
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
	expect.Error(t, "lint and enroll are strict", err, "unless it is newer than this plugin: then install the plugin of its version: resync.jitter")
}

// TestConfigurationThatIsRefused: the manager goes on with the one before, and a person looks at its pods at just that time.
func TestConfigurationThatIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ reason, text, warning, err string }{
		"a value": {
			reason: "the other fields say whose a pod is", text: strings.ReplaceAll(configText, "30s", "soon"),
			warning: `and this command goes on without them: drain: Invalid value: "soon": write a duration`,
		},
		"namespaces": {
			reason: "the manager may watch others", text: strings.ReplaceAll(configText, "30s", "-30s") + "namespaces: [Pay]",
			warning: `namespaces[0]: Invalid value: "Pay"`,
		},
		"a key of hooks.owned": {
			reason: "it may be of this pod", text: strings.ReplaceAll(configText, "[example.com/*]", "[example.com/*, a b]"),
			err: "hooks.owned[1]: Invalid value",
		},
		"hooks.owned": {reason: "it says whose a pod is", text: strings.ReplaceAll(configText, "owned", "own"), err: "hooks.owned: Required value"},
		"no YAML":     {reason: "nothing can be read", text: "}", err: "the manager refuses this configuration too"},
	} {
		cluster, _ := installed(t, c.text)
		var warned strings.Builder
		cluster.ErrOut = &warned
		for range 2 {
			w, err := cluster.world(t.Context(), "prod")
			expect.Error(t, c.reason, err, c.err)
			if err == nil && (w.config.Drain >= 0 || !w.config.Watches("prod") || !w.config.Hooks.Owns("example.com/in")) {
				t.Errorf("%s: it reads %v", name, w.config)
			}
		}
		if got := warned.String(); c.err == "" && (!strings.Contains(got, c.warning) || strings.Count(got, "\n") != 1) {
			t.Errorf("%s: it warns\n%s\nwant once\n%s", name, got, c.warning)
		}
		_, err := cluster.config(t.Context(), config.Limits{})
		expect.Error(t, "lint and enroll are strict", err, "the manager refuses this configuration too")
	}
}

// TestNotWatched: a pod or a CloneSet that looks like none of Rollcall's by this configuration may be another installation's.
func TestNotWatched(t *testing.T) {
	t.Parallel()
	objects, err := (&options{IOStreams: genericiooptions.IOStreams{In: strings.NewReader(cloneSetText)}}).readObjects("-")
	expect.NoError(t, err)
	pod := scene{state: appspub.LifecycleStateNormal, labels: map[string]string{"app": "web"}}.view(t).facts.pod
	for configuration, want := range map[string]string{
		"":                  "is not managed by Rollcall",
		"namespaces: [pay]": "namespace prod is not in namespaces of the configuration: if another installation watches it, pass",
	} {
		cluster, _ := installed(t, strings.ReplaceAll(configText, "example.com", "acme.io")+configuration, pod, objects.cloneSets[0])
		_, _, err := cluster.pod(t.Context(), "web-1")
		expect.Error(t, "explain", err, want)
		_, err = cluster.rollout(t.Context(), "web")
		expect.Error(t, "rollout", err, want)
		if advises := strings.Contains(err.Error(), "enroll"); advises != (configuration == "") {
			t.Errorf("%s: it advises to enroll: %t", configuration, advises)
		}
	}
}
