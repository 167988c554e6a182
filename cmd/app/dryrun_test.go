package app

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/series"
)

func TestDryRunReportsEachChangeOnce(t *testing.T) {
	t.Parallel()
	s := newDryRunScenario(t)
	in := registry.Instance{Service: "web", Address: "10.0.0.1", Port: 80, Namespace: "shop", Pod: "web-1", UID: "1"}
	reg := registryclient.New(&fake{}, registryclient.Options{Timeout: time.Minute, MaxInFlight: 1, DryRun: s.run.change("default")})
	expectRefused := func(state registry.State) {
		t.Helper()
		s.ExpectRefused(reg.Change(t.Context(), registryclient.Caller{}, registry.Change{Instance: in, State: state}))
	}
	for range 3 {
		expectRefused(registry.InService)
	}
	s.ExpectLogged("would register default web 10.0.0.1:80")
	expectRefused(registry.OutOfService)
	expectRefused(registry.InService)
	s.ExpectLogged("would takeOut default web 10.0.0.1:80", "would register default web 10.0.0.1:80")
	in.UID = "2"
	expectRefused(registry.InService)
	s.ExpectLogged("would register default web 10.0.0.1:80") // another pod at that address
	s.ExpectCounted(`rollcall_dry_run_total{operation="register",registry="default"} 3`, `rollcall_dry_run_total{operation="takeOut",registry="default"} 1`)
}

func TestDryRunTellsTheApplicationsEntryFromRollcallsOwn(t *testing.T) {
	t.Parallel()
	s := newDryRunScenario(t)
	in := registry.Instance{Service: "web", Address: "10.0.0.1", Port: 80, Registry: "default"}
	reg := registryclient.New(newSteering(t), registryclient.Options{
		Name: "default", Timeout: time.Minute, MaxInFlight: 1, DryRun: s.run.change("default"),
	})
	for _, client := range []*registryclient.Client{reg, reg.AppEntries()} {
		s.ExpectRefused(client.Change(t.Context(), registryclient.Caller{}, registry.Change{Instance: in, State: registry.OutOfService}))
	}
	s.ExpectLogged("would takeOut default web 10.0.0.1:80", "would takeOut default (by the application) web 10.0.0.1:80")
}

func TestDryRunTakesNoEntryThatExpiresForAcknowledged(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		made   registry.Registry
		want   bool
	}
	expect.Each(t, map[string]row{
		"a lease":  {"a manager that works would register it anew, and a dry run has to say so", &leased{}, true},
		"no lease": {"what the list shows was acknowledged", &fake{}, false},
	}, func(t *testing.T, tc row) {
		for _, run := range []*dryRun{nil, newDryRunScenario(t).run} {
			d := newDrivers(t, always(tc.made))
			d.dryRun = run
			expectOpened(t, d, configured(t, minimal))
			expect.Equal(t, tc.want, d.current.Load().get("default").client.Expires(), "in a dry run (%t) entries expire: %s", run != nil, tc.reason)
		}
	})
}

func TestDryRunReportsPatchesWithoutTheirTests(t *testing.T) {
	t.Parallel()
	s := newDryRunScenario(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1"}}
	patch := func(stamp string) client.Patch {
		return client.RawPatch(types.JSONPatchType, []byte(`[{"op":"test","path":"/metadata/annotations/stamp","value":"`+stamp+`"},
			{"op":"add","path":"/metadata/labels/example.com~1online","value":"true"},{"op":"remove","path":"/metadata/finalizers/0"}]`))
	}
	c := &dryClient{run: s.run} // nothing is asked of the real one
	s.ExpectRefused(c.Patch(t.Context(), pod, patch("1")))
	s.ExpectRefused(c.Patch(t.Context(), pod, patch("1")))
	s.ExpectLogged("would patch [add /metadata/labels/example.com/online: true remove /metadata/finalizers/0]")
	s.ExpectRefused(c.Patch(t.Context(), pod, patch("2")))
	s.ExpectLogged("would patch [add /metadata/labels/example.com/online: true remove /metadata/finalizers/0]")
	s.ExpectCounted(`rollcall_dry_run_total{operation="patch",registry=""} 2`)
}

func TestDryRunReportsEvents(t *testing.T) {
	t.Parallel()
	s := newDryRunScenario(t)
	recorder := &dryRecorder{run: s.run}
	recorder.Eventf(&lifecycle.Pod{}, nil, "Warning", "InvalidPod", "Reconcile", "no %s", "port")
	recorder.Eventf(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, nil, "Warning", "RolloutWaits", "Reconcile", "web-1")
	elected := make(chan struct{})
	about := &configEvents{elected: elected, dryRun: s.run, logger: logr.Discard()}
	about.tell(t.Context(), "Warning", "Resync", "RemovalBlocked", "6 of 20 entries")
	close(elected)
	about.tell(t.Context(), "Warning", "Resync", "RemovalBlocked", "7 of 20 entries")
	s.ExpectLogged("would event Warning InvalidPod no port", "would event Warning RolloutWaits web-1 web", "would event Warning RemovalBlocked 7 of 20 entries rollcall-config")
	s.ExpectCounted(`rollcall_dry_run_total{operation="event",registry=""} 3`)
}

func TestDryRunSendsNoWrite(t *testing.T) {
	t.Parallel()
	s := newDryRunScenario(t)
	api := newFakeAPI(t)
	a := &app{options: &options{}, flags: &flags{kubeconfig: kubeconfig(t, api.url), leaderElect: true}, dryRun: s.run, logger: quiet()}
	must(t, a.connect(t.Context(), configured(t, minimal)))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, api.url, http.NoBody)
	must(t, err)
	_, err = a.manager.GetHTTPClient().Do(request) //nolint:bodyclose // there is none
	s.ExpectRefused(err)
}

