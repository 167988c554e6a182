package app

import (
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/rollcall-dev/rollcall/internal/evictions"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/metrics"
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
		"how long the eviction of a pod waits for OpenKruise before the pod is taken out of rotation and, after its drain, "+
			"let through with a Warning")
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

// evicting is the webhook; the zero value is off.
type evicting struct {
	served

	webhook *evictions.Webhook
}

// apply sets the webhook's rules.
func (e *evicting) apply(hooks lifecycle.Ownership, drain time.Duration) {
	if e.webhook != nil {
		e.webhook.Apply(hooks, drain)
	}
}

// newEvicting makes the webhook, unless it is off. It writes whether or not this manager leads; only the
// issuers of its certificate and its path use the leader's client.
func (a *app) newEvicting(own *prometheus.Registry, synced func() bool, leader client.Client) (*evicting, error) {
	f := &a.flags.evictions
	if !f.on() {
		return &evicting{}, nil
	}
	logger := a.logger.WithName("evictions")
	recording, err := cluster.New(a.unfenced, func(o *cluster.Options) {
		o.Scheme, o.MapperProvider, o.Logger = a.manager.GetScheme(), mapper, logger
		o.NewClient = func(*rest.Config, client.Options) (client.Client, error) { return a.direct, nil }
	})
	if err != nil {
		return nil, fmt.Errorf("making the eviction webhook's client: %w", err)
	}
	certificate := &evictions.Certificate{Server: a.direct, Namespace: podNamespace(), Name: f.name, Logger: logger}
	metrics.RegisterCertificate(own, certificate.NotAfter)
	e := &evicting{webhook: evictions.New(evictions.Options{
		Cache: a.manager.GetClient(), Namespaces: a.namespaces.watched, Synced: synced, API: a.direct,
		Recorder: &shortNotes{recording.GetEventRecorder(controllerName)}, Limit: f.limit, Clock: clock.RealClock{}, Logger: logger,
	})}
	path := &evictions.Path{Server: a.direct, Name: f.name, Clock: clock.RealClock{}, Logger: logger}
	e.runnables = []manager.Runnable{certificate, recording, path, evictions.IssuePath(leader, f.name, logger)}
	if f.selfSigned {
		e.runnables = append(e.runnables, &evictions.Issuer{
			Server: leader, Namespace: podNamespace(), Name: f.name, Clock: clock.RealClock{}, Logger: logger,
		})
	}
	answer, err := admission.StandaloneWebhook(&admission.Webhook{Handler: e.webhook},
		admission.StandaloneOptions{Logger: logger, MetricsPath: evictionsPath})
	if err != nil {
		return nil, fmt.Errorf("making the eviction webhook: %w", err)
	}
	e.handler, e.certificate = path.Guard(answer), certificate.Get
	return e, nil
}
