package evictions

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

const (
	// interval is how often the Secret is read, and so how soon a new certificate is served.
	interval = 10 * time.Second
	// spreads is how long every API server may take to know a change of the webhook configuration, which each of them watches.
	spreads = time.Minute
	// renewBefore is how long before its end a certificate is replaced. It lives for a year.
	renewBefore = 4 * 30 * 24 * time.Hour
)

// Certificate is the one that the webhook serves with: what the Secret has now. Every manager reads it.
type Certificate struct {
	// Server reads from the API server. Name is that of the Secret in Namespace.
	Server          client.Reader
	Namespace, Name string
	Clock           clock.PassiveClock
	Logger          logr.Logger

	current atomic.Pointer[tls.Certificate]
	looks   looks
	// known is set once the Secret was read, whether or not it has a certificate.
	known atomic.Bool
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*Certificate) NeedLeaderElection() bool { return false }

// Start reads the Secret until ctx ends.
func (c *Certificate) Start(ctx context.Context) error {
	return repeat(c.Logger, "failed to read the certificate of the eviction webhook", c.read)(ctx)
}

// Get implements the GetCertificate of a tls.Config. It reads the Secret if there was no certificate: the leader may just have written it.
func (c *Certificate) Get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	return c.get(hello.Context())
}

func (c *Certificate) get(ctx context.Context) (*tls.Certificate, error) {
	has := func() bool { return c.current.Load() != nil }
	if err := c.looks.until(ctx, c.Clock, has, c.read); err != nil {
		c.Logger.Error(err, "failed to read the certificate of the eviction webhook")
	}
	if current := c.current.Load(); current != nil {
		return current, nil
	}
	return nil, fmt.Errorf("no certificate in Secret %s/%s yet", c.Namespace, c.Name)
}

// Read reports whether this manager serves with what the Secret has: there may be no certificate yet, but then no manager has one.
func (c *Certificate) Read() bool { return c.known.Load() }

// NotAfter is when the certificate ends, zero without one.
func (c *Certificate) NotAfter() time.Time {
	if current := c.current.Load(); current != nil {
		return current.Leaf.NotAfter
	}
	return time.Time{}
}

func (c *Certificate) read(ctx context.Context) error {
	var secret corev1.Secret
	if err := c.Server.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.Name}, &secret); err != nil {
		return err
	}
	c.known.Store(true)
	if len(secret.Data[corev1.TLSCertKey]) == 0 {
		return nil // it was not issued yet
	}
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return fmt.Errorf("reading the certificate in Secret %s/%s: %w", c.Namespace, c.Name, err)
	}
	c.current.Store(&pair)
	return nil
}

// Issuer makes the certificate, puts it into the Secret, and its authority into the webhook configuration. It replaces it long
// before it ends, and the authority [spreads] before, so that every API server trusts what is served at any moment. The authority's key is
// kept nowhere. Only the leader issues, and none where an annotation of the webhook configuration leaves it to cert-manager.
type Issuer struct {
	// Server reads from the API server.
	Server client.Client
	// Name is that of the Service and the Secret in Namespace, and of the MutatingWebhookConfiguration.
	Namespace, Name string
	Clock           clock.PassiveClock
	Logger          logr.Logger

	// next is what replaces the certificate.
	next issued
}

// issued is a certificate whose authority is trusted since then.
type issued struct {
	chain, key []byte
	trusted    time.Time
}

// Start keeps the certificate until ctx ends.
func (i *Issuer) Start(ctx context.Context) error {
	return repeat(i.Logger, "failed to keep the certificate of the eviction webhook", i.keep)(ctx)
}

// repeat does it at each interval until the context ends. It logs an error once, until another one comes or it has passed.
func repeat(logger logr.Logger, what string, do func(context.Context) error) manager.RunnableFunc {
	return func(ctx context.Context) error {
		last := ""
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			err := do(ctx)
			if err == nil || ctx.Err() != nil {
				last = ""
			} else if text := err.Error(); text != last {
				logger.Error(err, what)
				last = text
			}
		}, interval)
		return nil
	}
}

// othersIssue begins the annotations by which others bring the certificate: cert-manager's.
const othersIssue = "cert-manager.io/inject-"

