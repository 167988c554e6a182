package app

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/rollcall-dev/rollcall/internal/endpointslice"
	"github.com/rollcall-dev/rollcall/internal/enroll"
	rightsof "github.com/rollcall-dev/rollcall/internal/rights"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// built is a manager as it is before it runs. Its API server answers nothing.
func built(t *testing.T, fields string, args ...string) *app {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	must(t, os.WriteFile(path, []byte(minimal+fields), 0o600))
	f, err := parseFlags(append([]string{
		"--config=" + path, "--kubeconfig=" + kubeconfig(t, newFakeAPI(t).url), "--metrics-bind-address=0", "--health-probe-bind-address=0",
		"--eviction-webhook-bind-address=127.0.0.1:0",
	}, args...), io.Discard)
	must(t, err)
	slices := endpointslice.NewWatch()
	a, err := newManager(t.Context(), &options{
		constructors: map[string]registry.Constructor{"fake": newFake, endpointslice.Name: slices.New}, slices: slices, logger: new(quiet()),
		output: io.Discard,
	}, f)
	must(t, err)
	t.Cleanup(func() {
		must(t, a.drivers.inForce().closeBut(nil))
		a.close(context.WithoutCancel(t.Context()))
	})
	return a
}

// TestWhatTheReconcilerIsGiven: the clock of the leader before, the cluster's UID, and each feature's own rights.
func TestWhatTheReconcilerIsGiven(t *testing.T) {
	t.Parallel()
	a := built(t, "namespaces: [orders, pay]\npodCondition: true\nenroll: true\n")
	may := &rights{needs: a.needs()}
	pods := a.newPods(prometheus.NewRegistry(), may)
	r := pods.reconciler

	a.lease.theirs, a.lease.ahead = time.Now(), 3*time.Second
	expect.Equal(t, 3*time.Second, r.Ahead(), "how far the clock is ahead of the last leader's")
	if r.State.Scope != a.namespaces.scope || !r.State.Scope.Watches("pay") || r.State.Scope.Watches("other") {
		t.Error("the namespaces of pods that are reconciled are not those of the configuration")
	}

	about := a.newConfigEvents(a.direct)
	compares := a.newComparing(a.drivers.inForce().config, prometheus.NewRegistry(), pods, about)
	if compares.resync.Scope != a.namespaces.scope || !compares.resync.Scope.Excludes("other") {
		t.Error("the namespaces whose entries are compared are not those of the configuration")
	}
	if r.Identity != pods.identity || compares.resync.Identity != pods.identity || pods.identity == nil {
		t.Error("the cluster's UID is not learned by the one and written by the other")
	}

	for _, n := range may.needs {
		n.lacks.Store(new(n.Name + " waits"))
	}
	expect.Equal(t, "podCondition waits", r.NoCondition(), "the right that the condition waits for")
	if r.PodCondition() {
		t.Error("the condition is written without the right")
	}
	close(may.of(rightsof.Enroll).there)
	if r.PodCondition() || !isClosed(pods.mayEnroll) {
		t.Error("enroll has its rights, and the condition has not")
	}
	close(may.of(rightsof.PodCondition).there)
	if !r.PodCondition() {
		t.Error("the condition has its right, and is not written")
	}
}

// TestWithoutElectionNothingIsKnownOfTheProcessBefore: how far its clock was ahead, and whether its calls have ended.
func TestWithoutElectionNothingIsKnownOfTheProcessBefore(t *testing.T) {
	t.Parallel()
	a := built(t, "", "--leader-elect=false")
	pods := a.newPods(prometheus.NewRegistry(), &rights{})
	expect.Equal(t, time.Duration(math.MaxInt64), pods.reconciler.Ahead(), "how far the clock is ahead of the last leader's")
	compares := a.newComparing(a.drivers.inForce().config, prometheus.NewRegistry(), pods, a.newConfigEvents(a.direct))
	if compares.unready() == "" {
		t.Error("pods do not wait until no call of the process before can be carried out")
	}
}

// TestEnrollWaitsForItsRight: without it, each write would be refused.
func TestEnrollWaitsForItsRight(t *testing.T) {
	t.Parallel()
	a := built(t, "enroll: true\n")
	synctest.Test(t, func(t *testing.T) {
		s, may, done := newKruiseScenario(), make(chan struct{}), make(chan error, 1)
		s.informers.typed.synced.Store(true)
		s.informers.metadata.synced.Store(true)
		p := &pods{kruise: s.kruise, manager: a.manager, enrolls: enroll.New(a.manager.GetClient(), nil, nil, nil), mayEnroll: may}
		go func() { done <- p.Start(t.Context()) }()
		time.Sleep(time.Hour)
		select {
		case err := <-done:
			t.Fatalf("the controller was added before it may write: %v", err)
		default:
		}
		if !s.setUp.Load() {
			t.Error("pods wait for a right of enroll")
		}
		close(may)
		must(t, <-done)
	})
}

