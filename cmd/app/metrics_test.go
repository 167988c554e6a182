package app

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rollcall-dev/rollcall/test/harness/bubble"
)

// TestStreamEndsWithTheRight: a reader who stays is not asked about only once.
func TestStreamEndsWithTheRight(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		revoke func(*reviews)
	}
	bubble.Each(t, map[string]row{
		"a right that is revoked":         {"the reader may not get the path", func(r *reviews) { r.allowed = false }},
		"a token that is revoked":         {"nobody knows whose it is", func(r *reviews) { r.authenticated = false }},
		"an API server that is not there": {"what is not known is not permitted", func(r *reviews) { r.err = errors.New("connection refused") }},
	}, func(t *testing.T, c row) {
		r := &reviews{authenticated: true, allowed: true}
		stays := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.readers(stays).ServeHTTP(httptest.NewRecorder(), asks(t, "/status/events"))
		}()
		time.Sleep(10*time.Minute + time.Second)
		select {
		case <-ended:
			t.Fatalf("the stream has ended, and the reader may read it: %s", c.reason)
		default:
		}
		r.mu.Lock()
		if r.made > 11 {
			t.Errorf("the API server was asked %d times in ten minutes", r.made)
		}
		c.revoke(r)
		r.mu.Unlock()
		revoked := time.Now()
		<-ended
		if after := time.Since(revoked); after > admittedFor {
			t.Errorf("the stream ended after %s, want within %s: %s", after, admittedFor, c.reason)
		}
	})
}

// TestShortAnswersAreAskedAboutOnce: a scrape leaves nothing behind.
func TestShortAnswersAreAskedAboutOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &reviews{authenticated: true, allowed: true}
		s := r.readers(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		for range 6 {
			s.ServeHTTP(httptest.NewRecorder(), asks(t, "/metrics"))
			time.Sleep(9 * time.Second)
		}
		time.Sleep(time.Hour)
		if r.made != 1 {
			t.Errorf("the API server was asked %d times, want once in a minute", r.made)
		}
	})
}

func asks(t *testing.T, path string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
	r.Header.Set("Authorization", "Bearer token")
	return r
}

// reviews is an API server that says who may read.
type reviews struct {
	mu                     sync.Mutex
	authenticated, allowed bool
	err                    error
	// made are those of tokens.
	made int
}

func (r *reviews) readers(next http.Handler) *readers {
	server := interceptor.NewClient(clientfake.NewFakeClient(), interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			switch review := object.(type) {
			case *authenticationv1.TokenReview:
				r.made++
				review.Status.Authenticated = r.authenticated
			case *authorizationv1.SubjectAccessReview:
				review.Status.Allowed = r.allowed
			}
			return r.err
		},
	})
	return newReaders(next, server, quiet(), "v1.2.3")
}
