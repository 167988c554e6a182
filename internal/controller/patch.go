package controller

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

// patch makes the edit and writes the record in one API write, or none where the pod has all of it. It reports moved
// where the pod is no longer what it was decided on, and then nothing was written. The observation then holds the pod
// as the API server returned it.
func (r *PodReconciler) patch(
	ctx context.Context, seen *observation, edit lifecycle.Edit, record *lifecycle.Record,
) (moved bool, err error) {
	pod := seen.pod()
	if edit.Empty() && pod.DeletionTimestamp != nil {
		return false, nil // the record goes with the pod
	}
	data, err := lifecycle.Patch(pod, seen.input.Hooks, edit, record)
	if err != nil || data == nil {
		return false, err
	}
	written := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err = r.client.Patch(ctx, written, client.RawPatch(types.JSONPatchType, data))
	switch {
	case apierrors.IsNotFound(err):
		return false, nil // its deletion is on the way to the cache
	case isMoved(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("patching the pod: %w", err)
	}
	seen.page.written = written.ResourceVersion
	seen.input.Pod, seen.input.Record = written, lifecycle.RecordOf(written)
	return false, nil
}

// isMoved reports that a test of the patch failed, or that its path is no longer there. The API server answers both with
// 422 and a cause of this type; a refused value (by validation or a webhook) comes with another.
func isMoved(err error) bool {
	if apierrors.IsConflict(err) {
		return true
	}
	status, ok := err.(apierrors.APIStatus) //nolint:errorlint // the client returns the status itself
	if !ok || !apierrors.IsInvalid(err) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool {
		return c.Type == metav1.CauseTypeUnexpectedServerResponse
	})
}
