package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestManagerStartsWithoutOpenKruise(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	m := api.StartManager()
	m.ExpectAnswer(m.addresses.Health, "/healthz", http.StatusOK, "ok")
	m.ExpectAnswer(m.addresses.Health, "/readyz", http.StatusServiceUnavailable, "OpenKruise is not installed: no CRD clonesets")
	m.ExpectAnswer(m.addresses.Metrics, "/metrics", http.StatusOK, "rollcall_config_last_reload_successful 1", "rollcall_unmatched_workloads 0", "go_goroutines")
	api.ExpectHeld()

	m.Write(strings.Replace(minimal, "registry:\n  driver: fake", "registries: [{name: second, driver: two}]", 1))
	expect.Soon(t, "another registry in force", func() error {
		if !m.one.closed.Load() {
			return errors.New("the one that was replaced is not closed")
		}
		return nil
	})

	must(t, m.Stop())
	api.ExpectReleased()
	if one, two := m.one.closed.Load(), m.two.closed.Load(); !one || !two {
		t.Errorf("the registry that was replaced is closed: %t, and the last one: %t", one, two)
	}
}

func TestManagerServesProfiles(t *testing.T) {
	t.Parallel()
	if f, set := newFlags(); f.pprofAddress != off {
		t.Errorf("by default the manager serves profiles: %s", set.Lookup("pprof-bind-address").DefValue)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	address := free.Addr().String()
	must(t, free.Close())
	m := newFakeAPI(t).StartManager("--pprof-bind-address=" + address)
	m.ExpectAnswer(address, "/debug/pprof/goroutine?debug=1", http.StatusOK, "goroutine profile:")
	must(t, m.Stop())
}

// TestManagerServesTheStatusPage: the leader shows what it knows, another manager who leads, and a reader who stays keeps no
// manager from ending.
func TestManagerServesTheStatusPage(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	leader := api.StartManagerWith("statusPage: true")
	holder, _, _ := strings.Cut(api.ExpectHeld(), "_")
	leader.ExpectAnswer(leader.addresses.Metrics, "/status", http.StatusOK, "No pod waits", "OpenKruise is not installed", "<b>default</b>")
	leader.ExpectAnswer(leader.addresses.Metrics, "/metrics", http.StatusOK, "go_goroutines")
	standby := api.StartManagerWith("statusPage: true")
	standby.ExpectAnswer(standby.addresses.Metrics, "/status.json", http.StatusOK, `"leads": false`, `"leader": "`+holder+`"`, `"registries": []`)
	unset := api.StartManager()
	unset.ExpectAnswer(unset.addresses.Metrics, "/status.json", http.StatusOK, `"withheld": "set --metrics-secure`)
	must(t, unset.Stop())
	without := api.StartManagerWith("statusPage: false")
	without.ExpectAnswer(without.addresses.Metrics, "/status", http.StatusNotFound, "not found")

	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+leader.addresses.Metrics+"/status/events", http.NoBody)
	must(t, err)
	stream, err := http.DefaultClient.Do(request)
	must(t, err)
	defer stream.Body.Close()
	first := make([]byte, len("data: "))
	_, err = io.ReadFull(stream.Body, first)
	must(t, err)
	must(t, leader.Stop())
	if _, err := io.Copy(io.Discard, stream.Body); err != nil {
		t.Errorf("the stream was cut off: %v; the server waited for it and gave up", err)
	}
	must(t, standby.Stop())
	must(t, without.Stop())
}

// TestManagerWorksOnlyWithTheLease: a second manager takes over what the first one gives back, and ends where another has it.
func TestManagerWorksOnlyWithTheLease(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	first := api.StartManager()
	holder := api.ExpectHeld()
	api.ForgetLeft()
	second := api.StartManager()
	second.ExpectAnswer(second.addresses.Health, "/readyz", http.StatusServiceUnavailable, "OpenKruise is not installed: no CRD clonesets")
	must(t, first.Stop())
	expect.Soon(t, "another holder", func() error {
		if now := api.ExpectHeld(); now == holder {
			return fmt.Errorf("%s still holds the lease", holder)
		}
		return nil
	})
	api.ExpectLeft("a manager that is not ready took it")
	api.Take("another manager")
	if err := receive(t, second.done); err == nil || !strings.Contains(err.Error(), errDeposed.Error()) {
		t.Errorf("it ended with %v, want %v", err, errDeposed)
	}
	if got := api.ExpectHeld(); got != "another manager" {
		t.Errorf("the lease is held by %q", got)
	}
}

