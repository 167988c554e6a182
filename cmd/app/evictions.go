package app

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/rollcall-dev/rollcall/internal/evictions"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

// evictionsPath names the webhook in metrics. It is served at a path that only the API server knows, see evictions.Path.
const evictionsPath = "/evict"

// evictionFlags are those of the webhook, which is off unless it has an address.
type evictionFlags struct {
	address    string
	name       string
	selfSigned bool
	limit      time.Duration
}

func (f *evictionFlags) bind(set *flag.FlagSet) {
	set.StringVar(&f.address, "eviction-webhook-bind-address", off,
		"the `address` of the webhook that turns evictions into hooked deletions, :9443 for example; 0 turns it off")
	set.StringVar(&f.name, "eviction-webhook-name", "rollcall-evictions",
		"the `name` of the eviction webhook's Service and Secret, in the manager's namespace, and of its MutatingWebhookConfiguration")
	set.BoolVar(&f.selfSigned, "eviction-webhook-self-signed", true,
		"make the eviction webhook's certificate, and renew it; false where something else does, cert-manager for example")
	set.DurationVar(&f.limit, "eviction-webhook-limit", 10*time.Minute,
		"how long the eviction of a pod is held back before it is let through with a Warning")
}

func (f *evictionFlags) on() bool { return f.address != off }

func (f *evictionFlags) check(dryRun bool) error {
	switch {
	case !f.on():
		return nil
	case dryRun:
		return errors.New("--eviction-webhook-bind-address: a dry run answers no evictions: leave the flag out")
	case f.name == "":
		return errors.New("--eviction-webhook-name is empty: name the webhook's Service, Secret and MutatingWebhookConfiguration")
	case f.limit <= 0:
		return fmt.Errorf("--eviction-webhook-limit: %s is too short: write 10m, for example", f.limit)
	case podNamespace() == "":
		return errors.New("--eviction-webhook-bind-address: the namespace of the webhook's Service is not known: " +
			"set the environment variable POD_NAMESPACE")
	default:
		return nil
	}
}

// evicting is the webhook, with what it is served with.
type evicting struct {
	served

	webhook     *evictions.Webhook
	certificate *evictions.Certificate
}

// apply has the webhook answer by new rules.
func (e *evicting) apply(hooks lifecycle.Ownership) {
	if e.webhook != nil {
		e.webhook.Apply(hooks)
	}
}

// newEvicting makes nothing where the webhook is off. Its clients are its own, since it writes whether or not this manager leads;
// only the issuer of its certificate uses those of the leader.
func (a *app) newEvicting(namespaces []string, synced func() bool, leader *apiClients) (*evicting, error) {
	f := &a.flags.evictions
	if !f.on() {
		return &evicting{}, nil
	}
	logger := a.logger.WithName("evictions")
	own, err := cluster.New(a.unfenced, func(o *cluster.Options) {
		o.Scheme, o.MapperProvider, o.NewClient, o.Logger = a.manager.GetScheme(), mapper, newUncached, logger
	})
	if err != nil {
		return nil, fmt.Errorf("making the eviction webhook's client: %w", err)
	}
	certificate := &evictions.Certificate{
		Secrets: a.direct.core.Secrets(podNamespace()), Namespace: podNamespace(), Name: f.name, Logger: logger,
	}
	e := &evicting{
		certificate: certificate,
		webhook: evictions.New(evictions.Options{
			Cache: a.manager.GetClient(), Namespaces: namespaces, Synced: synced, API: own.GetClient(),
			Recorder: &shortNotes{own.GetEventRecorder(controllerName)}, Limit: f.limit, Clock: clock.RealClock{}, Logger: logger,
		}),
		served: served{
			tls: &tls.Config{
				MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, GetCertificate: certificate.Get,
			},
			runnables: []manager.Runnable{certificate, own},
		},
	}
	webhooks := leader.admission.MutatingWebhookConfigurations()
	path := &evictions.Path{
		Webhooks: a.direct.admission.MutatingWebhookConfigurations(), Name: f.name, Clock: clock.RealClock{}, Logger: logger,
	}
	e.runnables = append(e.runnables, path, evictions.IssuePath(webhooks, f.name, logger))
	if f.selfSigned {
		e.runnables = append(e.runnables, &evictions.Issuer{
			Secrets: leader.core.Secrets(podNamespace()), Webhooks: webhooks,
			Namespace: podNamespace(), Name: f.name, Clock: clock.RealClock{}, Logger: logger,
		})
	}
	answer, err := admission.StandaloneWebhook(&admission.Webhook{Handler: e.webhook},
		admission.StandaloneOptions{Logger: logger, MetricsPath: evictionsPath})
	if err != nil {
		return nil, fmt.Errorf("making the eviction webhook: %w", err)
	}
	e.handler = path.Guard(answer)
	return e, nil
}

// newUncached makes a client that reads from the API server.
func newUncached(config *rest.Config, options client.Options) (client.Client, error) {
	options.Cache = nil
	return client.New(config, options)
}
