package app

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	rightsof "github.com/rollcall-dev/rollcall/internal/rights"
)

const (
	rightsInterval = 10 * time.Second
	rightsTimeout  = 10 * time.Second
)

// need is what a feature waits for.
type need struct {
	rightsof.Feature

	// there is closed once the manager has all rights.
	there chan struct{}
	// lacks is what is missing, as far as known; nil if nothing is.
	lacks atomic.Pointer[string]
	// event is about those that are missing.
	event lasting
}

// needs returns what the features that are on need, in addition to what every manager has.
func (a *app) needs() (needs []*need) {
	for _, of := range rightsof.Of(a.features, a.options.slices.Wanted(), a.flags.metrics.secure) {
		needs = append(needs, &need{Feature: of, there: make(chan struct{}), event: lasting{action: "Start", reason: "RightsMissing"}})
	}
	return needs
}

// rights asks for the rights of the features again and again, until they are there. No feature holds anything else up meanwhile.
type rights struct {
	// server asks whether or not this manager leads.
	server     client.Client
	namespaces []string
	webhook    string
	needs      []*need
	events     *configEvents
	logger     logr.Logger

	// failure is the last error of the API server that was logged.
	failure string
}

// of returns the feature's need. That of one that is off is empty: its channel is nil, which is never closed.
func (r *rights) of(feature string) *need {
	if i := slices.IndexFunc(r.needs, func(n *need) bool { return n.Name == feature }); i >= 0 {
		return r.needs[i]
	}
	return &need{}
}

// lacking returns which rights the feature waits for, as far as known; empty if none are missing, or it is off.
func (n *need) lacking() string { return ptr.Deref(n.lacks.Load(), "") }

// NeedLeaderElection makes it run without the lease: every manager serves the webhook.
func (*rights) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (r *rights) Start(ctx context.Context) error {
	_ = wait.PollUntilContextCancel(ctx, rightsInterval, true, func(ctx context.Context) (bool, error) { return r.once(ctx), nil })
	return nil
}

// once reports whether every feature has its rights.
func (r *rights) once(ctx context.Context) bool {
	all := true
	for _, n := range r.needs {
		if isClosed(n.there) {
			continue
		}
		missing, err := r.missing(ctx, n)
		switch {
		case err != nil:
			if text := err.Error(); text != r.failure && ctx.Err() == nil {
				r.logger.Error(err, "failed to ask which rights the manager has; features wait for the answer")
				r.failure = text
			}
			all = false
		case missing == "":
			if n.event.note != "" {
				r.logger.Info("the rights of a feature are there", "feature", n.Name)
			}
			n.lacks.Store(nil)
			close(n.there)
		default:
			n.tell(missing, r.logger)
			n.event.make(ctx, r.events)
			all = false
		}
	}
	return all
}

// tell logs what is missing if that is new.
func (n *need) tell(missing string, logger logr.Logger) {
	note := fmt.Sprintf("%s waits for rights that the manager lacks: %s. %s", n.Name, missing, n.Remedy())
	n.lacks.Store(&note)
	if note == n.event.note {
		return
	}
	logger.Info("a feature waits for rights: apply its component", "feature", n.Name, "missing", missing, "component",
		"config/components/"+n.Component)
	n.event.set(note)
}

// missing lists the rights that the manager lacks.
func (r *rights) missing(ctx context.Context, n *need) (string, error) {
	return n.Missing(rightsof.Asker{
		Namespaces: r.namespaces, Own: podNamespace(), Webhook: r.webhook,
		Allowed: func(what authorizationv1.ResourceAttributes) (bool, error) { return allowed(ctx, r.server, what) },
	})
}

// allowed asks the API server whether this manager may do something.
func allowed(ctx context.Context, server client.Client, what authorizationv1.ResourceAttributes) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, rightsTimeout)
	defer cancel()
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &what}}
	if err := server.Create(ctx, review); err != nil {
		return false, fmt.Errorf("asking for the right to %s %s: %w", what.Verb, what.Resource, err)
	}
	return review.Status.Allowed, nil
}

// after is a runnable that waits for its rights.
type after struct {
	manager.Runnable

	there <-chan struct{}
}

// NeedLeaderElection is that of the runnable.
func (a *after) NeedLeaderElection() bool {
	of, says := a.Runnable.(manager.LeaderElectionRunnable)
	return !says || of.NeedLeaderElection()
}

// Start implements manager.Runnable.
func (a *after) Start(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-a.there:
		return a.Runnable.Start(ctx)
	}
}
