package preview

import (
	"context"
	"fmt"
	"reflect"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
)

// snapshot is what the manager's cache would have, read once with a person's rights.
type snapshot struct {
	pods    []corev1.Pod
	objects map[reflect.Type]map[client.ObjectKey]client.Object
	// nodeless: the person may not read nodes.
	nodeless bool
}

// readSnapshot goes without nodes if they are forbidden, and without other namespaces' workloads, if the namespace is one.
func readSnapshot(ctx context.Context, from client.Reader, namespace string) (*snapshot, error) {
	s := &snapshot{objects: map[reflect.Type]map[client.ObjectKey]client.Object{}}
	err := clusterstate.EachWorkload(ctx, from, s.addWorkload)
	if apierrors.IsForbidden(err) && namespace != "" {
		err = clusterstate.EachWorkload(ctx, from, s.addWorkload, client.InNamespace(namespace))
	}
	switch {
	case meta.IsNoMatchError(err):
		return nil, fmt.Errorf("the cluster has no CloneSets: install OpenKruise first, https://openkruise.io/docs/installation: %w", err)
	case err != nil:
		return nil, err
	}
	if err := s.readNamespaces(ctx, from, namespace); err != nil {
		return nil, err
	}
	var nodes corev1.NodeList
	if err = from.List(ctx, &nodes); apierrors.IsForbidden(err) {
		s.nodeless = true
	} else if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	var pods corev1.PodList
	if err := from.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	s.pods = pods.Items
	return s, s.addAll(&nodes)
}

func (s *snapshot) addWorkload(w *clusterstate.Workload) { s.add(w.Object) }

// readNamespaces supposes that a namespace has no labels if a person may not read it.
func (s *snapshot) readNamespaces(ctx context.Context, from client.Reader, namespace string) error {
	list := metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	err := from.List(ctx, &list)
	if apierrors.IsForbidden(err) && namespace != "" {
		one := clusterstate.NamespaceMetadata()
		if err = client.IgnoreNotFound(from.Get(ctx, client.ObjectKey{Name: namespace}, one)); apierrors.IsForbidden(err) {
			err = nil
		}
		one.Name = namespace
		s.add(one)
	}
	if err != nil {
		return fmt.Errorf("listing namespaces: %w", err)
	}
	return s.addAll(&list)
}

func (s *snapshot) addAll(lists ...client.ObjectList) error {
	for _, list := range lists {
		err := meta.EachListItem(list, func(object runtime.Object) error {
			if one, is := object.(client.Object); is {
				s.add(one)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("reading a list: %w", err)
		}
	}
	return nil
}

func (s *snapshot) add(object client.Object) {
	of := reflect.TypeOf(object)
	if s.objects[of] == nil {
		s.objects[of] = map[client.ObjectKey]client.Object{}
	}
	s.objects[of][client.ObjectKeyFromObject(object)] = object
}

// cloneSets are those of a namespace, or all.
func (s *snapshot) cloneSets(namespace string) (sets []*kruisev1alpha1.CloneSet) {
	for _, object := range s.objects[reflect.TypeFor[*kruisev1alpha1.CloneSet]()] {
		if set, is := object.(*kruisev1alpha1.CloneSet); is && (namespace == "" || namespace == set.Namespace) {
			sets = append(sets, set)
		}
	}
	return sets
}

// labelsOf returns those of a namespace.
func (s *snapshot) labelsOf(namespace string) labels.Set {
	found := s.objects[reflect.TypeFor[*metav1.PartialObjectMetadata]()][client.ObjectKey{Name: namespace}]
	if found == nil {
		return nil
	}
	return found.GetLabels()
}

// Get implements [client.Reader]. The object shares memory with the snapshot.
func (s *snapshot) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	of := reflect.TypeOf(object)
	if s.nodeless && of == reflect.TypeFor[*corev1.Node]() {
		return &cache.ErrResourceNotCached{GVK: corev1.SchemeGroupVersion.WithKind("Node")} // as for a manager that may not read them
	}
	found := s.objects[of][key]
	if found == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: of.Elem().Name()}, key.String())
	}
	reflect.ValueOf(object).Elem().Set(reflect.ValueOf(found).Elem())
	return nil
}

// List implements [client.Reader] for those options that readers of the manager's cache use.
func (s *snapshot) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	options := (&client.ListOptions{}).ApplyOptions(opts)
	items := reflect.ValueOf(list).Elem().FieldByName("Items")
	item := items.Type().Elem()
	for _, object := range s.objects[reflect.PointerTo(item)] {
		in := options.Namespace == "" || options.Namespace == object.GetNamespace()
		if in && (options.LabelSelector == nil || options.LabelSelector.Matches(labels.Set(object.GetLabels()))) {
			items.Set(reflect.Append(items, reflect.ValueOf(object).Elem()))
		}
	}
	return nil
}
