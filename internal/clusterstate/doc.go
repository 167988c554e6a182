// Package clusterstate knows pods, workloads and namespaces together. It changes nothing in the cluster.
//
//	Claims      which namespace may use a service name
//	Panics      which services have too many unready pods
//	Workloads   which workloads there are
package clusterstate

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
)

// Rules are the configuration for all pods together.
type Rules struct {
	Ownership lifecycle.Ownership
	Services  service.Rules
	// PanicThreshold, in percent: while more pods of a service are unready, all stay in rotation. At 0 they always do.
	PanicThreshold int
}

// State is all of it. Each part has a lock of its own and is safe for concurrent use.
type State struct {
	Claims    *Claims
	Panics    *Panics
	Workloads *Workloads
	// Scope are the namespaces that count.
	Scope *Scope
	// Records are those of pods in the cache.
	Records *Records
}

// New returns a State that reads from the cache.
func New(cache client.Reader, pods Pods, scope *Scope) *State {
	claims, records := newClaims(), &Records{}
	return &State{
		Claims: claims, Panics: newPanics(claims, records), Records: records, Scope: scope,
		Workloads: &Workloads{cache: cache, pods: pods, claims: claims, scope: scope},
	}
}

// NameRefused returns why a workload without hooks may not use one of its names in its own of the registries, or nil.
func (s *State) NameRefused(
	ctx context.Context, rules *Rules, registries []lifecycle.Source, own func(service.Subject) ([]lifecycle.Source, error),
	workload *Workload, now time.Time,
) (*Refusal, error) {
	if err := s.Workloads.Refresh(ctx, rules, registries, now); err != nil {
		return nil, err
	}
	subject := s.inNamespace(workload.Subject())
	use := Use{Rules: rules, Now: now}
	use.Pod.Namespace = workload.GetNamespace()
	sources, _ := own(subject) // its pods get the warning
	for _, in := range sources {
		endpoints, err := rules.Services.EndpointsIn(in.Registry, subject)
		if err != nil {
			return nil, fmt.Errorf("reading the services: %w", err)
		}
		for _, e := range endpoints {
			use.Registry, use.Service = in.Registry, e.Service
			if refused, _ := s.Claims.Ask(use); refused != nil {
				return refused, nil
			}
		}
	}
	return nil, nil //nolint:nilnil // they may have all
}
