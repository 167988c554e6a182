package service

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// RegistriesOf returns the names of the registries that the pod with these annotations is in, sorted and without
// duplicates: what [AnnotationRegistries] says, else the defaults. known are all that there are.
func RegistriesOf(annotations map[string]string, defaults, known []string) ([]string, error) {
	written, ok := annotations[AnnotationRegistries]
	if !ok {
		return slices.Compact(slices.Sorted(slices.Values(defaults))), nil
	}
	names, err := parseRegistries(written, known)
	if err != nil {
		return nil, fmt.Errorf("annotation %s: %w", AnnotationRegistries, err)
	}
	return names, nil
}

func parseRegistries(written string, known []string) ([]string, error) {
	known = slices.Sorted(slices.Values(known))
	help := fmt.Sprintf("the configuration has %s; write one, or several with commas", strings.Join(known, ", "))
	var names []string
	for name := range strings.SplitSeq(written, ",") {
		name = strings.TrimSpace(name)
		switch {
		case name == "":
			return nil, errors.New("a name is empty: " + help)
		case !slices.Contains(known, name):
			return nil, fmt.Errorf("%q is not a registry: %s", name, help)
		case slices.Contains(names, name):
			return nil, fmt.Errorf("%s occurs twice: remove one", name)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}