// TestManagerWhoseLeaseIsDeleted: the leader makes it again, and the manager that waits does not lead in between.
func TestManagerWhoseLeaseIsDeleted(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	first := api.StartManager()
	holder := api.ExpectHeld()
	second := api.StartManager()
	for range 5 {
		api.Delete()
		if now := api.ExpectHeld(); now != holder {
			t.Fatalf("the lease is held by %s, and its leader %s may still work", now, holder)
		}
	}
	must(t, first.Stop())
	must(t, second.Stop())
}

func TestManagerListensNowhere(t *testing.T) {
	t.Parallel()
	m := newFakeAPI(t).StartManager("--metrics-bind-address=0", "--health-probe-bind-address=0", "--leader-elect=false")
	if m.addresses != (addresses{}) {
		t.Errorf("listens at %+v, want nowhere", m.addresses)
	}
	must(t, m.Stop())
}

// fakeAPI is an API server that has leases and nothing else.
type fakeAPI struct {
	t   *testing.T
	url string

	mu    sync.Mutex
	lease *coordinationv1.Lease
	// left is how often the lease was read while it was free, but for the last time before it was taken.
	left int
}

func newFakeAPI(t *testing.T) *fakeAPI {
	t.Helper()
	api := &fakeAPI{t: t}
	api.store(&coordinationv1.Lease{ // given back
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "rollcall"}, Spec: coordinationv1.LeaseSpec{RenewTime: new(metav1.NowMicro())},
	})
	mux := http.NewServeMux()
	const leases = "/apis/coordination.k8s.io/v1/namespaces/team/leases"
	mux.HandleFunc("GET "+leases+"/rollcall", api.get)
	mux.HandleFunc("POST "+leases, api.put)
	mux.HandleFunc("PUT "+leases+"/rollcall", api.put)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		api.fail(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	api.url = server.URL
	return api
}

func (api *fakeAPI) get(w http.ResponseWriter, _ *http.Request) {
	api.mu.Lock()
	defer api.mu.Unlock()
	if api.lease == nil {
		api.fail(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	if ptr.Deref(api.lease.Spec.HolderIdentity, "") == "" {
		api.left++
	}
	api.answer(w, http.StatusOK, api.lease)
}

func (api *fakeAPI) put(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		api.t.Errorf("reading %s %s: %v", r.Method, r.URL, err)
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	lease, ok := object.(*coordinationv1.Lease)
	if err != nil || !ok {
		api.t.Errorf("decoding %s %s: got a %T, %v", r.Method, r.URL, object, err)
		api.fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
		return
	}
	api.mu.Lock()
	defer api.mu.Unlock()
	if api.lease != nil && api.lease.ResourceVersion != lease.ResourceVersion {
		api.fail(w, http.StatusConflict, metav1.StatusReasonConflict)
		return
	}
	if api.lease != nil && ptr.Deref(api.lease.Spec.HolderIdentity, "") == "" {
		api.left--
	}
	api.store(lease)
	api.answer(w, http.StatusOK, lease)
}

func (api *fakeAPI) store(lease *coordinationv1.Lease) {
	lease.APIVersion, lease.Kind = "coordination.k8s.io/v1", "Lease"
	lease.ResourceVersion += "1"
	api.lease = lease
}

func (api *fakeAPI) fail(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	api.answer(w, code, &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason,
	})
}

func (api *fakeAPI) answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		api.t.Errorf("answering: %v", err)
	}
}

// Take gives the lease to another holder.
func (api *fakeAPI) Take(holder string) {
	api.mu.Lock()
	defer api.mu.Unlock()
	lease := api.lease.DeepCopy()
	lease.Spec.HolderIdentity = &holder
	api.store(lease)
}

// Delete deletes the lease.
func (api *fakeAPI) Delete() {
	api.mu.Lock()
	defer api.mu.Unlock()
	api.lease = nil
}

