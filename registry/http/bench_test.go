package httpregistry

import (
	"net/http"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
)

// acknowledging answers every request at once, so that only the driver is measured.
type acknowledging struct{}

func (acknowledging) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody, Request: r}, r.Body.Close()
}

func BenchmarkRegister(b *testing.B) {
	r, err := newRegistry(registry.Config{Endpoint: "http://registry.example.com:8080/base"}, acknowledging{})
	if err != nil {
		b.Fatal(err)
	}
	in := registry.Instance{
		Service: "web", Address: "10.0.0.1", Port: 8080, Cluster: "prod-1", Namespace: "shop", Pod: "web-0", UID: "uid", Registry: "default",
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Register(b.Context(), in); err != nil {
			b.Fatal(err)
		}
	}
}
