package app

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// recorded returns traces and the spans that have ended.
func recorded() (*traces, *tracetest.SpanRecorder) {
	spans := tracetest.NewSpanRecorder()
	return &traces{Tracer: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test")}, spans
}

// TestSpanOfACallHasTheRegistrysAddress: server.address is the registry's, by OpenTelemetry's conventions, and the pod's has a key of
// its own.
func TestSpanOfACallHasTheRegistrysAddress(t *testing.T) {
	t.Parallel()
	type row struct {
		reason, endpoint, request, address string
		port                               int64
	}
	expect.Each(t, map[string]row{
		"a URL":           {"", "http://consul.example.com:8500/base", "", "consul.example.com", 8500},
		"no port":         {"the scheme has one", "https://consul.example.com", "", "consul.example.com", 443},
		"a host and port": {"ZooKeeper has no URL", "zk-1:2181", "", "zk-1", 2181},
		"IPv6":            {"without brackets", "http://[fd00::1]:8848", "", "fd00::1", 8848},
		"several":         {"nobody knows yet which one it will be", "http://a:1,http://b:2", "", "", 0},
		"one of several":  {"the driver knows", "http://a:1,http://b:2", "http://b:2/v1/catalog", "b", 2},
		"another":         {"the agent of a node, which the registry named", "http://a:1", "http://10.1.1.1:8500/v1", "10.1.1.1", 8500},
		"none":            {"the registry is in the manager's memory", "", "", "", 0},
	}, func(t *testing.T, tc row) {
		traces, spans := recorded()
		ctx, end := traces.calls("default", tc.endpoint)(t.Context(), registryclient.Subject{
			Operation: "register", Instance: registry.Instance{Service: "web", Address: "10.0.0.1", Port: 80},
		})
		var server *url.URL
		if tc.request != "" {
			parsed, err := url.Parse(tc.request)
			must(t, err)
			server = parsed
		}
		headers := traces.outgoing(ctx, server)
		end(nil)
		span := spans.Ended()[0]
		if want := span.SpanContext(); !strings.Contains(headers["traceparent"], want.TraceID().String()+"-"+want.SpanID().String()) {
			t.Errorf("the headers are %v, want the span %s of the trace %s", headers, want.SpanID(), want.TraceID())
		}
		got := attribute.NewSet(span.Attributes()...)
		expect := func(key string, want any) {
			t.Helper()
			if value, _ := got.Value(attribute.Key(key)); value.AsInterface() != want && (want != "" && want != int64(0) || value.AsInterface() != nil) {
				t.Errorf("%s is %v, want %v\nreason: %s", key, value.AsInterface(), want, tc.reason)
			}
		}
		expect("server.address", tc.address)
		expect("server.port", tc.port)
		expect("rollcall.instance", "10.0.0.1:80")
		expect("rollcall.registry", "default")
	})
}

func TestPatchCarriesItsSpan(t *testing.T) {
	t.Parallel()
	traces, spans := recorded()
	var sent *http.Request
	patches := &tracedPatches{tracer: traces, next: roundTripper(func(r *http.Request) (*http.Response, error) {
		sent = r
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	})}
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPatch, "https://10.96.0.1:6443/api/v1/namespaces/prod/pods/web-1", http.NoBody)
	must(t, err)
	response, err := patches.RoundTrip(request)
	must(t, err)
	must(t, response.Body.Close())
	span := spans.Ended()[0]
	if got := sent.Header.Get("Traceparent"); !strings.Contains(got, span.SpanContext().SpanID().String()) || request.Header.Get("Traceparent") != "" {
		t.Errorf("the request has traceparent %q, want that of the span, and the caller's request none", got)
	}
	attributes := attribute.NewSet(span.Attributes()...)
	if port, _ := attributes.Value("server.port"); port.AsInt64() != 6443 {
		t.Errorf("the span has %v, want the API server's address and port", span.Attributes())
	}
}
