package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
	"github.com/rollcall-dev/rollcall/test/harness/manifests"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
)

const (
	rollcallNamespace = "rollcall-system"
	// registryHost stands in deploy/kustomization.yaml for the address at which pods find the registry, by the name registryName.
	registryHost = "REGISTRY_HOST"
	registryName = "consul.e2e"
	fieldOwner   = "rollcall-e2e"
	// What kustomize makes of deploy, of evictions and of services.
	rollcallManifest  = "rollcall.yaml"
	servicesManifest  = "rollcall-services.yaml"
	evictionsManifest = "rollcall-evictions.yaml"
)

// deploy applies one of Rollcall's manifests and waits until both of its managers are ready.
func (w *world) deploy(ctx context.Context, manifest string) error {
	objects, err := rollcallObjects(filepath.Join(w.built, manifest), w.registry)
	if err != nil {
		return err
	}
	if err := manifests.Apply(ctx, w.k8s, fieldOwner, objects); err != nil {
		return err
	}
	return w.managersReady(ctx)
}

// managersReady returns when the managers are ready that the Deployment asks for, and no others are left.
func (w *world) managersReady(ctx context.Context) error {
	err := await(ctx, func(ctx context.Context) error {
		var managers appsv1.Deployment
		if err := w.k8s.Get(ctx, client.ObjectKey{Namespace: rollcallNamespace, Name: "rollcall"}, &managers); err != nil {
			return fmt.Errorf("reading the Deployment: %w", err)
		}
		want, have := *managers.Spec.Replicas, managers.Status
		if have.ObservedGeneration != managers.Generation || have.Replicas != want || have.UpdatedReplicas != want ||
			have.ReadyReplicas != want {
			return fmt.Errorf("of %d managers, %d are updated and %d ready", want, have.UpdatedReplicas, have.ReadyReplicas)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("deploying Rollcall: %w", err)
	}
	return nil
}

// managersRun returns something that deploys another version of Rollcall when the update is under way, and waits for records
// that it writes.
func managersRun(image, record string) func(context.Context, *world) error {
	return onceUpdating(func(ctx context.Context, w *world) error {
		managers := &appsv1.Deployment{}
		managers.Namespace, managers.Name = rollcallNamespace, "rollcall"
		patch := client.RawPatch(types.StrategicMergePatchType, fmt.Appendf(nil,
			`{"spec":{"template":{"spec":{"containers":[{"name":"manager","image":%q}]}}}}`, image))
		if err := w.k8s.Patch(ctx, managers, patch); err != nil {
			return fmt.Errorf("deploying %s: %w", image, err)
		}
		if err := w.managersReady(ctx); err != nil {
			return err
		}
		return w.arms[0].awaitPod(ctx, "a record that "+image+" has written", func(pod *corev1.Pod) bool {
			return strings.Contains(pod.Annotations[lifecycle.AnnotationRecord], record)
		})
	})
}

// memoryLimit shows that a manager's Go runtime knows what the container may have: nine tenths of the 1Gi in config/manager.
const memoryLimit = "go_gc_gomemlimit_bytes 9.66367641e+08"

// managersShow fails if a manager lacks the line among its metrics.
func (w *world) managersShow(ctx context.Context, line string) error {
	managers, err := kube.Pods(ctx, w.k8s, rollcallNamespace)
	if err != nil {
		return err
	}
	for _, pod := range managers {
		manager := registries.NewClient("http://" + net.JoinHostPort(pod.Status.PodIP, "8080"))
		metrics, err := manager.Do(ctx, http.MethodGet, "/metrics", nil)
		if err != nil {
			return err
		}
		if !strings.Contains(string(metrics), line+"\n") {
			return fmt.Errorf("the metrics of %s do not have %s", pod.Name, line)
		}
	}
	return nil
}

// rollcallObjects reads Rollcall's manifest, for a registry at this address.
func rollcallObjects(manifest, registry string) ([]*unstructured.Unstructured, error) {
	text, err := os.ReadFile(manifest)
	if err != nil {
		return nil, fmt.Errorf("reading Rollcall's manifest: %w", err)
	}
	return manifests.Decode(strings.ReplaceAll(string(text), registryHost, registry))
}
