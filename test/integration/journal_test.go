package integration

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
	"github.com/rollcall-dev/rollcall/test/harness/httpserver"
)

// clusterName is the owner mark of every manager here.
const clusterName = "integration"

// onlyRegistry is the name of a registry that is the only one.
const onlyRegistry = "default"

// registryServer is the team's own registry that Rollcall's http driver talks to, over real sockets and with faults on
// demand.
type registryServer struct {
	*fakeregistry.Registry

	server *httptest.Server
}

// newRegistryServer starts a registry, with handlers that stand before the protocol.
func newRegistryServer(before ...func(http.Handler) http.Handler) *registryServer {
	r := &registryServer{Registry: fakeregistry.New(fakeregistry.Memory(context.Background()))}
	handler := httpserver.New(r.Registry, httpserver.Options{})
	for _, one := range before {
		handler = one(handler)
	}
	r.server = httptest.NewServer(handler)
	return r
}

// startRegistry is newRegistryServer for one test.
func startRegistry(t *testing.T, before ...func(http.Handler) http.Handler) *registryServer {
	t.Helper()
	r := newRegistryServer(before...)
	t.Cleanup(r.server.Close)
	return r
}

func (r *registryServer) URL() string { return r.server.URL }

// Answers returns the calls for one pod that were answered, or for a whole namespace where uid is empty, as they came.
func (r *registryServer) Answers(namespace, uid string) []fakeregistry.Call {
	all := r.Calls(fakeregistry.Match{Namespace: namespace, UID: uid})
	return slices.DeleteFunc(all, func(c fakeregistry.Call) bool { return c.Answered.IsZero() })
}

func (r *registryServer) Entries(t *testing.T, namespace string) []registry.Entry {
	t.Helper()
	all, err := r.Truth(context.Background(), clusterName)
	if err != nil {
		t.Fatalf("reading the registry: %v", err)
	}
	return slices.DeleteFunc(all, func(e registry.Entry) bool { return e.Namespace != namespace })
}

func (r *registryServer) serving(t *testing.T, namespace string) []registry.Entry {
	t.Helper()
	return slices.DeleteFunc(r.Entries(t, namespace), func(e registry.Entry) bool { return e.State != registry.InService })
}

func (r *registryServer) gives(t *testing.T, namespace string, pod *corev1.Pod) bool {
	t.Helper()
	return slices.ContainsFunc(r.serving(t, namespace), func(e registry.Entry) bool { return e.UID == string(pod.UID) })
}
