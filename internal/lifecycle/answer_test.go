package lifecycle

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestIsMoved(t *testing.T) {
	t.Parallel()
	invalid := func(message string, details *metav1.StatusDetails) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
			Message: message, Details: details,
		}}
	}
	pods, kind := schema.GroupResource{Resource: "pods"}, schema.GroupKind{Kind: "Pod"}
	value := field.Invalid(field.NewPath("metadata", "labels"), "not ok!", "a valid label must be")
	noPod := field.Invalid(field.NewPath("patch"), "{}", "cannot unmarshal number into Go struct field ObjectMeta.metadata.labels")
	type row struct {
		reason string
		err    error
		want   bool
	}
	expect.Each(t, map[string]row{
		"no error": {"it was written", nil, false},
		"failed test": {"a failed test, an index out of range and a path that is gone look the same",
			invalid("the server rejected our request due to an error in our request", &metav1.StatusDetails{}), true},
		"wrapped":       {"whoever wraps it says nothing else", fmt.Errorf("patching: %w", invalid("", &metav1.StatusDetails{})), true},
		"conflict":      {"somebody else was faster, several times over", apierrors.NewConflict(pods, "web-1", errors.New("modified")), true},
		"refused value": {"it will be refused the next time too", apierrors.NewInvalid(kind, "web-1", field.ErrorList{value}), false},
		"refused for no stated cause": {"it names the pod, and so somebody looked at the value",
			apierrors.NewInvalid(kind, "web-1", nil), false},
		"not a pod any more": {"a patch that makes no pod names its cause, and no pod",
			apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{noPod}), false},
		"refused by a webhook": {"a webhook's answer has no details",
			invalid(`admission webhook "wh.example.com" denied the request: no good`, nil), false},
		"throttled":         {"the pod is where it was", apierrors.NewTooManyRequests("slow down", 1), false},
		"broken connection": {"the outcome is unknown", errors.New("connection reset by peer"), false},
	}, func(t *testing.T, tc row) {
		expect.Equal(t, tc.want, IsMoved(tc.err), "IsMoved: %s", tc.reason)
	})
}
