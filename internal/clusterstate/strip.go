package clusterstate

import (
	"strings"
	"time"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	kruisev1beta1 "github.com/openkruise/kruise-api/apps/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

// EnrollLabel is for namespaces whose CloneSets get hooks, with the value "true". A CloneSet that has it with the value "false" gets none.
const EnrollLabel = "rollcall.dev/enroll"

// KarmadaLabel is on objects that Karmada writes into its member clusters (pkg/util/constants.go).
const KarmadaLabel = "karmada.io/managed"

// EnrollOwner is the field manager of the hooks that CloneSets have by their namespace's label.
const EnrollOwner = "rollcall-enroll"

// Transforms are those of the manager's cache, for all that it reads but pods.
func Transforms(now func() time.Time) map[client.Object]toolscache.TransformFunc {
	all := map[client.Object]toolscache.TransformFunc{
		&corev1.Node{}: NewNodeStripper(now).Strip, NamespaceMetadata(): StripNamespace,
	}
	for _, kind := range Kinds() {
		all[NewObject(kind)] = StripWorkload
	}
	return all
}

// StripWorkload is [Sharer.StripPod] for workloads.
func StripWorkload(object any) (any, error) {
	switch o := object.(type) {
	case *kruisev1alpha1.CloneSet:
		enrolled := ofEnrollOwner(o.ManagedFields)
		stripMeta(&o.ObjectMeta)
		o.ManagedFields = enrolled
		o.Spec = kruisev1alpha1.CloneSetSpec{
			Selector: lifecycle.KeptSelector(o.Spec.Selector), Lifecycle: lifecycle.KeptLifecycle(o.Spec.Lifecycle),
			Template: stripTemplate(&o.Spec.Template),
		}
		o.Status = kruisev1alpha1.CloneSetStatus{
			CurrentRevision: o.Status.CurrentRevision, UpdateRevision: o.Status.UpdateRevision,
			ExpectedUpdatedReplicas: o.Status.ExpectedUpdatedReplicas,
		}
	case *kruisev1beta1.StatefulSet:
		stripMeta(&o.ObjectMeta)
		o.Spec = kruisev1beta1.StatefulSetSpec{
			Selector: lifecycle.KeptSelector(o.Spec.Selector), Lifecycle: lifecycle.KeptLifecycle(o.Spec.Lifecycle),
			Template:            stripTemplate(&o.Spec.Template),
			PodManagementPolicy: o.Spec.PodManagementPolicy, UpdateStrategy: stripStrategy(o.Spec.UpdateStrategy),
		}
		o.Status = kruisev1beta1.StatefulSetStatus{}
	case *kruisev1alpha1.DaemonSet:
		stripMeta(&o.ObjectMeta)
		o.Spec = kruisev1alpha1.DaemonSetSpec{
			Selector: lifecycle.KeptSelector(o.Spec.Selector), Lifecycle: lifecycle.KeptLifecycle(o.Spec.Lifecycle),
			Template: stripTemplate(&o.Spec.Template), UpdateStrategy: o.Spec.UpdateStrategy,
		}
		o.Status = kruisev1alpha1.DaemonSetStatus{}
	}
	return object, nil
}

func stripTemplate(template *corev1.PodTemplateSpec) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{
			Labels:      lifecycle.KeptLabels(template.Labels),
			Annotations: lifecycle.KeptAnnotations(template.Annotations),
			Finalizers:  lifecycle.KeptFinalizers(template.Finalizers),
		},
		Spec: lifecycle.TemplateSpec(&template.Spec),
	}
}

// stripStrategy keeps what [Workload.DeletesSpecified] reads.
func stripStrategy(s kruisev1beta1.StatefulSetUpdateStrategy) kruisev1beta1.StatefulSetUpdateStrategy {
	kept := kruisev1beta1.StatefulSetUpdateStrategy{Type: s.Type}
	if s.RollingUpdate != nil && s.RollingUpdate.Paused {
		kept.RollingUpdate = &kruisev1beta1.RollingUpdateStatefulSetStrategy{Paused: true}
	}
	return kept
}

