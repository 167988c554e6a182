package evictions

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// site is a manager's certificate in a cluster where the component was applied.
type site struct {
	*Issuer

	t           *testing.T
	api         client.Client
	clock       *clocktesting.FakePassiveClock
	certificate *Certificate
	// reads and writes are how many requests the code under test has made.
	reads, writes int
}

func newSite(t *testing.T) *site {
	t.Helper()
	api := fake.NewClientBuilder().WithObjects(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "hold"}},
		&admissionv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "hold"}, Webhooks: []admissionv1.MutatingWebhook{{Name: "hold.example.com"}},
		}).Build()
	s := &site{t: t, clock: clocktesting.NewFakePassiveClock(time.Now()), api: api}
	server := interceptor.NewClient(api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			s.reads++
			return c.Get(ctx, key, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			s.writes++
			return c.Update(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			s.writes++
			return c.Patch(ctx, o, p, opts...)
		},
	})
	s.Issuer = &Issuer{Server: server, Namespace: "system", Name: "hold", Clock: s.clock, Logger: testr.New(t)}
	s.certificate = &Certificate{Server: server, Namespace: "system", Name: "hold", Clock: s.clock, Logger: testr.New(t)}
	return s
}

func (s *site) Keep() {
	s.t.Helper()
	expect.NoError(s.t, s.keep(s.t.Context()))
}

// Served is what the manager serves with, once it has read the Secret.
func (s *site) Served() *tls.Certificate {
	s.t.Helper()
	expect.NoError(s.t, s.certificate.read(s.t.Context()))
	served, err := s.certificate.get(s.t.Context())
	expect.NoError(s.t, err)
	return served
}

func (s *site) configuration() *admissionv1.MutatingWebhookConfiguration {
	s.t.Helper()
	c := &admissionv1.MutatingWebhookConfiguration{}
	expect.NoError(s.t, s.api.Get(s.t.Context(), client.ObjectKey{Name: "hold"}, c))
	return c
}

// Configure replaces what the API server knows of the webhook.
func (s *site) Configure(webhook admissionv1.WebhookClientConfig) {
	s.t.Helper()
	c := s.configuration()
	c.Webhooks[0].ClientConfig = webhook
	expect.NoError(s.t, s.api.Update(s.t.Context(), c))
}

// ExpectTrusted checks a certificate as the API server does.
func (s *site) ExpectTrusted(served *tls.Certificate) {
	s.t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.configuration().Webhooks[0].ClientConfig.CABundle)
	if _, err := served.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "hold.system.svc"}); err != nil {
		s.t.Errorf("the API server does not trust what is served: %v", err)
	}
}

func TestCertificateIsIssuedAndKept(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if _, err := s.certificate.get(s.t.Context()); err == nil || !s.certificate.NotAfter().IsZero() {
		t.Error("something is served before anything was issued")
	}
	s.Keep()
	first := s.Served()
	if got := s.certificate.NotAfter(); !got.Equal(first.Leaf.NotAfter) {
		t.Errorf("the certificate ends at %s, want %s", got, first.Leaf.NotAfter)
	}
	s.ExpectTrusted(first)

	written := s.writes
	s.Keep()
	if s.writes != written {
		t.Errorf("a certificate that is good was not left alone: %d writes", s.writes-written)
	}
}

func TestCertificateIsRenewedWithoutAMomentOfDistrust(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Keep()
	before := s.Served()
	s.clock.SetTime(time.Now().Add(260 * 24 * time.Hour))
	s.Keep()
	s.Keep()
	if !s.Served().Leaf.Equal(before.Leaf) {
		t.Error("a new certificate is served while API servers may not trust it yet")
	}
	s.clock.SetTime(s.clock.Now().Add(spreads))
	s.Keep()
	s.ExpectTrusted(before) // managers that have yet to read the Secret
	after := s.Served()
	s.ExpectTrusted(after)
	if before.Leaf.Equal(after.Leaf) {
		t.Error("105 days before its end the certificate is the same")
	}
}

// TestCertificateIsReadWhenAsked: the leader has just issued the first one, and the API server asks another manager.
func TestCertificateIsReadWhenAsked(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if s.certificate.Read() {
		t.Error("nothing was read, and the manager takes the Secret for read")
	}
	expect.NoError(t, s.certificate.read(t.Context()))
	if !s.certificate.Read() {
		t.Error("there is no certificate, and the manager waits for one: it may be the next leader, which issues it")
	}
	s.Keep()
	served, err := s.certificate.get(t.Context())
	expect.NoError(t, err)
	s.ExpectTrusted(served)
}

// TestCertManagersCertificateIsLeftAlone: two issuers would undo each other's work.
func TestCertManagersCertificateIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.configuration()
	c.Annotations = map[string]string{"cert-manager.io/inject-ca-from": "system/hold"}
	expect.NoError(t, s.api.Update(t.Context(), c))
	s.Keep()
	expect.Equal(t, 0, s.writes, "writes")
}

func TestAuthorityIsPutBack(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Keep()
	served := s.Served()
	s.Configure(admissionv1.WebhookClientConfig{}) // kubectl replace
	s.Keep()
	s.ExpectTrusted(served)
}

func TestBadSecretIsIssuedAnewAndServesNothingMeanwhile(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	expect.NoError(t, s.api.Update(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "hold"},
		Data:       map[string][]byte{corev1.TLSCertKey: []byte("no certificate"), corev1.TLSPrivateKeyKey: []byte("no key")},
	}))
	if err := s.certificate.read(t.Context()); err == nil {
		t.Error("a Secret without a certificate is read without an error")
	}
	s.Keep()
	s.ExpectTrusted(s.Served())
}