// TestWebhookWaitsForItsRights: it asks for nothing before, begins nothing while another manager leads, and lets the API server in alone.
func TestWebhookWaitsForItsRights(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "team")
	a := built(t, "namespaces: [orders]\nevictions: {enabled: true, limit: 7m}\n")
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		asked, may := map[string]bool{}, make(chan struct{})
		direct, leader := asking(t, "direct", &mu, asked), asking(t, "leader", &mu, asked)
		a.direct = direct
		e, err := a.newEvicting(prometheus.NewRegistry(), func() bool { return true }, leader, may)
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		for _, r := range e.runnables {
			if _, recorder := r.(cluster.Cluster); !recorder {
				go func() { _ = r.Start(ctx) }()
			}
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		expect.Equal(t, map[string]bool{}, asked, "what was asked for without the rights")
		expect.Equal(t, "", e.unready(), "what the manager waits for without the rights")

		close(may)
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		expect.Equal(t, map[string]bool{
			"direct: Secret": true, "direct: MutatingWebhookConfiguration": true, "leader: MutatingWebhookConfiguration": true,
		}, asked, "what was asked for with the rights, and by which client")
		if e.unready() == "" {
			t.Error("it is ready, and has not read the certificate")
		}
		expect.Equal(t, 7*time.Minute, e.webhook.Limit, "the limit of an eviction")
		if e.webhook.Scope != a.namespaces.scope || !e.webhook.Scope.Watches("orders") || e.webhook.Scope.Watches("other") {
			t.Error("the namespaces whose evictions it answers are not those of the configuration")
		}

		answer := httptest.NewRecorder()
		e.handler.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodPost, "/guessed", http.NoBody))
		expect.Equal(t, http.StatusNotFound, answer.Code, "the answer at a path that the webhook configuration does not have")

		if e.webhook.Leads() {
			t.Error("a manager that does not hold the lease begins evictions")
		}
		a.lease.renewed = a.lease.now()
		if !e.webhook.Leads() || e.webhook.Leader != leader {
			t.Error("the manager that holds the lease begins none, or writes by another client than the leader's")
		}
		cancel()
	})
}

// asking is a client of an API server that has nothing, and notes who asks for what.
func asking(t *testing.T, by string, mu *sync.Mutex, asked map[string]bool) *asker {
	t.Helper()
	return &asker{interceptor.NewClient(clientfake.NewClientBuilder().WithScheme(newScheme()).Build(), interceptor.Funcs{
		Get: func(_ context.Context, c client.WithWatch, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
			kind, err := c.GroupVersionKindFor(into)
			must(t, err)
			mu.Lock()
			defer mu.Unlock()
			asked[by+": "+kind.Kind] = true
			return apierrors.NewNotFound(schema.GroupResource{}, "")
		},
	})}
}

// asker can be compared.
type asker struct{ client.Client }

// TestNotReadyWhileAnyPartIsNot: whatever is missing, /readyz shows it.
func TestNotReadyWhileAnyPartIsNot(t *testing.T) {
	t.Parallel()
	ready := func() *showing {
		s := &showing{
			pods: &pods{kruise: newKruiseScenario().kruise}, compares: &comparing{settling: &settling{}},
			evicts: &evicting{unready: func() string { return "" }},
		}
		s.pods.added.Store(true)
		return s
	}
	expect.Equal(t, "", ready().unready(), "why a manager is not ready of which nothing is missing")
	for part, missing := range map[string]func(*showing){
		"the caches":                   func(s *showing) { s.pods.added.Store(false) },
		"the end of a process's calls": func(s *showing) { s.compares.until = time.Now().Add(time.Hour) },
		"the certificate of evictions": func(s *showing) { s.evicts.unready = func() string { return "not read" } },
	} {
		s := ready()
		if missing(s); s.unready() == "" {
			t.Errorf("it is ready without %s", part)
		}
	}
}

// TestRefusedWatchOfEndpointSlices: what the manager knows of them is out of date from then on, until the refusal is not repeated.
func TestRefusedWatchOfEndpointSlices(t *testing.T) {
	t.Parallel()
	a := built(t, "")
	synctest.Test(t, func(t *testing.T) {
		expectFailing := func(why string, since time.Time, want bool) {
			t.Helper()
			if err := a.options.slices.Failure(since); apierrors.IsForbidden(err) != want {
				t.Errorf("%s: got %v, want the refusal: %t", why, err, want)
			}
		}
		began := time.Now()
		expectFailing("nothing was refused", began, false)
		time.Sleep(time.Minute)
		refusal := apierrors.NewForbidden(discoveryv1.Resource("endpointslices"), "", errors.New("cannot watch resource"))
		a.watchFailures.note((watched{object: &discoveryv1.EndpointSlice{}}).described(), refusal)
		expectFailing("it was refused just now", began, true)
		expectFailing("they were listed after that", time.Now().Add(time.Second), false)
		time.Sleep(refusalHolds)
		expectFailing("it may be tried again only now", began, true)
		time.Sleep(time.Second)
		expectFailing("it was not repeated", began, false)
	})
}

// TestSecureMetricsAreForReaders: with the flag nobody reads without a token, and without it everybody does.
func TestSecureMetricsAreForReaders(t *testing.T) {
	t.Parallel()
	for secure, want := range map[bool]int{false: http.StatusOK, true: http.StatusUnauthorized} {
		a := built(t, "")
		a.flags.metrics.secure = secure
		server, err := a.newMetricsServer(prometheus.NewRegistry(), nil)
		must(t, err)
		answer := httptest.NewRecorder()
		server.handler.ServeHTTP(answer, request(t, http.MethodGet, "/metrics", ""))
		if answer.Code != want || (server.certificate != nil) != secure {
			t.Errorf("secure: %t: got %d, and HTTPS: %t, want %d", secure, answer.Code, server.certificate != nil, want)
		}
	}
}