// stripMeta keeps, of labels and owners, only those by which a CloneSet is left out of enrollment, and of annotations the shares of
// traffic.
func stripMeta(meta *metav1.ObjectMeta) {
	kept := metav1.ObjectMeta{
		Namespace: meta.Namespace, Name: meta.Name, UID: meta.UID, ResourceVersion: meta.ResourceVersion, Generation: meta.Generation,
		CreationTimestamp: meta.CreationTimestamp, DeletionTimestamp: meta.DeletionTimestamp,
	}
	for _, key := range []string{EnrollLabel, KarmadaLabel} {
		if value, has := meta.Labels[key]; has {
			metav1.SetMetaDataLabel(&kept, key, value)
		}
	}
	if traffic, has := meta.Annotations[lifecycle.AnnotationTraffic]; has {
		metav1.SetMetaDataAnnotation(&kept, lifecycle.AnnotationTraffic, strings.Clone(traffic[:min(len(traffic), lifecycle.MaxWord+1)]))
	}
	if owner := metav1.GetControllerOfNoCopy(meta); owner != nil {
		kept.OwnerReferences = []metav1.OwnerReference{{Kind: word(owner.Kind), Name: word(owner.Name), Controller: owner.Controller}}
	}
	*meta = kept
}

// maxOwner bounds what is kept of an owner's kind and name, which the API server does not.
const maxOwner = 80

func word(text string) string { return strings.Clone(text[:min(len(text), maxOwner)]) }

// ofEnrollOwner keeps that the owner has applied something, and not what: that is large.
func ofEnrollOwner(managed []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	for _, f := range managed {
		if f.Manager == EnrollOwner && f.Operation == metav1.ManagedFieldsOperationApply {
			return []metav1.ManagedFieldsEntry{{Manager: EnrollOwner, Operation: f.Operation}}
		}
	}
	return nil
}

// NamespaceMetadata is how namespaces are read: only labels, age and deletion matter.
func NamespaceMetadata() *metav1.PartialObjectMetadata {
	metadata := &metav1.PartialObjectMetadata{}
	metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return metadata
}

const mostAnnounced = 1000

// NodeStripper is [Sharer.StripPod] for nodes. It remembers since when taints announce a node's end.
type NodeStripper struct {
	now func() time.Time
	// seen has times by UID.
	seen *lru.Cache
}

// NewNodeStripper returns an empty NodeStripper.
func NewNodeStripper(now func() time.Time) *NodeStripper {
	return &NodeStripper{now: now, seen: lru.New(mostAnnounced)}
}

// Strip is a cache.TransformFunc.
func (s *NodeStripper) Strip(object any) (any, error) {
	node, is := object.(*corev1.Node)
	if !is {
		return object, nil
	}
	kept := lifecycle.NodeObject(node, func() metav1.Time { return s.firstSeen(node.UID) })
	if len(kept.Spec.Taints) == 0 {
		s.seen.Remove(node.UID)
	}
	return kept, nil
}

func (s *NodeStripper) firstSeen(node types.UID) metav1.Time {
	seen, _ := s.seen.Get(node)
	if first, is := seen.(metav1.Time); is {
		return first
	}
	at := metav1.NewTime(s.now())
	s.seen.Add(node, at)
	return at
}

// StripNamespace is [Sharer.StripPod] for namespaces.
func StripNamespace(object any) (any, error) {
	if of, is := object.(*metav1.PartialObjectMetadata); is {
		of.ObjectMeta = metav1.ObjectMeta{
			Name: of.Name, UID: of.UID, ResourceVersion: of.ResourceVersion, Labels: of.Labels,
			CreationTimestamp: of.CreationTimestamp, DeletionTimestamp: of.DeletionTimestamp,
		}
	}
	return object, nil
}
