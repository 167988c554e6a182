package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	rollcallNamespace = "rollcall-system"
	// registryHost stands in deploy/config.yaml for the host at which pods find the registry.
	registryHost = "REGISTRY_HOST"
	yamlBuffer   = 4096
)

// deploy applies Rollcall's manifest and waits until both of its managers are ready.
func deploy(ctx context.Context, k8s client.Client, manifest, registry string) error {
	objects, err := rollcallObjects(manifest, registry)
	if err != nil {
		return err
	}
	if err := apply(ctx, k8s, objects); err != nil {
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
	return decode(strings.ReplaceAll(string(text), registryHost, registry))
}

// decode reads the objects of a manifest.
func decode(text string) ([]*unstructured.Unstructured, error) {
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), yamlBuffer)
	var objects []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading a manifest: %w", err)
		}
		objects = append(objects, object)
	}
}

// apply applies the objects in their order.
func apply(ctx context.Context, k8s client.Client, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		err := k8s.Apply(ctx, client.ApplyConfigurationFromUnstructured(object),
			client.FieldOwner("rollcall-e2e"), client.ForceOwnership)
		if err != nil {
			return fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}
