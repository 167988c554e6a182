package app

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
)

// flushFor is how long a manager that ends waits for its last traces to be taken.
const flushFor = 5 * time.Second

// traces sends a span for each reconcile, each call to a registry and each patch. A nil *traces sends nothing and costs nothing.
type traces struct {
	trace.Tracer

	provider *sdktrace.TracerProvider
}

// newTraces returns nil if OpenTelemetry's environment has no receiver. That environment has also the headers, certificates, the sampler
// and the attributes of the resource.
func newTraces(ctx context.Context, version string) (*traces, error) {
	get := func(name string) string {
		return cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_"+name), os.Getenv("OTEL_EXPORTER_OTLP_"+name))
	}
	if get("ENDPOINT") == "" || os.Getenv("OTEL_SDK_DISABLED") == "true" || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return nil, nil //nolint:nilnil // a nil *traces is one that is off
	}
	if protocol := get("PROTOCOL"); protocol != "" && protocol != "http/protobuf" {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL is %s: set http/protobuf, which most receivers take at port 4318", protocol)
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("making the exporter of traces: %w", err)
	}
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "rollcall"), attribute.String("service.version", version)), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("reading OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))
	return &traces{Tracer: provider.Tracer("github.com/rollcall-dev/rollcall"), provider: provider}, nil
}

// close sends what is left.
func (t *traces) close(ctx context.Context, logger logr.Logger) {
	if t == nil {
		return
	}
	if err := t.provider.Shutdown(ctx); err != nil {
		logger.Error(err, "failed to send the last traces")
	}
}

// logTraces has OpenTelemetry, whose handler is the process's, say in the log what goes wrong.
func logTraces(logger logr.Logger) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { logger.Error(err, "failed to send traces") }))
}

func end(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// reconciles returns what gives each reconcile a span.
func (t *traces) reconciles() func(reconcile.TypedReconciler[lifecycle.PodID]) reconcile.TypedReconciler[lifecycle.PodID] {
	if t == nil {
		return nil
	}
	return func(next reconcile.TypedReconciler[lifecycle.PodID]) reconcile.TypedReconciler[lifecycle.PodID] {
		return reconcile.TypedFunc[lifecycle.PodID](func(ctx context.Context, id lifecycle.PodID) (reconcile.Result, error) {
			ctx, span := t.Start(ctx, "reconcile", trace.WithAttributes(attribute.String("k8s.namespace.name", id.Namespace),
				attribute.String("k8s.pod.name", id.Name), attribute.String("k8s.pod.uid", string(id.UID))))
			result, err := next.Reconcile(ctx, id)
			span.SetAttributes(attribute.String("rollcall.requeue_after", result.RequeueAfter.String()))
			end(span, err)
			return result, err
		})
	}
}

// calls returns what gives each call to a registry a span. Which of several servers a call went to is known only to the driver.
func (t *traces) calls(name, endpoint string) registryclient.Trace {
	if t == nil {
		return nil
	}
	about := append(serverAttributes(soleServer(endpoint)), attribute.String("rollcall.registry", name))
	return func(ctx context.Context, of registryclient.Subject) (context.Context, func(error)) {
		ctx, span := t.Start(ctx, of.Operation, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(about...))
		if in := of.Instance; in.Service != "" { // a list has no instance
			span.SetAttributes(attribute.String("rollcall.service", in.Service), attribute.String("rollcall.instance", in.Endpoint()))
		}
		return ctx, func(err error) {
			span.SetAttributes(attribute.String("rollcall.outcome", string(registryclient.Classify(err))))
			end(span, err)
		}
	}
}

// outgoing puts the server that a request goes to on the span of its call, and returns the headers by which the server finds that.
func (t *traces) outgoing(ctx context.Context, server *url.URL) map[string]string {
	trace.SpanFromContext(ctx).SetAttributes(serverAttributes(server)...)
	headers := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, headers)
	return headers
}

// soleServer returns the server of an endpoint; nil if there are several, or none.
func soleServer(endpoint string) *url.URL {
	if !strings.Contains(endpoint, "://") {
		endpoint = "//" + endpoint
	}
	u, err := url.Parse(endpoint)
	if err != nil || strings.Contains(endpoint, ",") {
		return nil
	}
	return u
}

// serverAttributes are those of OpenTelemetry's semantic conventions.
// https://opentelemetry.io/docs/specs/semconv/registry/attributes/server/
func serverAttributes(u *url.URL) (all []attribute.KeyValue) {
	if u == nil || u.Hostname() == "" {
		return nil
	}
	all = append(all, attribute.String("server.address", u.Hostname()))
	if port, err := strconv.Atoi(cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])); err == nil {
		all = append(all, attribute.Int("server.port", port))
	}
	return all
}

// tracedPatches gives each patch a span.
type tracedPatches struct {
	next   http.RoundTripper
	tracer trace.Tracer
}

func (p *tracedPatches) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPatch {
		return p.next.RoundTrip(r)
	}
	ctx, span := p.tracer.Start(r.Context(), "patch", trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(append(serverAttributes(r.URL), attribute.String("url.path", r.URL.Path))...))
	r = r.Clone(ctx)
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(r.Header))
	response, err := p.next.RoundTrip(r)
	failure := err
	if response != nil {
		span.SetAttributes(attribute.Int("http.response.status_code", response.StatusCode))
		if response.StatusCode >= http.StatusBadRequest {
			failure = fmt.Errorf("the API server answered %d", response.StatusCode)
		}
	}
	end(span, failure)
	return response, err
}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (p *tracedPatches) WrappedRoundTripper() http.RoundTripper { return p.next }
