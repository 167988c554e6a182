package app

import "net/http"

// writes keeps requests that change something from the API server once this manager may no longer make them. The lease has
// a client of its own.
type writes struct {
	next   http.RoundTripper
	permit func() error
}

func (w *writes) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return w.next.RoundTrip(r)
	}
	if err := w.permit(); err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // a RoundTripper has to, and nothing was read
		}
		return nil, err
	}
	return w.next.RoundTrip(r)
}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (w *writes) WrappedRoundTripper() http.RoundTripper { return w.next }
