package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
)

const (
	namespacesInterval = time.Minute
	// namespacesTimeout bounds the questions at start.
	namespacesTimeout = 10 * time.Second
)

var errNamespaces = errors.New("namespaces")

// namespaces ends the manager when another choice of the configuration's namespaces can be watched. A cache can't be given others
// while it runs, and if the rights come with a Role in each, one namespace that is gone would keep it from being filled.
type namespaces struct {
	server  client.Client
	cache   client.Reader
	listed  []string
	watched []string
	stop    context.CancelCauseFunc
	logger  logr.Logger
}

// newNamespaces chooses what to watch: all if the API server does not answer.
func newNamespaces(ctx context.Context, server client.Client, listed []string, logger logr.Logger) *namespaces {
	n := &namespaces{server: server, listed: listed, watched: listed, logger: logger}
	ctx, cancel := context.WithTimeout(ctx, namespacesTimeout)
	defer cancel()
	choice, err := n.choose(ctx, server)
	if err != nil {
		logger.Error(err, "asking which namespaces of the configuration exist; all are watched")
		return n
	}
	if n.watched = choice; len(choice) < len(listed) {
		logger.Info("not all namespaces of the configuration exist; a restart follows when one does", "watched", choice)
	}
	return n
}

// choose returns the namespaces of the list that are watched so far and exist, or may be watched; all if there is none, for an empty
// list means the whole cluster. One that exists without the rights counts: the manager reports what it lacks.
func (n *namespaces) choose(ctx context.Context, reader client.Reader) ([]string, error) {
	var choice []string
	for _, name := range n.listed {
		namespace := clusterstate.NamespaceMetadata()
		err := reader.Get(ctx, client.ObjectKey{Name: name}, namespace)
		watchable := err == nil && namespace.DeletionTimestamp == nil && slices.Contains(n.watched, name)
		if err = client.IgnoreNotFound(err); err == nil && !watchable {
			watchable, err = n.permitted(ctx, name)
		}
		if err != nil {
			return nil, fmt.Errorf("namespace %s: %w", name, err)
		}
		if watchable {
			choice = append(choice, name)
		}
	}
	if len(choice) == 0 {
		return n.listed, nil
	}
	return choice, nil
}

// permitted reports whether the manager may watch pods in the namespace.
func (n *namespaces) permitted(ctx context.Context, namespace string) (bool, error) {
	return allowed(ctx, n.server, authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "watch", Resource: "pods"})
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every manager has the caches.
func (*namespaces) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (n *namespaces) Start(ctx context.Context) error {
	_ = wait.PollUntilContextCancel(ctx, namespacesInterval, false, func(ctx context.Context) (bool, error) {
		err := n.check(ctx)
		if err != nil {
			n.stop(err) // as at a signal: an error from here would end the manager before it gives the lease back
		}
		return err != nil, nil
	})
	return nil
}

// check returns an error if the choice has changed.
func (n *namespaces) check(ctx context.Context) error {
	choice, err := n.choose(ctx, n.cache)
	if err != nil {
		n.logger.Error(err, "asking which namespaces of the configuration exist")
		return nil
	}
	if !slices.Equal(choice, n.watched) {
		return fmt.Errorf("%w: %s can be watched now, and %s are: the manager exits, to start again with those",
			errNamespaces, strings.Join(choice, ", "), strings.Join(n.watched, ", "))
	}
	return nil
}
