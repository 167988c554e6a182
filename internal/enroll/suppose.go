package enroll

import (
	"context"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

// Supposed reads CloneSets as they will be once they are enrolled. Whatever else it reads is as it is.
type Supposed struct {
	client.Reader

	// Config is the one in force.
	Config func() *config.Config
	// Such reports whether a CloneSet counts as enrolled, by the labels of its namespace. [Asked] is for what the manager would enroll.
	Such func(set *kruisev1alpha1.CloneSet, namespace labels.Set) bool
}

// Get implements [client.Reader].
func (s *Supposed) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	err := s.Reader.Get(ctx, key, object, opts...)
	if set, is := object.(*kruisev1alpha1.CloneSet); is && err == nil {
		s.suppose(ctx, set, map[string]labels.Set{})
	}
	return err
}

// List implements [client.Reader].
func (s *Supposed) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	err := s.Reader.List(ctx, list, opts...)
	if sets, is := list.(*kruisev1alpha1.CloneSetList); is && err == nil {
		namespaces := map[string]labels.Set{}
		for i := range sets.Items {
			s.suppose(ctx, &sets.Items[i], namespaces)
		}
	}
	return err
}

// suppose leaves alone what shares memory with the cache: it sets another pointer. What enrolling would not do it does not suppose, except
// that pods show what is wrong with their description.
func (s *Supposed) suppose(ctx context.Context, set *kruisev1alpha1.CloneSet, namespaces map[string]labels.Set) {
	c := s.Config()
	if c == nil || Managed(set, c) || others(set, c) != "" {
		return
	}
	of, known := namespaces[set.Namespace]
	if !known {
		namespace := clusterstate.NamespaceMetadata()
		if s.Reader.Get(ctx, client.ObjectKey{Name: set.Namespace}, namespace) == nil { // else it has no label, as far as is known
			of = namespace.Labels
		}
		namespaces[set.Namespace] = of
	}
	if s.Such(set, of) {
		set.Spec.Lifecycle = lifecycle.Enrolled()
	}
}
