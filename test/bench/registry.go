package main

import (
	"context"
	"net/http"
	"net/http/httptest"
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
}

// backend is what the registry holds, and what answers for it.
type backend struct {
	*memory.Registry

	handler http.Handler
}

func startRegistry(ctx context.Context) *registryServer {
	s := &registryServer{}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	s.reset(ctx, false)
	return s
}

// reset forgets everything. The server takes batches from now on, or single changes only.
func (s *registryServer) reset(ctx context.Context, batches bool) {
	opts := httpserver.Options{}
	if batches {
		opts.BatchLimit = batchLimit
	}
	entries := fakeregistry.Memory(ctx)
	s.serves.Store(&backend{entries, httpserver.New(entries, opts)})
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
