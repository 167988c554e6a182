package main

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	discovery "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/wait"
)

// endpointSlices are a registry that clients follow by one watch, as a gateway does.
type endpointSlices struct {
	lister     discovery.EndpointSliceLister
	controller int // the process of the EndpointSlice controller

	mu      sync.Mutex
	index   uint64
	changed chan struct{} // closed with the next change
}

func watchEndpointSlices(ctx context.Context, config *rest.Config, controller int) (*endpointSlices, error) {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	factory := informers.NewSharedInformerFactory(clients, 0)
	watched := factory.Discovery().V1().EndpointSlices()
	s := &endpointSlices{lister: watched.Lister(), controller: controller, changed: make(chan struct{})}
	_, err = watched.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { s.change() },
		UpdateFunc: func(any, any) { s.change() },
		DeleteFunc: func(any) { s.change() },
	})
	if err != nil {
		return nil, fmt.Errorf("watching EndpointSlices: %w", err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return s, nil
}

func (s *endpointSlices) change() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.index++
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *endpointSlices) now() (index uint64, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.index, s.changed
}

// lookUp implements directory. The Service of an arm has the arm's name.
func (s *endpointSlices) lookUp(ctx context.Context, service string, index uint64) ([]registry.Entry, uint64, error) {
	now, changed := s.now()
	if now == index {
		select {
		case <-changed:
		case <-time.After(blockFor):
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
		now, _ = s.now()
	}
	found, err := s.lister.List(labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: service}))
	if err != nil {
		return nil, 0, fmt.Errorf("reading EndpointSlices: %w", err)
	}
	var entries []registry.Entry
	for _, slice := range found {
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				entries = append(entries, registry.Entry{State: registry.InService, Instance: registry.Instance{
					Service: service, Address: e.Addresses[0], Port: int(*slice.Ports[0].Port), Pod: e.TargetRef.Name, UID: string(e.TargetRef.UID),
				}})
			}
		}
	}
	return entries, now, nil
}

// takeNoWrites implements directory: nobody writes EndpointSlices while their controller stands still.
func (s *endpointSlices) takeNoWrites(ctx context.Context, span time.Duration) error {
	if err := syscall.Kill(s.controller, syscall.SIGSTOP); err != nil {
		return fmt.Errorf("pausing the EndpointSlice controller: %w", err)
	}
	wait.Pause(ctx, span)
	if err := syscall.Kill(s.controller, syscall.SIGCONT); err != nil {
		return fmt.Errorf("resuming the EndpointSlice controller: %w", err)
	}
	return nil
}
