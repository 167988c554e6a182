package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/memory"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
	"github.com/rollcall-dev/rollcall/test/harness/httpserver"
)

const (
	listPath   = "/v1/instances"
	batchLimit = 1000
)

// registryServer speaks the protocol of the driver http. It remembers, answers after a delay, and counts.
type registryServer struct {
	*httptest.Server

	delay  atomic.Int64
	serves atomic.Pointer[backend]
	// changes counts calls that change something, a batch as one, and lists those that list.
	changes, lists, underWay atomic.Int64
	// first is when each pod was registered first, and when it was taken out first.
	first sync.Map
}

// change is one of a pod, in or out.
type change struct {
	pod string
	in  bool
}

// backend writes down when each pod came in and went out first.
type backend struct {
	*memory.Registry

	first   *sync.Map
	handler http.Handler
}

func (b *backend) Register(ctx context.Context, in registry.Instance) error {
	return b.note(in, true, b.Registry.Register(ctx, in))
}

func (b *backend) FailOver(ctx context.Context, in registry.Instance) error {
	return b.note(in, false, b.Registry.FailOver(ctx, in))
}

func (b *backend) Deregister(ctx context.Context, in registry.Instance) error {
	return b.note(in, false, b.Registry.Deregister(ctx, in))
}

func (b *backend) note(in registry.Instance, isIn bool, err error) error {
	if err == nil {
		b.first.LoadOrStore(change{in.Pod, isIn}, time.Now())
	}
	return err
}

func startRegistry(ctx context.Context) *registryServer {
	s := &registryServer{}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	s.reset(ctx, false)
	return s
}

// reset forgets everything. The server takes batches from now on, or single changes only.
func (s *registryServer) reset(ctx context.Context, batches bool) {
	s.first.Clear()
	opts := httpserver.Options{}
	if batches {
		opts.BatchLimit = batchLimit
	}
	b := &backend{Registry: fakeregistry.Memory(ctx), first: &s.first}
	b.handler = httpserver.New(b, opts)
	s.serves.Store(b)
}

func (s *registryServer) setDelay(d time.Duration) { s.delay.Store(int64(d)) }

func (s *registryServer) serve(w http.ResponseWriter, r *http.Request) {
	s.underWay.Add(1)
	defer s.underWay.Add(-1)
	switch {
	case r.Method != http.MethodGet:
		s.changes.Add(1)
	case r.URL.Path == listPath:
		s.lists.Add(1)
	}
	timer := time.NewTimer(time.Duration(s.delay.Load()))
	defer timer.Stop()
	select {
	case <-timer.C:
		s.serves.Load().handler.ServeHTTP(w, r)
	case <-r.Context().Done():
	}
}

// inService is how many instances clients are given.
func (s *registryServer) inService(ctx context.Context) int {
	entries, err := s.serves.Load().List(ctx, clusterName)
	if err != nil {
		return -1
	}
	n := 0
	for _, e := range entries {
		if e.State == registry.InService {
			n++
		}
	}
	return n
}
