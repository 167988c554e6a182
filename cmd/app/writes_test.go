package app

import (
	"net/http"
	"strings"
	"testing"
)

func TestWritesNeedTheLease(t *testing.T) {
	t.Parallel()
	for method, reads := range map[string]bool{
		http.MethodGet: true, http.MethodHead: true,
		http.MethodPost: false, http.MethodPut: false, http.MethodPatch: false, http.MethodDelete: false,
	} {
		for _, refused := range []error{nil, errDeposed} {
			sent := 0
			w := &writes{permit: func() error { return refused }, next: roundTripper(func(*http.Request) (*http.Response, error) {
				sent++
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
			})}
			body := &closed{Reader: strings.NewReader("{}")}
			request, err := http.NewRequestWithContext(t.Context(), method, "http://127.0.0.1/api", body)
			must(t, err)
			response, err := w.RoundTrip(request)
			if err == nil {
				must(t, response.Body.Close())
			}
			passes := reads || refused == nil
			if (err == nil) != passes || sent == 1 != passes {
				t.Errorf("%s, where permit says %v: got %v and %d requests", method, refused, err, sent)
			}
			if !passes && !body.closed {
				t.Errorf("%s: the body of a refused request was left open", method)
			}
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// closed notes that it was closed.
type closed struct {
	*strings.Reader

	closed bool
}

func (c *closed) Close() error {
	c.closed = true
	return nil
}
