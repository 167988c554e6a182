package httpregistry

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync/atomic"
)

// servers are the addresses of one registry. Calls go to one of them until it fails, and to the next one from then on;
// a call that failed is not made again here.
type servers struct {
	urls    []*url.URL
	current atomic.Uint32
}

// pick returns the server to use, and its number for leave.
func (s *servers) pick() (number uint32, base *url.URL) {
	number = s.current.Load()
	return number, s.urls[number]
}

// leave has later calls use the next server, unless another call has seen to that already.
func (s *servers) leave(number uint32) {
	s.current.CompareAndSwap(number, (number+1)%uint32(len(s.urls))) //nolint:gosec // there are a few, from one line of text
}

// isDown reports whether a server should be left: it gave no answer, or one that says it is in trouble. A caller that has
// gone says nothing of the server.
func isDown(resp *http.Response, err error) bool {
	if err != nil {
		return !errors.Is(err, context.Canceled)
	}
	return resp.StatusCode >= http.StatusInternalServerError
}
