package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestKruiseStartsTheControllerWhenAllCachesAreFilled(t *testing.T) {
	t.Parallel()
	s := newKruiseScenario()
	s.ExpectUnready(t, reasonStarting)
	s.Fails(&kruisev1alpha1.CloneSet{}, apierrors.NewNotFound(schema.GroupResource{}, ""))
	ready := make(chan struct{})
	s.kruise.setup = func(context.Context) error { s.setUp.Store(true); <-ready; return nil }
	done := s.Start(t)
	s.ExpectUnready(t, "caches are not synced yet: pods could not be listed so far; CloneSets: OpenKruise is not installed: no CRD "+
		"clonesets.apps.kruise.io")
	s.Fails(&kruisev1alpha1.CloneSet{}, errors.New("connection refused"))
	s.ExpectUnready(t, "CloneSets could not be listed so far: connection refused; StatefulSets could not be listed so far; "+
		"DaemonSets could not be listed so far; nodes could not be listed so far; namespaces")
	s.informers.typed.synced.Store(true)
	s.Fails(clusterstate.NamespaceMetadata(), errors.New(`namespaces is forbidden: cannot list resource "namespaces"`))
	s.ExpectUnready(t, `not synced yet: namespaces could not be listed so far: namespaces is forbidden: cannot list resource "namespaces"`)
	if s.setUp.Load() {
		t.Error("the controller was set up before the caches were filled, and gives up after a while")
	}
	s.informers.metadata.synced.Store(true)
	s.ExpectUnready(t, reasonStarting)
	close(ready)
	must(t, receive(t, done))
	s.ExpectUnready(t, "")
}

func TestKruiseIsNotReadyWhileAWatchIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newKruiseScenario()
		s.informers.typed.synced.Store(true)
		s.informers.metadata.synced.Store(true)
		must(t, receive(t, s.Start(t)))
		s.Fails(&kruisev1alpha1.CloneSet{}, errors.New("connection refused"))
		s.ExpectUnready(t, "")
		s.Fails(&kruisev1alpha1.CloneSet{}, apierrors.NewForbidden(
			schema.GroupResource{Group: "apps.kruise.io", Resource: "clonesets"}, "", errors.New("cannot watch resource")))
		s.ExpectUnready(t, "the API server refuses a watch, so what this manager knows is out of date: "+
			`CloneSets: clonesets.apps.kruise.io is forbidden: cannot watch resource`)
		if reason := s.kruise.unfilled(); reason != "" {
			t.Errorf("the caches count as not filled: %s, but a list fills them", reason)
		}
		time.Sleep(refusalHolds)
		s.ExpectUnready(t, "the API server refuses a watch")
		time.Sleep(time.Nanosecond)
		if got := s.kruise.unready(); got != "" {
			t.Errorf("%s after the refusal: not ready because %s", refusalHolds, got)
		}
	})
}

func TestWatchFailuresNoteAForbiddenList(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"nodes is forbidden"}`))
	}))
	t.Cleanup(server.Close)
	failures := &watchFailures{}
	pods := clusterstate.NewPodCache(nil)
	options := cacheOptions(nil, failures.failed, pods, pods.NewInformer)
	options.Mapper, _ = mapper(nil, nil)
	options.Scheme = newScheme()
	made, err := cache.New(&rest.Config{Host: server.URL}, options)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- made.Start(ctx) }()
	_, err = made.GetInformer(ctx, &corev1.Node{}, cache.BlockUntilSynced(false))
	must(t, err)
	expect.Soon(t, "the failure to be noted", func() error {
		failure := failures.of(watched{kind: "nodes", object: &corev1.Node{}}).err
		if !apierrors.IsForbidden(failure) {
			return fmt.Errorf("known of nodes: %w", failure)
		}
		return nil
	})
	cancel()
	must(t, receive(t, ended))
}

// TestKruiseWithoutNodes: Roles can't grant them, and only what needs them goes without.
func TestKruiseWithoutNodes(t *testing.T) {
	t.Parallel()
	s := newKruiseScenario()
	s.kruise.withoutNodes = true
	s.informers.typed.synced.Store(true)
	s.informers.metadata.synced.Store(true)
	s.Fails(&corev1.Node{}, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("cannot list resource")))
	must(t, receive(t, s.Start(t)))
	s.ExpectUnready(t, "")
	if s.informers.nodes.Load() {
		t.Error("nodes are watched without the right")
	}
}

func TestKruiseEndsWithAnInformersError(t *testing.T) {
	t.Parallel()
	s := newKruiseScenario()
	s.informers.err = errors.New("no luck")
	if err := receive(t, s.Start(t)); err == nil || !strings.Contains(err.Error(), "no luck") {
		t.Errorf("got %v, want the informer's error", err)
	}
	if s.setUp.Load() {
		t.Error("the controller was set up without its informers")
	}
	s.ExpectUnready(t, reasonStarting)
}

func TestKruiseEndsWithTheManager(t *testing.T) {
	t.Parallel()
	s := newKruiseScenario()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.kruise.Start(ctx) }()
	s.ExpectUnready(t, reasonUnsynced)
	cancel()
	must(t, receive(t, done))
	if s.setUp.Load() {
		t.Error("the controller was set up when the manager ended")
	}
}

// kruiseScenario is a cache that the test fills.
type kruiseScenario struct {
	kruise    *kruise
	informers *fakeInformers
	setUp     atomic.Bool
}

func newKruiseScenario() *kruiseScenario {
	s := &kruiseScenario{informers: &fakeInformers{}}
	s.kruise = &kruise{
		informers: s.informers, failures: &watchFailures{},
		setup: func(context.Context) error { s.setUp.Store(true); return nil },
	}
	return s
}

// Fails has the watch of a kind fail.
func (s *kruiseScenario) Fails(kind client.Object, err error) {
	s.kruise.failures.note(fmt.Sprintf("%T", kind), err)
}

func (s *kruiseScenario) Start(t *testing.T) <-chan error {
	done := make(chan error, 1)
	go func() { done <- s.kruise.Start(t.Context()) }()
	return done
}

func (s *kruiseScenario) ExpectUnready(t *testing.T, reason string) {
	t.Helper()
	expect.Soon(t, "the reason", func() error {
		got := s.kruise.unready()
		if !strings.Contains(got, reason) || reason == "" && got != "" {
			return errors.New("not ready because " + got + ", want " + reason)
		}
		return nil
	})
}

type fakeInformers struct {
	cache.Informers
	// typed is of pods, workloads and nodes, metadata of namespaces.
	typed, metadata fakeInformer
	nodes           atomic.Bool
	err             error
}

func (f *fakeInformers) GetInformer(_ context.Context, o client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	if _, is := o.(*metav1.PartialObjectMetadata); is {
		return &f.metadata, f.err
	}
	if _, is := o.(*corev1.Node); is {
		f.nodes.Store(true)
	}
	return &f.typed, f.err
}

type fakeInformer struct {
	cache.Informer
	synced atomic.Bool
}

func (f *fakeInformer) HasSynced() bool { return f.synced.Load() }