// ExpectHeld waits until a manager holds the lease, and returns who.
func (api *fakeAPI) ExpectHeld() string {
	api.t.Helper()
	var holder string
	expect.Soon(api.t, "a holder of the lease", func() error {
		api.mu.Lock()
		defer api.mu.Unlock()
		if api.lease != nil {
			holder = ptr.Deref(api.lease.Spec.HolderIdentity, "")
		}
		if holder == "" {
			return fmt.Errorf("no manager holds the lease: %+v", api.lease)
		}
		return nil
	})
	return holder
}

// ForgetLeft counts again how often the lease was left, which was free at the start.
func (api *fakeAPI) ForgetLeft() {
	api.mu.Lock()
	defer api.mu.Unlock()
	api.left = 0
}

// ExpectLeft expects that the lease was not taken as soon as it was free.
func (api *fakeAPI) ExpectLeft(why string) {
	api.t.Helper()
	api.mu.Lock()
	defer api.mu.Unlock()
	if api.left < 1 {
		api.t.Errorf("the lease was taken as soon as it was free: %s", why)
	}
}

func (api *fakeAPI) ExpectReleased() {
	api.t.Helper()
	api.mu.Lock()
	defer api.mu.Unlock()
	if holder := ptr.Deref(api.lease.Spec.HolderIdentity, ""); holder != "" {
		api.t.Errorf("%s still holds the lease", holder)
	}
}

// quiet is a logger that writes nothing; logr.Discard would stand for controller-runtime's own.
func quiet() logr.Logger { return funcr.New(func(_, _ string) {}, funcr.Options{}) }

// running is a manager that runs in this process.
type running struct {
	t         *testing.T
	config    string
	addresses addresses
	cancel    context.CancelFunc
	done      chan error
	one, two  *fake
}

func (api *fakeAPI) StartManager(args ...string) *running {
	api.t.Helper()
	return api.StartManagerWith("", args...)
}

// StartManagerWith takes fields for the configuration.
func (api *fakeAPI) StartManagerWith(fields string, args ...string) *running {
	api.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(api.t.Context()))
	m := &running{
		t: api.t, config: filepath.Join(api.t.TempDir(), "config.yaml"), cancel: cancel, done: make(chan error, 1),
		one: &fake{}, two: &fake{},
	}
	m.Write(strings.Replace(minimal, "fake", "one", 1) + fields)
	args = append([]string{
		"--config=" + m.config, "--kubeconfig=" + kubeconfig(api.t, api.url),
		"--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0",
	}, args...)
	listening := make(chan addresses, 1)
	go func() {
		m.done <- Run(ctx, args, WithLogger(quiet()), func(o *options) { o.listening = func(at addresses) { listening <- at } },
			WithRegistry("fake", newFake), WithRegistry("one", always(m.one)), WithRegistry("two", always(m.two)))
	}()
	select {
	case m.addresses = <-listening:
	case err := <-m.done:
		cancel()
		api.t.Fatalf("the manager did not come up: %v", err)
	}
	api.t.Cleanup(cancel)
	return m
}

func (m *running) Write(content string) {
	m.t.Helper()
	must(m.t, os.WriteFile(m.config+".new", []byte(content), 0o600))
	must(m.t, os.Rename(m.config+".new", m.config))
}

// Stop stops the manager and returns what Run returned.
func (m *running) Stop() error {
	m.t.Helper()
	m.cancel()
	return receive(m.t, m.done)
}

// ExpectAnswer waits until the manager answers so.
func (m *running) ExpectAnswer(address, path string, code int, parts ...string) {
	m.t.Helper()
	expect.Soon(m.t, "the answer", func() error {
		request, err := http.NewRequestWithContext(m.t.Context(), http.MethodGet, "http://"+address+path, http.NoBody)
		must(m.t, err)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(response.Body)
		if closeErr := response.Body.Close(); err != nil || closeErr != nil {
			return fmt.Errorf("reading: %w, %w", err, closeErr)
		}
		for _, part := range parts {
			if response.StatusCode != code || !strings.Contains(string(body), part) {
				return fmt.Errorf("%s answers %d %q, want %d and %q", path, response.StatusCode, body, code, part)
			}
		}
		return nil
	})
}
