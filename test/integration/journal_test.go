package integration

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/http/httpserver"
	"github.com/rollcall-dev/rollcall/registry/memory"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
	"github.com/rollcall-dev/rollcall/test/harness/process"
)

// clusterName is the owner mark of every manager here.
const clusterName = "integration"

// onlyRegistry is the name of a registry that is the only one.
const onlyRegistry = "default"

// registryServer is the team's own registry that Rollcall's http driver talks to, over real sockets and with faults on
// demand.
type registryServer struct {
	*fakeregistry.Registry

	listener net.Listener
	address  string
	handler  http.Handler
	server   *http.Server
	// tls is nil where it speaks plain HTTP.
	tls *tls.Config
}

// registryOptions make a registry of another kind; the zero value is open to all, and speaks plain HTTP.
type registryOptions struct {
	// authorize decides on the token of a request.
	authorize func(token string) bool
	// around stands before the protocol.
	around func(http.Handler) http.Handler
	// tls is what it proves itself with.
	tls *tls.Config
}

func newRegistryServer(o registryOptions) (*registryServer, error) {
	backend, err := memory.New(context.Background(), registry.Config{Cluster: clusterName})
	if err != nil {
		return nil, err
	}
	r := &registryServer{tls: o.tls, Registry: fakeregistry.New(backend.(fakeregistry.Backend))}
	r.handler = httpserver.New(r.Registry, httpserver.Options{Authorize: o.authorize})
	if o.around != nil {
		r.handler = o.around(r.handler)
	}
	return r, r.Up()
}

// startRegistry is newRegistryServer for one test.
func startRegistry(t *testing.T, o registryOptions) *registryServer {
	t.Helper()
	r, err := newRegistryServer(o)
	expect.NoError(t, err)
	t.Cleanup(r.Down)
	return r
}

func (r *registryServer) URL() string {
	if r.tls != nil {
		return "https://" + r.address
	}
	return "http://" + r.address
}

// Up has the registry listen, after Down at the address it had.
func (r *registryServer) Up() error {
	if r.address == "" {
		ports, err := process.FreePorts(context.Background(), 1)
		if err != nil {
			return err
		}
		r.address = fmt.Sprintf("127.0.0.1:%d", ports[0])
	}
	listener, err := net.Listen("tcp", r.address)
	if err != nil {
		return err
	}
	if r.tls != nil {
		listener = tls.NewListener(listener, r.tls)
	}
	r.listener = listener
	// What it has to say of bad handshakes is the point of some tests.
	quiet := log.New(io.Discard, "", 0)
	r.server = &http.Server{Handler: r.handler, ReadHeaderTimeout: time.Minute, ErrorLog: quiet}
	server := r.server
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			panic(err)
		}
	}()
	return nil
}

// Down closes the registry's port and every connection; what it holds stays.
func (r *registryServer) Down() { _ = r.server.Close() }

// asksTheSame: what clients see of an instance counts only while it is in service.
func asksTheSame(a, b fakeregistry.Call) bool {
	return a.Op == b.Op && (a.Op != fakeregistry.OpRegister || a.Instance.Equal(b.Instance))
}

// Answers returns the calls for one pod that were answered, or for a whole namespace where uid is empty, as they came.
func (r *registryServer) Answers(namespace, uid string) []fakeregistry.Call {
	all := r.Calls(fakeregistry.Match{Namespace: namespace, UID: uid})
	return slices.DeleteFunc(all, func(c fakeregistry.Call) bool { return c.Answered.IsZero() })
}

// Entries returns what the registry holds of a namespace.
func (r *registryServer) Entries(t *testing.T, namespace string) []registry.Entry {
	t.Helper()
	all, err := r.Truth(context.Background(), clusterName)
	if err != nil {
		t.Fatalf("reading the registry: %v", err)
	}
	return slices.DeleteFunc(all, func(e registry.Entry) bool { return e.Namespace != namespace })
}

// serving returns what the registry gives to clients of a namespace.
func (r *registryServer) serving(t *testing.T, namespace string) []registry.Entry {
	t.Helper()
	return slices.DeleteFunc(r.Entries(t, namespace), func(e registry.Entry) bool { return e.State != registry.InService })
}

// gives reports whether clients are given the pod.
func (r *registryServer) gives(t *testing.T, namespace string, pod *corev1.Pod) bool {
	t.Helper()
	return slices.ContainsFunc(r.serving(t, namespace), func(e registry.Entry) bool { return e.UID == string(pod.UID) })
}
