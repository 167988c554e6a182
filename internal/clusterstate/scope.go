package clusterstate

import (
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/rollcall-dev/rollcall/internal/service"
)

// Scope is the one place that knows which namespaces this manager takes care of. With a selector that is what their labels in the cache
// show now. A nil Scope has all.
//
//	Watches    the namespace is this manager's
//	Excludes   it is another manager's, or nobody's: whatever is there is left alone
//	neither    the cache does not have it, or not yet: what is known of it stays known, and nothing is taken in
type Scope struct {
	chosen  service.Namespaces
	watched service.Namespaces
	// cached are the namespaces, once they are watched.
	cached atomic.Pointer[toolscache.Indexer]
}

// NewScope returns the scope of a configuration. Of a list of names, watched are those that the cache has.
func NewScope(chosen service.Namespaces, watched []string) *Scope {
	return &Scope{chosen: chosen, watched: service.Namespaces{Names: watched}}
}

// Follow is called with the cache of namespaces, before any of it is read.
func (s *Scope) Follow(cached toolscache.Indexer) {
	if s != nil {
		s.cached.Store(&cached)
	}
}

// ByLabel reports whether the scope changes with the labels of namespaces.
func (s *Scope) ByLabel() bool { return s != nil && s.chosen.Selector != nil }

// Selects reports whether a namespace, as it is or was, is in the scope. It is for events: [Scope.Watches] is about now. It accepts nil.
func (s *Scope) Selects(namespace *metav1.PartialObjectMetadata) bool {
	return namespace != nil && (s == nil || s.chosen.Has(namespace.Name, namespace.Labels))
}

// Watches reports whether the namespace is known to be this manager's.
func (s *Scope) Watches(namespace string) bool {
	if !s.ByLabel() {
		return s == nil || s.watched.Has(namespace, nil)
	}
	return s.Selects(s.now(namespace))
}

// Excludes reports whether the namespace is known not to be this manager's.
func (s *Scope) Excludes(namespace string) bool {
	if !s.ByLabel() {
		return s != nil && !s.chosen.Has(namespace, nil)
	}
	now := s.now(namespace)
	return now != nil && !s.Selects(now)
}

// now returns the namespace as it is cached, or nil.
func (s *Scope) now(namespace string) *metav1.PartialObjectMetadata {
	cached := s.cached.Load()
	if cached == nil {
		return nil
	}
	object, _, _ := (*cached).GetByKey(namespace) // of a store in memory, which has no error
	now, _ := object.(*metav1.PartialObjectMetadata)
	return now
}
