package registrytest

import (
	"io"
	"sync"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
)

// closeCases are about io.Closer.
func closeCases() []testCase {
	return []testCase{
		{
			name:  "CloseLeavesEntries",
			why:   "a driver is closed whenever a certificate is renewed; every pod would be out of rotation",
			needs: []Capability{isCloser},
			run: func(w *world) {
				d, end := w.mortal(w.h.Open)
				w.register(d, w.pod(1), w.pod(2), w.pod(3))
				w.failOver(d, w.pod(2))
				end()
				w.expect(inService(w.pod(1)), outOfService(w.pod(2)), inService(w.pod(3)))

				next := w.registered(w.pod(1))
				w.failOver(next, w.pod(2))
				w.deregister(next, w.pod(3))
				w.expect(inService(w.pod(1)), outOfService(w.pod(2)))
			},
		},
		{
			name:  "CloseSparesOtherDrivers",
			why:   "the next driver is already in use when the previous one is closed",
			needs: []Capability{isCloser},
			run: func(w *world) {
				old, end := w.mortal(w.h.Open)
				next := w.newProcess()
				w.register(old, w.pod(1))
				w.register(next, w.pod(2))
				end()
				w.register(next, w.pod(3))
				w.expect(inService(w.pod(1)), inService(w.pod(2)), inService(w.pod(3)))
			},
		},
	}
}

// mortal opens a driver that the case itself closes with end, if it is an io.Closer.
func (w *world) mortal(open func(t testing.TB, cluster string) registry.Registry) (d registry.Registry, end func()) {
	w.Helper()
	d = open(w.TB, w.cluster)
	if err := w.h.checkDriver(d); err != nil {
		w.Fatalf("%v", err)
	}
	var once sync.Once
	w.Cleanup(func() { once.Do(func() { w.closeDriver(d) }) })
	return d, func() {
		w.Helper()
		once.Do(func() { w.close(d) })
	}
}

// close closes a driver, and waits for it no longer than for a call.
func (w *world) close(d registry.Registry) {
	w.Helper()
	closer, ok := d.(io.Closer)
	if !ok {
		return
	}
	if _, err := within(callTimeout, w, func() (any, error) { return nil, closer.Close() }); err != nil {
		w.Fatalf("Close: got error %v, want success within %s", err, callTimeout)
	}
}
