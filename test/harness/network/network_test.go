package network

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// What is slow is so by these.
const quickest, slowest = 100 * time.Millisecond, 2500 * time.Millisecond

// half of the connections meet the fault.
func half(fault Fault, upward bool) Terms {
	return Terms{Fault: fault, Share: 0.5, Upward: upward, Least: quickest, Most: slowest}
}

// TestNetwork: what each fault does to a connection, and that it is counted where it met one.
func TestNetwork(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		fault  Fault
		want   string // what becomes of a connection that meets it
	}
	expect.Each(t, map[string]row{
		"none":   {"everything passes", "", ""},
		"slow":   {"it comes, and late", Slow, "late"},
		"reset":  {"the connection breaks", Reset, "reset"},
		"refuse": {"the connection breaks, and none can be made", Refuse, "reset"},
		"cut":    {"nothing comes any more", Cut, "nothing"},
	}, func(t *testing.T, tc row) {
		n := newNetwork(t)
		const many = 20
		var connections []net.Conn
		for range many {
			connections = append(connections, n.connect())
		}
		n.Set(half(tc.fault, true))
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", n.Address)
		if (err != nil) != (tc.fault == Refuse) {
			t.Errorf("a new connection: %v", err)
		}
		if err == nil {
			_ = c.Close()
		}
		var broken atomic.Int32
		var asking sync.WaitGroup
		for _, c := range connections {
			asking.Go(func() {
				answer, longest, err := n.ask(c, 2*resetWithin)
				got := fate(answer, longest, err)
				if got == "late" && tc.fault != Slow {
					return // the machine is busy
				}
				if got == "" {
					return
				}
				broken.Add(1)
				if got != tc.want {
					t.Errorf("got %s (%q, %v), want %s: %s", got, answer, err, tc.want, tc.reason)
				}
			})
		}
		asking.Wait()
		hit, met := n.Hits()[tc.fault], int(broken.Load())
		if tc.fault == "" && met+hit > 0 || tc.fault != "" && (met == 0 || hit == 0 || hit > many+1) {
			t.Errorf("%d of %d connections broke, and %d were counted: %s", met, many, hit, tc.reason)
		}
		expect.NoError(t, n.Clear(t.Context()))
		if answer, _, err := n.ask(n.connect(), 0); answer != "hello" || err != nil {
			t.Errorf("after it was over: %q, %v", answer, err)
		}
	})
}

// fate is what became of a question, or empty where all went well.
func fate(answer string, took time.Duration, err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "reset"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "nothing"
	case err != nil || answer != "hello":
		return "another answer"
	case took >= quickest:
		return "late"
	default:
		return ""
	}
}

// TestNetworkCountsWhatItMeets: a fault without a connection hits none.
func TestNetworkCountsWhatItMeets(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	for _, k := range []Fault{Slow, Reset, Refuse, Cut} {
		n.Set(half(k, false))
		expect.NoError(t, n.Clear(t.Context()))
	}
	idle := n.connect()
	for _, k := range []Fault{Slow, Cut} {
		n.Set(half(k, false))
		expect.NoError(t, n.Clear(t.Context()))
	}
	if got := n.Hits(); len(got) > 0 {
		t.Errorf("counted %v: nothing was sent", got)
	}
	if answer, _, err := n.ask(idle, 0); answer != "hello" || err != nil {
		t.Errorf("the connection is of no use any more: %q, %v", answer, err)
	}
}

// testNetwork is one in front of a server that echoes.
type testNetwork struct {
	*Network

	t *testing.T
}

func newNetwork(t *testing.T) *testNetwork {
	t.Helper()
	var config net.ListenConfig
	server, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	expect.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	n, err := Start(t.Context(), "127.0.0.1:0", server.Addr().String())
	expect.NoError(t, err)
	t.Cleanup(n.Stop)
	return &testNetwork{Network: n, t: t}
}

// connect makes a connection over which something was said already.
func (n *testNetwork) connect() net.Conn {
	n.t.Helper()
	var dialer net.Dialer
	c, err := dialer.DialContext(n.t.Context(), "tcp", n.Address)
	expect.NoError(n.t, err)
	n.t.Cleanup(func() { _ = c.Close() })
	if answer, _, err := n.ask(c, 0); answer != "hello" || err != nil {
		n.t.Fatalf("a new connection answers %q, %v", answer, err)
	}
	return c
}

// ask says hello, and again for so long, and returns how long an answer took at most. It gives up after more than what is
// slow takes.
func (*testNetwork) ask(c net.Conn, again time.Duration) (answer string, longest time.Duration, err error) {
	data := make([]byte, len("hello"))
	for began := time.Now(); longest == 0 || time.Since(began) < again; {
		asked := time.Now()
		if err := c.SetDeadline(asked.Add(2*slowest + time.Second)); err != nil {
			return "", 0, err
		}
		if _, err := c.Write([]byte("hello")); err != nil {
			return "", 0, err
		}
		if _, err := io.ReadFull(c, data); err != nil {
			return "", 0, err
		}
		longest = max(longest, time.Since(asked))
	}
	return string(data), longest, nil
}
