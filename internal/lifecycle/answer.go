package lifecycle

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// IsRefused reports whether the API server will refuse the same patch until a person changes something. Webhooks use any 4xx code.
func IsRefused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case 401, 408, 425, 429: // unauthorized, timeout, too early, too many requests
		return false
	default:
		return code >= 400 && code < 500
	}
}

// IsMoved reports whether a test or path of [Input.Patch] failed: a 422 with empty details. Validation lists causes, webhooks send none.
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
