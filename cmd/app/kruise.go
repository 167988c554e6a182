package app

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kruiseInterval is how often the API server is asked for OpenKruise until it is there.
const kruiseInterval = 3 * time.Second

const (
	reasonStarting = "starting"
	reasonAbsent   = "OpenKruise is not installed: no CRD clonesets.apps.kruise.io; " +
		"install OpenKruise (https://openkruise.io/docs/installation), Rollcall then goes on by itself"
	reasonUnsynced = "the caches are not synced yet: pods or CloneSets could not be listed so far"
)

// kruise waits for OpenKruise's CRDs and then starts the controller, on every manager: one that waits for the lease has
// its caches filled when it gets it.
type kruise struct {
	discovery resourceLister
	informers cache.Informers
	// setup adds the controller to the manager.
	setup    func(context.Context) error
	interval time.Duration
	logger   logr.Logger

	absence atomic.Pointer[string]
	synced  atomic.Pointer[[]cache.Informer]
}

// resourceLister is what is needed of the discovery client.
type resourceLister interface {
	ServerResourcesForGroupVersionWithContext(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error)
}

// NeedLeaderElection makes it run without the lease.
func (*kruise) NeedLeaderElection() bool { return false }

// Start returns once the controller was added, or with an error when it can't be.
func (k *kruise) Start(ctx context.Context) error {
	err := wait.PollUntilContextCancel(ctx, k.interval, true, func(ctx context.Context) (bool, error) {
		reason := k.look(ctx)
		if ctx.Err() == nil {
			k.tell(reason)
		}
		return reason == "", nil
	})
	if err != nil {
		return nil //nolint:nilerr // the manager stops, and that is all
	}
	return k.begin(ctx)
}

// look returns why there is nothing to work with, or nothing.
func (k *kruise) look(ctx context.Context) string {
	resources, err := k.discovery.ServerResourcesForGroupVersionWithContext(ctx, kruisev1alpha1.GroupVersion.String())
	switch {
	case apierrors.IsNotFound(err):
		return reasonAbsent
	case err != nil:
		return fmt.Sprintf("the API server can't be asked for OpenKruise: %v", err)
	}
	if !slices.ContainsFunc(resources.APIResources, func(r metav1.APIResource) bool { return r.Name == "clonesets" }) {
		return reasonAbsent
	}
	return ""
}

// tell logs a reason once, until it changes.
func (k *kruise) tell(reason string) {
	before := k.absence.Swap(&reason)
	switch {
	case reason != "" && (before == nil || *before != reason):
		k.logger.Info("waiting: " + reason)
	case reason == "" && before != nil:
		k.logger.Info("OpenKruise is there")
	}
}

// begin starts the informers before the controller, which asks the cache for nothing else.
func (k *kruise) begin(ctx context.Context) error {
	var informers []cache.Informer
	for _, object := range []client.Object{&corev1.Pod{}, &kruisev1alpha1.CloneSet{}} {
		informer, err := k.informers.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("starting the informer of %T: %w", object, err)
		}
		informers = append(informers, informer)
	}
	if err := k.setup(ctx); err != nil {
		return fmt.Errorf("setting up the controller: %w", err)
	}
	k.synced.Store(&informers)
	return nil
}

// unready returns why the manager is not ready, or nothing.
func (k *kruise) unready() string {
	if absence := k.absence.Load(); absence == nil {
		return reasonStarting
	} else if *absence != "" {
		return *absence
	}
	informers := k.synced.Load()
	if informers == nil {
		return reasonStarting
	}
	for _, informer := range *informers {
		if !informer.HasSynced() {
			return reasonUnsynced
		}
	}
	return ""
}
