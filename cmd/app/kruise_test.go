package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
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

func TestKruiseStartsTheControllerWhenOpenKruiseAppears(t *testing.T) {
	t.Parallel()
	s := newKruiseScenario()
	if got := s.kruise.unready(); got != reasonStarting {
		t.Errorf("at first not ready because %q, want %q", got, reasonStarting)
	}
	s.Answer(nil, apierrors.NewNotFound(schema.GroupResource{}, ""))
	done := s.Start(t)
	s.ExpectUnready(t, "OpenKruise is not installed")

	s.Answer([]string{"sidecarsets"}, nil)
	s.ExpectAsked(t)
	s.ExpectUnready(t, "no CRD clonesets.apps.kruise.io")

	s.Answer(nil, errors.New("connection refused"))
	s.ExpectUnready(t, "can't ask the API server for OpenKruise: connection refused")
	if s.setUp.Load() {
		t.Error("the controller was set up without OpenKruise")
	}

	s.Answer([]string{"clonesets", "clonesets/status"}, nil)
	must(t, receive(t, done))
	if !s.setUp.Load() {
		t.Fatal("the controller was not set up")
	}
	s.ExpectUnready(t, "caches are not synced yet: pods could not be listed so far; CloneSets could not be listed so far; nodes could not be "+
		"listed so far; namespaces")
	s.informer.synced.Store(true)
	s.ExpectUnready(t, "")
	s.ExpectLogged(t, "OpenKruise is not installed", "connection refused", "OpenKruise is installed")
}

func TestKruiseNamesTheCachesThatAreNotSynced(t *testing.T) {
	t.Parallel()
	s := newKruiseScenario()
	s.informer.synced.Store(true)
	s.informers.metadata = &fakeInformer{}
	synced := make(chan struct{})
	s.kruise.setup = func(context.Context) error {
		<-synced // as controller-runtime waits for the cache of nodes
		return nil
	}
	s.kruise.failures.note(metadataType, errors.New(`nodes is forbidden: cannot list resource "nodes"`))
	s.Answer([]string{"clonesets"}, nil)
	done := s.Start(t)
	s.ExpectUnready(t, `not synced yet: nodes could not be listed so far: nodes is forbidden: cannot list resource "nodes"; `+
		"namespaces could not be listed so far")
	s.informers.metadata.synced.Store(true)
	s.ExpectUnready(t, reasonStarting)
	close(synced)
	must(t, receive(t, done))
	s.ExpectUnready(t, "")
}

func TestKruiseIsNotReadyWhileAWatchIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newKruiseScenario()
		s.informer.synced.Store(true)
		s.Answer([]string{"clonesets"}, nil)
		must(t, receive(t, s.Start(t)))
		described := fmt.Sprintf("%T", &kruisev1alpha1.CloneSet{})
		s.kruise.failures.note(described, errors.New("connection refused"))
		s.ExpectUnready(t, "")
		s.kruise.failures.note(described, apierrors.NewForbidden(
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
	options := cacheOptions(nil, failures.failed)
	options.Mapper, _ = mapper(nil, nil)
	options.Scheme = newScheme()
	made, err := cache.New(&rest.Config{Host: server.URL}, options)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- made.Start(ctx) }()
	_, err = made.GetInformer(ctx, clusterstate.NodeMetadata(), cache.BlockUntilSynced(false))
	must(t, err)
	expect.Soon(t, "the failure to be noted", func() error {
		failure := failures.of(watched{kind: "nodes", described: metadataType}).err
		if !apierrors.IsForbidden(failure) {
			return fmt.Errorf("known of nodes: %w", failure)
		}
		return nil
	})
	cancel()
	must(t, receive(t, ended))
}

func TestKruiseEndsWithAnInformersError(t *testing.T) {
	t.Parallel()
	s := newKruiseScenario()
	s.informers.err = errors.New("no luck")
	s.Answer([]string{"clonesets"}, nil)
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
	s.Answer(nil, apierrors.NewNotFound(schema.GroupResource{}, ""))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.kruise.Start(ctx) }()
	s.ExpectUnready(t, "OpenKruise is not installed")
	cancel()
	must(t, receive(t, done))
}

// kruiseScenario is an API server that the test answers for.
type kruiseScenario struct {
	kruise    *kruise
	informers *fakeInformers
	informer  *fakeInformer
	setUp     atomic.Bool

	mu        sync.Mutex
	resources []string
	err       error
	asked     int
	logged    []string
}

func newKruiseScenario() *kruiseScenario {
	s := &kruiseScenario{informer: &fakeInformer{}}
	s.informers = &fakeInformers{informer: s.informer}
	s.kruise = &kruise{
		discovery: s, informers: s.informers, interval: time.Millisecond,
		setup:  func(context.Context) error { s.setUp.Store(true); return nil },
		logger: s.logger(), failures: &watchFailures{},
	}
	return s
}

func (s *kruiseScenario) logger() logr.Logger {
	return funcr.New(func(_, args string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.logged = append(s.logged, args)
	}, funcr.Options{})
}

func (s *kruiseScenario) ServerResourcesForGroupVersionWithContext(
	context.Context, string,
) (*metav1.APIResourceList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	list := &metav1.APIResourceList{}
	for _, name := range s.resources {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
	}
	return list, s.err
}

func (s *kruiseScenario) Answer(resources []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resources, s.err, s.asked = resources, err, 0
}

func (s *kruiseScenario) Start(t *testing.T) <-chan error {
	done := make(chan error, 1)
	go func() { done <- s.kruise.Start(t.Context()) }()
	return done
}

// ExpectAsked waits until the present answer was given and taken in.
func (s *kruiseScenario) ExpectAsked(t *testing.T) {
	t.Helper()
	expect.Soon(t, "the answer to be taken in", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.asked < 2 {
			return errors.New("the manager has not asked")
		}
		return nil
	})
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

// ExpectLogged expects exactly one line for each part, in order.
func (s *kruiseScenario) ExpectLogged(t *testing.T, parts ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.logged) != len(parts) {
		t.Fatalf("logged %q, want a line for each of %q", s.logged, parts)
	}
	for i, part := range parts {
		if !strings.Contains(s.logged[i], part) {
			t.Errorf("line %d is %q, want %q in it", i, s.logged[i], part)
		}
	}
}

type fakeInformers struct {
	cache.Informers
	informer cache.Informer
	// metadata, of nodes and namespaces, is informer where it is nil.
	metadata *fakeInformer
	err      error
}

func (f *fakeInformers) GetInformer(
	_ context.Context, object client.Object, _ ...cache.InformerGetOption,
) (cache.Informer, error) {
	switch object.(type) {
	case *corev1.Pod:
		return f.informer, f.err
	case *metav1.PartialObjectMetadata:
		if f.metadata != nil {
			return f.metadata, nil
		}
	}
	return f.informer, nil
}

type fakeInformer struct {
	cache.Informer
	synced atomic.Bool
}

func (f *fakeInformer) HasSynced() bool { return f.synced.Load() }
