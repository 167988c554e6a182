// Package manifests reads, renders and applies manifests.
package manifests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// yamlBuffer is how much of a manifest the decoder looks at to tell YAML from JSON.
const yamlBuffer = 4096

// Decode reads the objects of a manifest.
func Decode(text string) ([]*unstructured.Unstructured, error) {
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), yamlBuffer)
	var objects []*unstructured.Unstructured
	for {
		var raw json.RawMessage
		if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading a manifest: %w", err)
		}
		if len(raw) == 0 || string(raw) == "null" {
			continue // a comment
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(raw); err != nil {
			return nil, fmt.Errorf("reading a manifest: %w", err)
		}
		objects = append(objects, object)
	}
}

// Apply applies the objects in their order.
func Apply(ctx context.Context, k8s client.Client, owner client.FieldOwner, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		if err := k8s.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), owner, client.ForceOwnership); err != nil {
			return fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}
