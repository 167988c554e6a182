package clusterstate

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"time"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
)

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch

// NodeOf returns nil for a pod without a node, and only a name if the cache lacks the node, or has no nodes at all.
func NodeOf(ctx context.Context, from client.Reader, pod *lifecycle.Pod) (*lifecycle.Node, error) {
	name := pod.Spec.NodeName
	if name == "" {
		return nil, nil
	}
	node := &corev1.Node{}
	err := from.Get(ctx, client.ObjectKey{Name: name}, node, client.UnsafeDisableDeepCopy)
	uncached := &cache.ErrResourceNotCached{}
	switch {
	case err == nil:
	case errors.As(err, &uncached):
		return &lifecycle.Node{Name: name, Unread: true}, nil
	case apierrors.IsNotFound(err):
		node.Name = name
	default:
		return nil, fmt.Errorf("reading node %s: %w", name, err)
	}
	return lifecycle.NodeOf(node), nil
}

// Former is what became of a pod without a controller.
type Former string

const (
	// Detached: the CloneSet that made the pod is there, and no longer selects it.
	Detached Former = "Detached"
	// Orphaned: no such CloneSet is there, or it goes, or it came after the pod.
	Orphaned Former = "Orphaned"
	// Unadopted: the CloneSet that made the pod selects it and does not own it: the pod's labels were restored, or somebody removed its owner
	// reference. OpenKruise adopts no such pod.
	Unadopted Former = "Unadopted"
)

// FormerOf tells what became of a pod without a controller. It asks the API server too, since the cache can be late and keeps no whole
// selector, but not again if the selection of the last answer holds. It returns a selection if the pod is [Unadopted].
func FormerOf(
	ctx context.Context, pod *lifecycle.Pod, cache, server client.Reader, last *lifecycle.Selection, now time.Time,
) (Former, *lifecycle.Selection, error) {
	key := client.ObjectKey{Namespace: pod.Namespace, Name: lifecycle.MadeBy(pod)}
	if key.Name == "" {
		return Orphaned, nil, nil
	}
	set, err := makerOf(ctx, pod, key, cache)
	switch {
	case err != nil:
		return "", last, err
	case set == nil:
		return Orphaned, nil, nil
	case last.Holds(pod, set):
		return Unadopted, last, nil
	}
	if set, err = makerOf(ctx, pod, key, server); err != nil {
		return "", last, err
	}
	switch {
	case set == nil:
		return Orphaned, nil, nil
	case lifecycle.Selected(pod, set.Spec.Selector):
		return Unadopted, lifecycle.SelectionOf(pod, set, last, now), nil
	}
	return Detached, nil, nil
}

// makerOf returns the CloneSet that made the pod, or nil if it is gone, goes, or came after the pod.
func makerOf(ctx context.Context, pod *lifecycle.Pod, key client.ObjectKey, from client.Reader) (*kruisev1alpha1.CloneSet, error) {
	set := &kruisev1alpha1.CloneSet{}
	err := from.Get(ctx, key, set, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading CloneSet %s, which made the pod: %w", key, err)
	case set.DeletionTimestamp != nil, set.CreationTimestamp.After(pod.CreationTimestamp.Time):
		return nil, nil
	}
	return set, nil
}

// Topology accepts a nil node.
func Topology(node *lifecycle.Node) service.Node {
	if node == nil {
		return service.Node{}
	}
	return service.Node{Name: node.Name, Zone: node.Zone, Region: node.Region, Unread: node.Unread}
}

// SubjectOf describes a pod, without its node.
func (s *State) SubjectOf(pod *lifecycle.Pod) service.Subject {
	return s.inNamespace(service.SubjectOf(pod))
}

// inNamespace adds the labels of the subject's namespace, as of the last [Workloads.Refresh].
func (s *State) inNamespace(of service.Subject) service.Subject {
	of.NamespaceLabels = s.Claims.labelsOf(of.Namespace)
	return of
}

// PlacesOf returns where cached pods are by the template, by their namespace.
func PlacesOf(ctx context.Context, cache client.Reader, cached Pods, template string) (map[string]map[string]bool, error) {
	pods, err := cached.List(ctx, Which{})
	if err != nil {
		return nil, fmt.Errorf("listing the pods in the cache: %w", err)
	}
	namespaces, err := readNamespaces(ctx, cache)
	if err != nil {
		return nil, err
	}
	places := map[string]map[string]bool{}
	for _, pod := range pods {
		subject := service.SubjectOf(pod)
		subject.NamespaceLabels = namespaces[subject.Namespace].labels
		place, err := service.PlaceOf(template, subject)
		if err != nil {
			continue // it waits for its place
		}
		if places[subject.Namespace] == nil {
			places[subject.Namespace] = map[string]bool{}
		}
		places[subject.Namespace][place] = true
	}
	return places, nil
}

// AnotherHas reports whether a cached pod other than the use's is at the endpoint. One of another namespace must be allowed to use the
// name, or any tenant could make an entry count as theirs.
func (s *State) AnotherHas(ctx context.Context, own Use, in lifecycle.Key) (bool, error) {
	others, err := s.Workloads.pods.List(ctx, near(in.Address))
	if err != nil {
		return false, fmt.Errorf("listing the pods at %s: %w", in.Address, err)
	}
	for _, other := range others {
		if other.UID == own.Pod.UID || !slices.Contains(lifecycle.AddressesOf(other, in.Port), in.Address) {
			continue
		}
		endpoints, err := own.Rules.Services.EndpointsIn(in.Registry, s.SubjectOf(other)) // an error: registered nowhere
		has := func(e service.Placed) bool { return e.Service == in.Service && e.Port == in.Port }
		if err == nil && slices.ContainsFunc(endpoints, has) && s.mayUse(own, lifecycle.PodIDOf(other)) {
			return true, nil
		}
	}
	return false, nil
}

// mayUse reports whether another pod may use the name as well as the one of the use, as far as is known.
func (s *State) mayUse(u Use, other lifecycle.PodID) bool {
	if other.Namespace == u.Pod.Namespace {
		return true
	}
	u.Pod = other
	refused, registered := s.Claims.Ask(u)
	return refused == nil || refused.Calm || registered
}

// Live asks the API server for a pod that the cache lacks: nil, or one without the lifecycle label, to be freed once it [lifecycle.Ends].
func Live(ctx context.Context, server client.Reader, id lifecycle.PodID) (*lifecycle.Pod, error) {
	pod := &corev1.Pod{}
	err := server.Get(ctx, id.NamespacedName, pod)
	switch {
	case apierrors.IsNotFound(err), err == nil && pod.UID != id.UID, apierrors.IsForbidden(err) && Lacks(ctx, server, id.Namespace):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("asking whether the pod is gone: %w", err)
	}
	return lifecycle.PodOf(pod), nil
}

// Lacks reports whether the namespace is gone: reads in it may be forbidden.
func Lacks(ctx context.Context, server client.Reader, namespace string) bool {
	return apierrors.IsNotFound(server.Get(ctx, client.ObjectKey{Name: namespace}, NamespaceMetadata()))
}

// bucketOf hashes addresses, since indexing each would add a tenth to the cache.
func bucketOf(address string) string {
	const buckets = 256
	return strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(address))%buckets), 10)
}
