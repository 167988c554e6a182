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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
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
	server client.Client
	pods   clusterstate.Pods
	scope  *clusterstate.Scope
	// listed is empty if the configuration has no list.
	listed  []string
	watched []string
	reach   reach
	// assumed is set while the API server has not answered what can be watched of the whole cluster.
	assumed bool
	stop    context.CancelCauseFunc
	logger  logr.Logger
}

// newNamespaces chooses what to watch: all of a list if the API server does not answer. With a selector, the whole cluster is watched.
func newNamespaces(ctx context.Context, server client.Client, chosen service.Namespaces, logger logr.Logger) *namespaces {
	n := listedNamespaces(ctx, server, chosen.Names, logger)
	n.scope = clusterstate.NewScope(chosen, n.watched)
	return n
}

func listedNamespaces(ctx context.Context, server client.Client, listed []string, logger logr.Logger) *namespaces {
	n := &namespaces{server: server, listed: listed, watched: listed, reach: reach{nodes: true, namespaces: true}, logger: logger}
	ctx, cancel := context.WithTimeout(ctx, namespacesTimeout)
	defer cancel()
	n.limit(ctx)
	choice, err := n.choose(ctx)
	if err != nil {
		logger.Error(err, "failed to ask which namespaces of the configuration exist; all are watched")
		return n
	}
	if n.watched = choice; len(choice) < len(listed) {
		logger.Info("not all namespaces of the configuration exist; a restart follows when one does", "watched", choice)
	}
	return n
}

// limit finds out what can be watched of the whole cluster: everything if the API server does not answer.
func (n *namespaces) limit(ctx context.Context) {
	reach, err := reachOf(ctx, n.server, n.listed)
	if err != nil {
		n.logger.Error(err, "failed to ask what can be watched in the whole cluster; everything needed is watched")
		n.assumed = true
		return
	}
	if n.reach = reach; !reach.nodes {
		n.logger.Info("without the right to list and watch nodes, the zones of pods and the announced ends of nodes are not known")
	}
	if !reach.namespaces {
		n.logger.Info("without the right to list and watch namespaces, each of the configuration is read every minute")
	}
}

// choose returns the namespaces of the list that are watched so far and exist, or may be watched; all if there is none, for an empty
// list means the whole cluster. One that exists without the rights counts: the manager reports what it lacks.
func (n *namespaces) choose(ctx context.Context) ([]string, error) {
	var choice []string
	for _, name := range n.listed {
		watchable, err := n.watchable(ctx, name)
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

func (n *namespaces) watchable(ctx context.Context, name string) (bool, error) {
	namespace, watched := clusterstate.NamespaceMetadata(), slices.Contains(n.watched, name)
	refused := false
	switch err := n.server.Get(ctx, client.ObjectKey{Name: name}, namespace); {
	case err == nil && namespace.DeletionTimestamp == nil && watched:
		return true, nil
	case apierrors.IsForbidden(err):
		refused = true
	case client.IgnoreNotFound(err) != nil:
		return false, err
	}
	may, err := n.permitted(ctx, name)
	if err != nil || may || !refused || !watched {
		return may, err
	}
	return false, n.lost(ctx, name)
}

// lost decides about a watched namespace in which all rights are missing. They go with a namespace that is deleted, as its pods do. While
// pods are known, somebody may have deleted a RoleBinding: a manager that starts without them lets their entries expire.
func (n *namespaces) lost(ctx context.Context, name string) error {
	known := false
	if n.pods != nil { // it is nil at start
		ctx, cancel := context.WithTimeout(ctx, namespacesTimeout)
		defer cancel()
		err := n.pods.Each(ctx, clusterstate.InNamespace(name), func(*lifecycle.Pod) bool {
			known = true
			return false
		})
		if err != nil {
			n.logger.Error(err, "failed to read the known pods of a namespace", "namespace", name)
		}
	}
	if known {
		return errors.New("the rights to get it and to watch its pods are missing; its pods stay as they were last seen")
	}
	n.logger.Error(nil, "the rights in a namespace are missing; it counts as deleted, and entries of its pods are not renewed",
		"namespace", name, "missing", "get namespaces, watch pods")
	return nil
}

// source is where the cache has namespaces from, if not from a list of all.
func (n *namespaces) source() toolscache.ListerWatcher {
	if n.reach.namespaces {
		return nil
	}
	return &namespaceGets{server: n.server, names: n.watched, interval: namespacesInterval}
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

// check returns an error if the choice has changed, or more of the cluster can be watched, or less than was assumed.
func (n *namespaces) check(ctx context.Context) error {
	choice, err := n.choose(ctx) // the cache keeps a namespace that can't be read
	if err != nil {
		n.logger.Error(err, "failed to ask which namespaces of the configuration exist")
		return nil // a manager that starts knows less than this one
	}
	if reach, err := reachOf(ctx, n.server, n.listed); err == nil {
		if reach.beyond(n.reach) || n.assumed && reach != n.reach {
			return fmt.Errorf("%w: which of nodes and namespaces can be listed and watched is not as it was at start: the manager exits, to "+
				"start again with those rights", errNamespaces)
		}
		n.assumed = false
	}
	if !slices.Equal(choice, n.watched) {
		return fmt.Errorf("%w: %s can be watched now, and %s are: the manager exits, to start again with those",
			errNamespaces, strings.Join(choice, ", "), strings.Join(n.watched, ", "))
	}
	return nil
}
