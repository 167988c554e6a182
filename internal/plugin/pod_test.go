package plugin

import (
	"errors"
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
		objects, err := (&options{IOStreams: genericiooptions.IOStreams{In: strings.NewReader(cloneSetText)}}).readObjects("-")
		expect.NoError(t, err)
		cluster, _ := installed(t, c.configuration, pod, theCloneSet(objects), leaseHeld(now.Add(-c.renewed)))
		streams, _, printed, problems := genericiooptions.NewTestIOStreams()
		cluster.IOStreams, cluster.version = streams, "v1.0.0"
		if c.unknown {
			expect.NoError(t, cluster.Delete(t.Context(), leaseHeld(now)))
		}
		if c.renewed == 0 {
			renewing(t, cluster)
		}
		err = cluster.skip(t.Context(), "web-1", true)
		expect.Error(t, c.reason, err, c.want)
		if exit := (*exitError)(nil); err != nil && (!errors.As(err, &exit) || exit.status != c.status) {
			t.Errorf("%s: got error %v, want exit status %d", c.reason, err, c.status)
		}
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
