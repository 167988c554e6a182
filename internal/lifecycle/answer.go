package lifecycle

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// IsRefused reports that the API server will say the same of a patch again, until a person changes what makes it say so. An admission
// webhook chooses the code of HTTP as it likes.
func IsRefused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case 401, 408, 425, 429: // unauthorized, a time-out, too early, too many requests
		return false
	default:
		return code >= 400 && code < 500
	}
}

// IsMoved reports that a test of a patch by [Input.Patch] failed, or that its path is no longer there. The API server answers both with
// 422 and details that are empty; a value that validation refuses names its causes, and a webhook gives no details.
func IsMoved(err error) bool {
	if apierrors.IsConflict(err) {
		return true
	}
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Kind == "" && len(details.Causes) == 0
}
