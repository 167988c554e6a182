package resync

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/registry"
)

// vanishing is an API server whose pod is deleted after it was listed.
type vanishing struct{ client.Reader }

func (vanishing) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*metav1.PartialObjectMetadataList).Items = []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: "web-1", UID: "uid"}}}
	return nil
}

func (vanishing) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "web-1")
}

func TestGoneCountsAPodThatVanishesAfterTheList(t *testing.T) {
	t.Parallel()
	c := &Cluster{API: vanishing{}}
	got, err := c.Gone(t.Context(), []registry.Entry{{Instance: registry.Instance{Namespace: "shop", Pod: "web-1", UID: "uid"}}})
	if err != nil || len(got) != 1 {
		t.Errorf("got %v, %v, want the entry", got, err)
	}
}
