package controller

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

// showRotation writes on the pod whether it is in rotation, where that is wanted and has changed: a second write beside that of
// the handlers, since conditions are another resource.
func (r *PodReconciler) showRotation(ctx context.Context, seen *observation) error {
	pod := seen.pod()
	if !r.PodCondition || seen.departed || pod.DeletionTimestamp != nil {
		return nil
	}
	in, known := seen.rotation()
	if !known || in == lifecycle.InRotation(pod) {
		return nil
	}
	data, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID}, // of another pod under the name nothing is known
		"status":   map[string]any{"conditions": []corev1.PodCondition{lifecycle.RotationCondition(in, r.Clock.Now())}},
	})
	if err != nil {
		return fmt.Errorf("encoding the condition: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patchTimeout)
	defer cancel()
	written := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err = r.Client.Status().Patch(ctx, written, client.RawPatch(types.StrategicMergePatchType, data))
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return errMoved
	case err != nil:
		return fmt.Errorf("patching the pod's condition: %w", err)
	}
	seen.note.Written = written.ResourceVersion
	return nil
}

// rotation reports whether the pod is in rotation: every registry has acknowledged every instance in service. Until then, and
// where it is left as it is, nothing is known.
func (o *observation) rotation() (in, known bool) {
	switch o.decision.Want {
	case lifecycle.OutOfService, lifecycle.Absent:
		return false, true
	case lifecycle.InService:
		in = o.arrived()
	case lifecycle.Keep:
	}
	return in, in
}
