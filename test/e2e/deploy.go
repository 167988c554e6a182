package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/test/harness/cluster"
)

const (
	rollcallNamespace = "rollcall-system"
	// registryHost stands in deploy/config.yaml for the host at which pods find the registry.
	registryHost = "REGISTRY_HOST"
	fieldOwner   = "rollcall-e2e"
)

// deploy applies Rollcall's manifest and waits until both of its managers are ready.
func deploy(ctx context.Context, k8s client.Client, manifest, registry string) error {
	objects, err := rollcallObjects(manifest, registry)
	if err != nil {
		return err
	}
	if err := cluster.Apply(ctx, k8s, fieldOwner, objects); err != nil {
		return err
	}
	err = await(ctx, func(ctx context.Context) error {
		var managers appsv1.Deployment
		if err := k8s.Get(ctx, client.ObjectKey{Namespace: rollcallNamespace, Name: "rollcall"}, &managers); err != nil {
			return fmt.Errorf("reading the Deployment: %w", err)
		}
		if ready := managers.Status.ReadyReplicas; ready != *managers.Spec.Replicas {
			return fmt.Errorf("%d of %d managers are ready", ready, *managers.Spec.Replicas)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("deploying Rollcall: %w", err)
	}
	return nil
}

// rollcallObjects reads Rollcall's manifest, for a registry at this host.
func rollcallObjects(manifest, registry string) ([]*unstructured.Unstructured, error) {
	text, err := os.ReadFile(manifest)
	if err != nil {
		return nil, fmt.Errorf("reading Rollcall's manifest: %w", err)
	}
	return cluster.Decode(strings.ReplaceAll(string(text), registryHost, registry))
}
