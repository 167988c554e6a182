package service

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// Namespaces chooses namespaces: those of a list, or those whose labels a selector matches; the zero value all. It has one of the two.
type Namespaces struct {
	// Names are sorted.
	Names    []string
	Selector labels.Selector
}

// All reports whether it chooses every namespace.
func (n Namespaces) All() bool { return len(n.Names) == 0 && n.Selector == nil }

// Has reports whether it chooses a namespace with these labels.
func (n Namespaces) Has(namespace string, of labels.Set) bool {
	switch {
	case n.Selector != nil:
		return n.Selector.Matches(of)
	case len(n.Names) > 0:
		return slices.Contains(n.Names, namespace)
	}
	return true
}

// Equal reports whether both choose the same.
func (n Namespaces) Equal(other Namespaces) bool { return n.String() == other.String() }

func (n Namespaces) String() string {
	switch {
	case n.Selector != nil:
		return n.Selector.String()
	case len(n.Names) > 0:
		return strings.Join(n.Names, ",")
	}
	return "all"
}
