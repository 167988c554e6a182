package plugin

import (
	"strings"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"

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
	_, err := cluster.config(t.Context(), nil)
	expect.Error(t, "lint and enroll are strict", err, "unless it is newer than this plugin: then install the plugin of its version: resync.jitter")
}
