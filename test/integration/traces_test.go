package integration

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"testing"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// collector is a receiver of traces, as OTLP has it.
type collector struct {
	mu    sync.Mutex
	spans []*tracepb.Span
	// service is what the spans say they are of.
	service string
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	var request coltracepb.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(text, &request)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, fmt.Sprint(r.URL.Path, err), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range request.GetResourceSpans() {
		c.service = attributeOf(of.GetResource(), "service.name")
		for _, scope := range of.GetScopeSpans() {
			c.spans = append(c.spans, scope.GetSpans()...)
		}
	}
}

// find returns the first span of a name of which this is so, or nil.
func (c *collector) find(name string, is func(*tracepb.Span) bool) *tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.spans, func(s *tracepb.Span) bool { return s.GetName() == name && is(s) })
	if i < 0 {
		return nil
	}
	return c.spans[i]
}

func isPartOf(part, whole *tracepb.Span) bool {
	return string(part.GetParentSpanId()) == string(whole.GetSpanId()) && string(part.GetTraceId()) == string(whole.GetTraceId())
}

func attributeOf(of interface{ GetAttributes() []*commonpb.KeyValue }, key string) string {
	for _, attribute := range of.GetAttributes() {
		if attribute.GetKey() == key {
			return attribute.GetValue().GetStringValue()
		}
	}
	return ""
}

// seenParents are the spans that requests to a registry say they are part of.
type seenParents struct{ all sync.Map }

func (s *seenParents) before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.all.Store(r.Header.Get("Traceparent"), true)
		next.ServeHTTP(w, r)
	})
}

func (s *seenParents) has(parent string) bool {
	_, has := s.all.Load(parent)
	return has
}

// TestTraces: a receiver of OpenTelemetry gets the reconcile in which a pod came into rotation, with its call to the registry
// and its patch inside. The registry is sent the span of the call.
func TestTraces(t *testing.T) {
	t.Parallel()
	c := &collector{}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	parents := &seenParents{}
	registry := startRegistry(t, parents.before)
	config := defaultConfiguration(registry.URL(), "traces")
	manager := prepareManager(t, "traces", env.account, config)
	manager.Env = append(manager.Env, "OTEL_EXPORTER_OTLP_ENDPOINT="+server.URL)
	restart(t, manager)
	s := newScenario(t, manager, registry, labels, "traces")
	pod := s.Begin(replicas(1))[0]
	s.await("the spans of the pod", func() error {
		register := c.find("register", func(of *tracepb.Span) bool { return attributeOf(of, "rollcall.service") == s.ns })
		reconcile := c.find("reconcile", func(of *tracepb.Span) bool {
			return register != nil && isPartOf(register, of) && attributeOf(of, "k8s.pod.name") == pod.Name
		})
		patch := c.find("patch", func(of *tracepb.Span) bool {
			return reconcile != nil && isPartOf(of, reconcile) && attributeOf(of, "url.path") == "/api/v1/namespaces/"+s.ns+"/pods/"+pod.Name
		})
		switch at, err := url.Parse(registry.URL()); {
		case patch == nil:
			return errors.New("there is no reconcile of the pod with the call and a patch in it")
		case err != nil || attributeOf(register, "server.address") != at.Hostname():
			return fmt.Errorf("the call was to %s, by its span to %s", at, attributeOf(register, "server.address"))
		case !parents.has(fmt.Sprintf("00-%x-%x-01", register.GetTraceId(), register.GetSpanId())):
			return errors.New("the registry was sent no traceparent of the call")
		}
		return nil
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Expect(c.service == "rollcall", "the spans are of %q", c.service)
}
