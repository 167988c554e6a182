package app

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/rollcall-dev/rollcall/internal/evictions"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestManagerThatDoesNotLeadEndsConnections: the API server keeps them, and its retries would never reach the one that leads.
func TestManagerThatDoesNotLeadEndsConnections(t *testing.T) {
	t.Parallel()
	leads := false
	server := httptest.NewServer(untilElected(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), func() bool { return leads }))
	t.Cleanup(server.Close)
	for _, leads = range []bool{false, true} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, http.NoBody)
		expect.NoError(t, err)
		response, err := server.Client().Do(request)
		expect.NoError(t, err)
		expect.NoError(t, response.Body.Close())
		if response.Close == leads {
			t.Errorf("the connection ends: %t, where the manager leads: %t", response.Close, leads)
		}
	}
}

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
