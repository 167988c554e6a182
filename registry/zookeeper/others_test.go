package zookeeper

import (
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestGetsAtOneMomentShareAQuestion about their service: the server answers a request only when all calls wait.
func TestGetsAtOneMomentShareAQuestion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const together, exists, multi = 84, 3, 14
		questions := 0
		w := newWire(t.Context(), nil, sessionTimeout)
		w.connect = func(string) (net.Conn, error) {
			client, server := net.Pipe()
			go drivertest.ServeZooKeeper(server, func(kind int, _ []byte) (code int, body []byte) {
				synctest.Wait()
				switch kind {
				case multi:
					return 0, []byte{0xff, 0xff, 0xff, 0xff, 1, 0xff, 0xff, 0xff, 0xff} // the header that ends the answers
				case exists:
					questions++
				}
				return noNode, nil
			})
			return client, nil
		}
		s, err := newSessionOver(w, settings{servers: []string{"zk:2181"}, timeout: sessionTimeout, log: slog.New(slog.DiscardHandler)})
		expect.NoError(t, err)
		defer func() {
			s.close()
			time.Sleep(time.Minute) // the client wants to tell a server
		}()
		d := &Registry{session: s, tree: newTree("", "/services")}
		d.fence.set(notAllowed, 0) // else the calls take turns to raise it
		var all sync.WaitGroup
		for n := range together {
			all.Go(func() {
				if _, err := d.Get(t.Context(), drivertest.Pod(n)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if questions > 2 {
			t.Errorf("%d calls asked %d questions, want at most 2: one that is under way, and one for all that came meanwhile", together, questions)
		}
	})
}
