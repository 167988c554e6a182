package controller

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
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
// that leaves out pods without the lifecycle label, is believed only of the pods that it has. A pod with another UID is
// another pod, and one that lives keeps every entry with its UID, whatever pod that names: removing it could take the
// pod's own. A pod that is found is looked at by the reconciler where that may have missed it. It is all or nothing, and
// may be called at any time after the cache has synced.
func (r *PodReconciler) Gone(ctx context.Context, entries []registry.Entry) ([]registry.Entry, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	cached, err := r.cached(ctx)
	if err != nil {
		return nil, err
	}
	live := map[types.UID]bool{}
	suspects := map[string]map[Request]bool{}
	for _, e := range entries {
		req := Request{NamespacedName: types.NamespacedName{Namespace: e.Namespace, Name: e.Pod}, UID: types.UID(e.UID)}
		if name, found := cached[req.UID]; found {
			live[req.UID] = true
			r.lookAt(Request{NamespacedName: name, UID: req.UID})
			continue
		}
		if suspects[req.Namespace] == nil {
			suspects[req.Namespace] = map[Request]bool{}
		}
		suspects[req.Namespace][req] = true
	}
	for namespace, reqs := range suspects {
		if err := r.liveIn(ctx, namespace, reqs, live); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(slices.Clone(entries), func(e registry.Entry) bool { return live[types.UID(e.UID)] }), nil
}

// cached returns the names of all pods in the cache.
func (r *PodReconciler) cached(ctx context.Context) (map[types.UID]types.NamespacedName, error) {
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the pods in the cache: %w", err)
	}
	names := make(map[types.UID]types.NamespacedName, len(pods.Items))
	for i := range pods.Items {
		names[pods.Items[i].UID] = client.ObjectKeyFromObject(&pods.Items[i])
	}
	return names, nil
}

// liveIn adds those of the pods of one namespace that live.
func (r *PodReconciler) liveIn(
	ctx context.Context, namespace string, reqs map[Request]bool, live map[types.UID]bool,
) error {
	if len(reqs) > fewPods {
		present, err := r.podsIn(ctx, namespace)
		if err != nil {
			return err
		}
		found := map[Request]bool{}
		for req := range reqs {
			if name, there := present[req.UID]; there {
				found[Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}, UID: req.UID}] = true
			}
		}
		reqs = found
	}
	for req := range reqs {
		stands, err := r.stands(ctx, req)
		if err != nil {
			return err
		}
		live[req.UID] = live[req.UID] || stands
	}
	return nil
}

// podsIn returns the names of all pods in a namespace, asked of the API server.
func (r *PodReconciler) podsIn(ctx context.Context, namespace string) (map[types.UID]string, error) {
	present := map[types.UID]string{}
	for next := ""; ; {
		var page metav1.PartialObjectMetadataList
		page.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
		err := r.apiReader.List(ctx, &page, client.InNamespace(namespace), client.Limit(podPage), client.Continue(next))
		if err != nil {
			return nil, fmt.Errorf("listing the pods of namespace %s: %w", namespace, err)
		}
		for i := range page.Items {
			present[page.Items[i].UID] = page.Items[i].Name
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
