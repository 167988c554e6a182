package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
)

const recipeWorkers = 3

// recipe is the controller that OpenKruise's guide to the lifecycle has one write: four cases, and what controller-runtime
// does where one chooses nothing.
type recipe struct {
	client.Client

	registry registries.Client
}

func runRecipe(ctx context.Context, config *rest.Config, registryURL string) error {
	config.QPS = -1 // as controller-runtime's own GetConfig has it
	manager, err := ctrl.NewManager(config, ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		return fmt.Errorf("making the manager: %w", err)
	}
	err = ctrl.NewControllerManagedBy(manager).For(&corev1.Pod{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: recipeWorkers}).
		Complete(&recipe{Client: manager.GetClient(), registry: registries.Client{URL: registryURL, HTTP: http.DefaultClient}})
	if err != nil {
		return fmt.Errorf("making the controller: %w", err)
	}
	go func() {
		if manager.GetCache().WaitForCacheSync(ctx) {
			ready()
		}
	}()
	return manager.Start(ctx)
}

// Reconcile has the four cases of the guide.
func (r *recipe) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	pod := &corev1.Pod{}
	if err := r.Get(ctx, request.NamespacedName, pod); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	state := lifecycle.State(lifecycle.PodOf(pod))
	switch {
	case state == appspub.LifecycleStateNormal && pod.Labels[newLabel] == set && lifecycle.IsReady(lifecycle.PodOf(pod)):
		return ctrl.Result{}, r.then(ctx, pod, "register", newLabel, notSet)
	case state == appspub.LifecycleStatePreparingUpdate && pod.Labels[inPlaceLabel] == set:
		return ctrl.Result{}, r.then(ctx, pod, "fail-over", inPlaceLabel, notSet)
	case state == appspub.LifecycleStateUpdated && pod.Labels[inPlaceLabel] == notSet && lifecycle.IsReady(lifecycle.PodOf(pod)):
		return ctrl.Result{}, r.then(ctx, pod, "register", inPlaceLabel, set)
	case state == appspub.LifecycleStatePreparingDelete && pod.Labels[deleteLabel] == set:
		return ctrl.Result{}, r.then(ctx, pod, "deregister", deleteLabel, notSet)
	}
	return ctrl.Result{}, nil
}

// then calls the registry, and flips the label.
func (r *recipe) then(ctx context.Context, pod *corev1.Pod, call, key, value string) error {
	body, err := json.Marshal(registry.Instance{
		Service: pod.Labels[appLabel], Address: pod.Status.PodIP, Port: podPort,
		Cluster: clusterName, Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID),
	})
	if err != nil {
		return err
	}
	if _, err := r.registry.Do(ctx, http.MethodPost, "/v1/"+call, body); err != nil {
		return err
	}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, key, value)
	return r.Patch(ctx, pod, client.RawPatch(types.StrategicMergePatchType, patch))
}
