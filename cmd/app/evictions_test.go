package app

import (
	"context"
	"errors"
	"testing"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/rollcall-dev/rollcall/internal/evictions"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestManagerIsReadyOnceItHasReadTheCertificate: behind the Service without one, evictions that come to it would bypass the hooks.
func TestManagerIsReadyOnceItHasReadTheCertificate(t *testing.T) {
	t.Parallel()
	may := make(chan struct{})
	certificate := &evictions.Certificate{
		Server:    fakeclient.NewClientBuilder().WithObjects(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "hold"}}).Build(),
		Namespace: "system", Name: "hold", Clock: clock.RealClock{}, Logger: testr.New(t),
	}
	if why := unread(may, certificate); why != "" {
		t.Errorf("without the rights it is not ready: %s; no feature holds up the others", why)
	}
	close(may)
	if unread(may, certificate) == "" {
		t.Error("it is ready before it has read the Secret")
	}
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan error, 1)
	go func() { started <- certificate.Start(ctx) }()
	expect.Soon(t, "the manager to be ready", func() error {
		if why := unread(may, certificate); why != "" {
			return errors.New(why)
		}
		return nil
	})
	cancel()
	expect.NoError(t, <-started)
}