// keep issues a certificate if there is none that is good, and makes the webhook configuration trust it.
func (i *Issuer) keep(ctx context.Context) error {
	var configuration admissionv1.MutatingWebhookConfiguration
	if err := i.Server.Get(ctx, client.ObjectKey{Name: i.Name}, &configuration); err != nil {
		return missing(err)
	}
	for annotation := range configuration.Annotations {
		if strings.HasPrefix(annotation, othersIssue) {
			return nil
		}
	}
	var secret corev1.Secret
	if err := i.Server.Get(ctx, client.ObjectKey{Namespace: i.Namespace, Name: i.Name}, &secret); err != nil {
		return missing(err)
	}
	chain, key := secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]
	now := i.Clock.Now()
	if i.good(chain, key, now.Add(renewBefore)) {
		return i.trust(ctx, authority(chain))
	}
	if err := i.prepare(ctx, chain); err != nil {
		return err
	}
	if i.good(chain, key, now) && now.Sub(i.next.trusted) < spreads {
		return nil
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey] = i.next.chain, i.next.key
	if err := i.Server.Update(ctx, &secret); err != nil {
		return err
	}
	i.next = issued{}
	i.Logger.Info("certificate of the eviction webhook issued", "secret", i.Name, "host", i.host())
	return nil
}

// prepare makes the certificate that replaces the chain, and has the webhook configuration trust both.
func (i *Issuer) prepare(ctx context.Context, chain []byte) error {
	if i.next.chain == nil {
		fresh, key, err := cert.GenerateSelfSignedCertKey(i.host(), nil, nil)
		if err != nil {
			return fmt.Errorf("making a certificate: %w", err)
		}
		i.next = issued{chain: fresh, key: key}
	}
	if err := i.trust(ctx, append(authority(i.next.chain), authority(chain)...)); err != nil {
		return err
	}
	if i.next.trusted.IsZero() {
		i.next.trusted = i.Clock.Now()
	}
	return nil
}

func (i *Issuer) host() string { return i.Name + "." + i.Namespace + ".svc" }

// good reports a pair that is for the Service at that time.
func (i *Issuer) good(chain, key []byte, at time.Time) bool {
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return false
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority(chain))
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: i.host(), CurrentTime: at})
	return err == nil
}

// trust adds the authorities to what every webhook of the configuration trusts, unless it trusts the first of them already:
// the others are those that were trusted before it.
func (i *Issuer) trust(ctx context.Context, authorities []byte) error {
	first, _ := pem.Decode(authorities)
	if first == nil {
		return errors.New("the certificate comes without its authority")
	}
	return change(ctx, i.Server, i.Name, "caBundle", func(c admissionv1.WebhookClientConfig) any {
		if bytes.Contains(c.CABundle, pem.EncodeToMemory(first)) {
			return nil
		}
		return authorities
	})
}

// missing explains what creates an object that is not there, or may not be read.
func missing(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return fmt.Errorf("%w: apply config/components/evictions, or, with the chart, set config.evictions.enabled", err)
	}
	return err
}

// change gives a field of every webhook's clientConfig what value returns, unless that is nil.
func change(ctx context.Context, server client.Client, name, field string, value func(admissionv1.WebhookClientConfig) any) error {
	var configuration admissionv1.MutatingWebhookConfiguration
	if err := server.Get(ctx, client.ObjectKey{Name: name}, &configuration); err != nil {
		return missing(err)
	}
	patch := []lifecycle.Operation{{Op: "test", Path: "/metadata/resourceVersion", Value: configuration.ResourceVersion}}
	for n := range configuration.Webhooks {
		if v := value(configuration.Webhooks[n].ClientConfig); v != nil {
			patch = append(patch, lifecycle.Operation{Op: "add", Path: fmt.Sprintf("/webhooks/%d/clientConfig/%s", n, field), Value: v})
		}
	}
	if len(patch) == 1 {
		return nil
	}
	text, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("making a patch of the webhook configuration: %w", err)
	}
	return server.Patch(ctx, &configuration, client.RawPatch(types.JSONPatchType, text))
}

// authority returns the last certificate of a chain, which has signed the first.
func authority(chain []byte) []byte {
	var last []byte
	for {
		var block *pem.Block
		if block, chain = pem.Decode(chain); block == nil {
			return last
		}
		last = pem.EncodeToMemory(block)
	}
}
