package app

import (
	"fmt"
	"net/http"
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

// evictionsPath is the webhook's name in metrics. It is served at a path that only the API server knows, see evictions.Path.
const evictionsPath = "/evict"

// evicting is the webhook.
type evicting struct {
	served

	webhook *evictions.Webhook
	// unready returns why evictions can't be answered yet, or nothing.
	unready func() string
}

// apply sets the webhook's rules.
func (e *evicting) apply(hooks lifecycle.Ownership, drain time.Duration) {
	if e.webhook != nil {
		e.webhook.Apply(hooks, drain)
	}
}

// newEvicting makes the webhook, unless it is off. It answers, and makes Events, whether or not this manager leads. All that it writes
// otherwise it writes by the leader's client.
func (a *app) newEvicting(own *prometheus.Registry, synced func() bool, leader client.Client, may <-chan struct{}) (*evicting, error) {
	f := a.features.Evictions
	switch {
	case !f.Enabled:
		return &evicting{unready: func() string { return "" }}, nil
	case podNamespace() == "":
		return nil, fmt.Errorf("%s: evictions.enabled: the namespace of the webhook's Service is not known: set the environment variable "+
			"POD_NAMESPACE", a.flags.config)
	}
	logger := a.logger.WithName("evictions")
	recording, err := cluster.New(a.unfenced, func(o *cluster.Options) {
		o.Scheme, o.MapperProvider, o.Logger = a.manager.GetScheme(), mapper, logger
		o.NewClient = func(*rest.Config, client.Options) (client.Client, error) { return a.direct, nil }
	})
	if err != nil {
		return nil, fmt.Errorf("making the eviction webhook's client: %w", err)
	}
	leads := func() bool { return a.Permit(writeTimeout) == nil }
	certificate := &evictions.Certificate{
		Server: a.direct, Namespace: podNamespace(), Name: f.Name, Clock: clock.RealClock{}, Logger: logger,
	}
	metrics.RegisterCertificate(own, certificate.NotAfter)
	e := &evicting{webhook: evictions.New(evictions.Options{
		Cache: a.manager.GetClient(), Pods: a.cachedPods, Scope: a.namespaces.scope, Synced: synced,
		API: a.direct, Leader: leader, Leads: leads,
		Recorder: &shortNotes{recording.GetEventRecorder(controllerName)}, Limit: f.Limit, Clock: clock.RealClock{}, Logger: logger,
	})}
	path := &evictions.Path{Server: a.direct, Name: f.Name, Clock: clock.RealClock{}, Logger: logger}
	issuer := &evictions.Issuer{Server: leader, Namespace: podNamespace(), Name: f.Name, Clock: clock.RealClock{}, Logger: logger}
	e.runnables = []manager.Runnable{recording}
	// Without a certificate nothing is served, and the API server lets evictions through.
	for _, runnable := range []manager.Runnable{certificate, path, evictions.IssuePath(leader, f.Name, logger), issuer} {
		e.runnables = append(e.runnables, &after{Runnable: runnable, there: may})
	}
	answer, err := admission.StandaloneWebhook(&admission.Webhook{Handler: e.webhook},
		admission.StandaloneOptions{Logger: logger, MetricsPath: evictionsPath})
	if err != nil {
		return nil, fmt.Errorf("making the eviction webhook: %w", err)
	}
	e.handler, e.certificate = path.Guard(untilElected(answer, leads)), certificate.Get
	e.unready = func() string { return unread(may, certificate) }
	return e, nil
}

// unread returns why evictions can't be answered yet, or nothing. A manager without the rights is ready, as for any feature.
func unread(may <-chan struct{}, certificate *evictions.Certificate) string {
	if isClosed(may) && !certificate.Read() {
		return "the certificate of the eviction webhook was not read yet"
	}
	return ""
}

// untilElected ends each connection with its answer while this manager does not lead. The API server keeps connections, and would ask the
// same manager again and again, which begins nothing.
func untilElected(next http.Handler, leads func() bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !leads() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
