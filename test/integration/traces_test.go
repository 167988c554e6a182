package integration

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
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
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = unzipped
	}
	text, err := io.ReadAll(body)
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

// child returns the first span of a name that has this attribute and, with parent, that is part of that; or nil.
func (c *collector) child(name, key, value string, parent *tracepb.Span) *tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.spans, func(s *tracepb.Span) bool {
		return s.GetName() == name && attributeOf(s, key) == value && (parent == nil ||
			string(s.GetParentSpanId()) == string(parent.GetSpanId()) && string(s.GetTraceId()) == string(parent.GetTraceId()))
	})
	if i < 0 {
		return nil
	}
	return c.spans[i]
}

// parent returns the span that another is part of, or nil.
func (c *collector) parent(of *tracepb.Span) *tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.spans, func(s *tracepb.Span) bool { return string(s.GetSpanId()) == string(of.GetParentSpanId()) })
	if i < 0 {
		return nil
	}
	return c.spans[i]
}

func attributeOf(of interface{ GetAttributes() []*commonpb.KeyValue }, key string) string {
	for _, attribute := range of.GetAttributes() {
		if attribute.GetKey() == key {
			return attribute.GetValue().GetStringValue()
		}
	}
	return ""
}

// TestTraces: a receiver of OpenTelemetry gets the reconcile in which a pod came into rotation, with its call to the registry
// and its patch inside.
func TestTraces(t *testing.T) {
	t.Parallel()
	c := &collector{}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	s := alone(t, "traces", labels, nil, "--traces-endpoint="+server.URL)
	pod := s.Begin(replicas(1))[0]
	s.await("the spans of the pod", func() error {
		register := c.child("register", "rollcall.service", s.ns, nil)
		if register == nil {
			return errors.New("there is no call to the registry")
		}
		reconcile := c.parent(register)
		path := "/api/v1/namespaces/" + s.ns + "/pods/" + pod.Name
		if reconcile == nil || reconcile.GetName() != "reconcile" || attributeOf(reconcile, "k8s.pod.name") != pod.Name ||
			c.child("patch", "url.path", path, reconcile) == nil {
			return fmt.Errorf("there is no reconcile of %s with the call and a patch in it", pod.Name)
		}
		return nil
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Expect(c.service == "rollcall", "the spans are of %q", c.service)
}
