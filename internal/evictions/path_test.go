package evictions

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestPath: whoever can reach the webhook but does not know what the API server calls gets no pod deleted.
func TestPath(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Configure(admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "system", Name: "hold"}})
	served := &Path{Server: s.Server, Name: "hold", Clock: s.clock, Logger: testr.New(t)}
	guarded := served.Guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	expectCode := func(path, reason string, want int) {
		t.Helper()
		s.clock.SetTime(s.clock.Now().Add(lookEvery))
		answer := httptest.NewRecorder()
		guarded.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/"+path, http.NoBody))
		expect.Equal(t, want, answer.Code, "%q: %s", path, reason)
	}
	expectCode("", "no path was issued", http.StatusNotFound)

	expect.NoError(t, issuePath(t.Context(), s.Server, "hold"))
	first := pathOf(s.configuration().Webhooks[0].ClientConfig)[1:]
	expectCode(first, "it was just issued", http.StatusOK)
	expectCode("", "it is not the one", http.StatusNotFound)
	expectCode("evict", "neither", http.StatusNotFound)
	expect.NoError(t, issuePath(t.Context(), s.Server, "hold"))
	expectCode(first, "it is kept", http.StatusOK)

	s.Configure(admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "system", Name: "hold"}})
	expect.NoError(t, issuePath(t.Context(), s.Server, "hold"))
	expect.NoError(t, served.read(t.Context()))
	expectCode(first, "it was replaced", http.StatusNotFound)
	first = pathOf(s.configuration().Webhooks[0].ClientConfig)[1:]
	expectCode(first, "it is a new one", http.StatusOK)

	s.Configure(admissionv1.WebhookClientConfig{URL: new("https://rollcall.example.com/a/b")})
	expect.NoError(t, issuePath(t.Context(), s.Server, "hold"))
	expectCode("a/b", "a person wrote it", http.StatusOK)
	expectCode(first, "the API server calls another", http.StatusNotFound)
}

// TestPathIsNotLookedForAllTheTime: whoever guesses does not have the API server asked each time.
func TestPathIsNotLookedForAllTheTime(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	path := &Path{Server: s.Server, Name: "hold", Clock: s.clock, Logger: testr.New(t)}
	for range 100 {
		path.opens(t.Context(), "/guess")
		s.clock.SetTime(s.clock.Now().Add(lookEvery / 50))
	}
	expect.Equal(t, 2, s.reads, "reads in %s", 2*time.Second)
}