func TestDryRunNeedsNoLease(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	before := api.lease
	m := api.StartManager("--dry-run")
	m.ExpectAnswer(m.addresses.Health, "/readyz", http.StatusServiceUnavailable, "OpenKruise is not installed")
	must(t, m.Stop())
	if api.lease != before {
		t.Errorf("it took the lease: %+v", api.lease)
	}
}

// TestDryRunLeavesOutWhatWrites: it has the configuration of a manager that works.
func TestDryRunLeavesOutWhatWrites(t *testing.T) {
	t.Parallel()
	const all = "enroll: true\npodCondition: true\nstatusPage: true\nevictions: {enabled: true}\n"
	f := &flags{dryRun: true, evictionsAddress: off}
	has, leftOut, err := f.features(configured(t, minimal+all))
	must(t, err)
	if want := []string{"enroll", "podCondition", "evictions"}; !slices.Equal(leftOut, want) || has.StatusPage != config.PageForAll {
		t.Errorf("it has %+v and leaves out %q, want %q", has, leftOut, want)
	}
	m := newFakeAPI(t).StartManagerWith("enroll: true\nevictions: {enabled: true}", "--dry-run")
	if m.addresses.Evictions != "" {
		t.Errorf("it answers evictions at %q", m.addresses.Evictions)
	}
	must(t, m.Stop())
}

// dryRunScenario is a dry run whose log the test holds.
type dryRunScenario struct {
	*testing.T

	run     *dryRun
	log     *lines
	metrics *prometheus.Registry
}

func newDryRunScenario(t *testing.T) *dryRunScenario {
	t.Helper()
	s := &dryRunScenario{T: t, metrics: prometheus.NewRegistry(), log: &lines{}}
	m := metrics.NewDryRunMetrics(s.metrics)
	s.run = newDryRun(m, logr.New(s.log))
	return s
}

func (s *dryRunScenario) ExpectRefused(err error) {
	s.Helper()
	if !errors.Is(err, registryclient.ErrDryRun) {
		s.Errorf("got %v, want %v", err, registryclient.ErrDryRun)
	}
}

// ExpectLogged looks at what was logged since the last look.
func (s *dryRunScenario) ExpectLogged(want ...string) {
	s.Helper()
	if diff := cmp.Diff(want, s.log.all); diff != "" {
		s.Errorf("logged (-want +got):\n%s", diff)
	}
	s.log.all = nil
}

func (s *dryRunScenario) ExpectCounted(want ...string) {
	s.Helper()
	series.Expect(s.T, s.metrics, "what was counted", want...)
}

// lines is a log that keeps of each line what a reader looks for.
type lines struct {
	logr.LogSink

	all []string
}

func (*lines) Init(logr.RuntimeInfo)          {}
func (*lines) Enabled(int) bool               { return true }
func (l *lines) WithName(string) logr.LogSink { return l }
func (l *lines) Info(_ int, line string, keysAndValues ...any) {
	for i := 0; i+1 < len(keysAndValues); i += 2 {
		if key, ok := keysAndValues[i].(string); ok && key != "namespace" && key != "pod" {
			line += fmt.Sprintf(" %v", keysAndValues[i+1])
		}
	}
	l.all = append(l.all, line)
}
