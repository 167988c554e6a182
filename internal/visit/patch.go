package visit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/internal/tracker"
)

// patchTimeout bounds a patch after the manager was told to stop.
const patchTimeout = 15 * time.Second

// ErrMoved means that the pod is gone or has changed, and nothing was written.
var ErrMoved = errors.New("the pod has moved on")

// patch writes edit and record in one JSON patch, also while the manager stops: otherwise the next one repeats the calls. It asks for
// metadata only, which is a tenth of the pod.
func (v *visit) patch(ctx context.Context, edit lifecycle.Edit, record *lifecycle.Record) error {
	pod := v.pod()
	if edit.Empty() && pod.DeletionTimestamp != nil {
		return nil // the record goes with the pod
	}
	data, err := v.input.Patch(edit, record)
	if err != nil || data == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patchTimeout)
	defer cancel()
	written := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	written.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	err = v.Client.Patch(ctx, written, client.RawPatch(types.JSONPatchType, data))
	switch {
	case errors.Is(err, registryclient.ErrDryRun):
		return nil // it was reported, and the pod is as it was
	case apierrors.IsNotFound(err), lifecycle.IsMoved(err):
		return fmt.Errorf("%w: %w", ErrMoved, err)
	case err != nil:
		return fmt.Errorf("patching the pod: %w", err)
	}
	after := pod.Updated(written.ObjectMeta)
	v.facts.Memory.Written = written.ResourceVersion
	v.input.Pod = after
	if after.Annotations[lifecycle.AnnotationRecord] != pod.Annotations[lifecycle.AnnotationRecord] {
		v.input.Record = v.State.Records.Of(after)
	}
	v.decide()
	return nil
}

// showRotation updates the pod's condition, which takes a write of its own.
func (v *visit) showRotation(ctx context.Context) error {
	pod := v.pod()
	if !v.PodCondition() || v.facts.Uncached || pod.DeletionTimestamp != nil {
		return nil
	}
	in, known := v.rotation()
	if !known || in == lifecycle.InRotation(pod) {
		return nil
	}
	data, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID}, // of another pod under the name nothing is known
		"status":   map[string]any{"conditions": []corev1.PodCondition{lifecycle.RotationCondition(in, v.Clock.Now())}},
	})
	if err != nil {
		return fmt.Errorf("encoding the condition: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patchTimeout)
	defer cancel()
	written := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err = v.Client.Status().Patch(ctx, written, client.RawPatch(types.StrategicMergePatchType, data))
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return ErrMoved
	case err != nil:
		return fmt.Errorf("patching the pod's condition: %w", err)
	}
	v.facts.Memory.Written = written.ResourceVersion
	return nil
}

// rotation reports whether all registries have acknowledged that the pod is in, but for those that follow the condition, or one must say
// that it is out.
func (v *visit) rotation() (in, known bool) {
	want, entries := v.decision.Want, v.plan()
	entries.Targets = slices.DeleteFunc(slices.Clone(entries.Targets), func(t tracker.Target) bool {
		return v.facts.Settings.Client(t.Key().Source()).Follows()
	})
	in = want == lifecycle.InService && entries.Arrived()
	return in, in || want == lifecycle.OutOfService || want == lifecycle.Absent
}
