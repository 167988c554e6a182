package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/registry"
)

const (
	// fewPods is for how many pods of a namespace the API server is asked one by one. For more it is asked for all.
	fewPods = 10
	// podPage is how many pods it is asked for at once.
	podPage = 1000
)

// Gone returns those of the entries behind which no live pod stands, by the API server's own word: a cache that lags, or
// that leaves out pods without the lifecycle label, is not believed. A pod with another UID is another pod. A pod that is
// found is looked at by the reconciler where that may have missed it. It is all or nothing, and may be called at any time
// after the cache has synced.
func (r *PodReconciler) Gone(ctx context.Context, entries []registry.Entry) ([]registry.Entry, error) {
	suspects := map[string]map[types.UID]Request{}
	for _, e := range entries {
		req := Request{NamespacedName: types.NamespacedName{Namespace: e.Namespace, Name: e.Pod}, UID: types.UID(e.UID)}
		cached, err := r.cached(ctx, req)
		switch {
		case err != nil:
			return nil, err
		case cached:
			r.lookAt(req)
		case suspects[req.Namespace] == nil:
			suspects[req.Namespace] = map[types.UID]Request{req.UID: req}
		default:
			suspects[req.Namespace][req.UID] = req
		}
	}
	gone := map[types.UID]bool{}
	for namespace, reqs := range suspects {
		if err := r.goneIn(ctx, namespace, reqs, gone); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(slices.Clone(entries), func(e registry.Entry) bool { return !gone[types.UID(e.UID)] }), nil
}

func (r *PodReconciler) cached(ctx context.Context, req Request) (bool, error) {
	pod := &corev1.Pod{}
	err := r.client.Get(ctx, req.NamespacedName, pod)
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("reading pod %s from the cache: %w", req.NamespacedName, err)
	}
	return err == nil && pod.UID == req.UID, nil
}

// goneIn adds those of the pods of one namespace that are gone.
func (r *PodReconciler) goneIn(
	ctx context.Context, namespace string, reqs map[types.UID]Request, gone map[types.UID]bool,
) error {
	if len(reqs) > fewPods {
		present, err := r.podsIn(ctx, namespace)
		if err != nil {
			return err
		}
		maps.DeleteFunc(reqs, func(uid types.UID, _ Request) bool {
			gone[uid] = !present[uid]
			return gone[uid]
		})
	}
	for uid, req := range reqs {
		stands, err := r.stands(ctx, req)
		if err != nil {
			return err
		}
		gone[uid] = !stands
	}
	return nil
}

// podsIn returns the UIDs of all pods in a namespace, asked of the API server.
func (r *PodReconciler) podsIn(ctx context.Context, namespace string) (map[types.UID]bool, error) {
	present := map[types.UID]bool{}
	for next := ""; ; {
		var page metav1.PartialObjectMetadataList
		page.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
		err := r.apiReader.List(ctx, &page, client.InNamespace(namespace), client.Limit(podPage), client.Continue(next))
		if err != nil {
			return nil, fmt.Errorf("listing the pods of namespace %s: %w", namespace, err)
		}
		for i := range page.Items {
			present[page.Items[i].UID] = true
		}
		if next = page.Continue; next == "" {
			return present, nil
		}
	}
}

// stands asks the API server for one pod. A dying one is the reconciler's: it may have to be freed as well. One that has
// ended for good does not come back, and leaves its address to others.
func (r *PodReconciler) stands(ctx context.Context, req Request) (bool, error) {
	pod, err := r.stillThere(ctx, req)
	switch {
	case err != nil:
		return false, err
	case pod == nil:
		return false, nil
	case pod.DeletionTimestamp != nil:
		r.ledger.dying(pod)
		r.lookAt(req)
		return true, nil
	default:
		return pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed, nil
	}
}

// lookAt has the reconciler look at a pod when it has nothing better to do.
func (r *PodReconciler) lookAt(req Request) {
	r.ledger.lookAt(req)
	r.wake()
}
