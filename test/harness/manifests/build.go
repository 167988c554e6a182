package manifests

import (
	"fmt"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// Build returns what kustomize build makes of a folder, each object after those that it needs: namespaces and CRDs come first.
func Build(folder string) ([]*unstructured.Unstructured, error) {
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionLegacy
	rendered, err := krusty.MakeKustomizer(options).Run(upToDate{filesys.MakeFsOnDisk()}, folder)
	if err != nil {
		return nil, fmt.Errorf("rendering %s: %w", folder, err)
	}
	text, err := rendered.AsYaml()
	if err != nil {
		return nil, fmt.Errorf("reading what %s renders: %w", folder, err)
	}
	return Decode(string(text))
}

// upToDate reads kustomizations without the deprecated fields, of which kustomize would warn on standard error.
type upToDate struct{ filesys.FileSystem }

// ReadFile implements [filesys.FileSystem].
func (f upToDate) ReadFile(path string) ([]byte, error) {
	text, err := f.FileSystem.ReadFile(path)
	if err != nil || filepath.Base(path) != "kustomization.yaml" {
		return text, err
	}
	var k types.Kustomization
	if err := k.Unmarshal(text); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	k.FixKustomization()
	for _, file := range k.PatchesStrategicMerge { //nolint:staticcheck // OpenKruise has it
		k.Patches = append(k.Patches, types.Patch{Path: string(file)})
	}
	k.PatchesStrategicMerge = nil //nolint:staticcheck // it is among the patches now
	return yaml.Marshal(k)
}
