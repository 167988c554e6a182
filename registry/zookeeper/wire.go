package zookeeper

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	keepAlive = 15 * time.Second
	// patience is how long a connection may be silent while a call waits. With less a short deadline of one call would
	// cost all others their connection.
	patience = 2 * time.Second

	headerLength = 4
	// A welcome is 37 bytes, or 36 from an old server; no answer is shorter than its header.
	minWelcome, maxWelcome = 36, 1 << 10
	minAnswer              = 16
	// maxAnswer bounds what is read of an answer, in bytes: the names of some 500,000 entries of one service.
	maxAnswer = 32 << 20
)

var errClosed = errors.New("the driver is closed")

// wire makes the connections of one session, one at a time, and takes the last one away when the driver is closed.
type wire struct {
	connect func(address string) (net.Conn, error)
	timeout time.Duration
	cancel  context.CancelFunc

	mu      sync.Mutex
	current *framed
	closed  bool
}

// newWire makes connections with TLS if it is given a configuration. The timeout bounds how long it takes until the
// server has welcomed the client.
func newWire(ctx context.Context, tlsConfig *tls.Config, timeout time.Duration) *wire {
	ctx, cancel := context.WithCancel(ctx)
	dialer := net.Dialer{KeepAlive: keepAlive}
	connect := func(address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		if tlsConfig == nil {
			return dialer.DialContext(ctx, "tcp", address)
		}
		return (&tls.Dialer{NetDialer: &dialer, Config: tlsConfig}).DialContext(ctx, "tcp", address)
	}
	return &wire{connect: connect, timeout: timeout, cancel: cancel}
}

// dial is the client's dialer. The time that the client grants, a second, is too short for TLS over a long way.
func (w *wire) dial(_, address string, _ time.Duration) (net.Conn, error) {
	conn, err := w.connect(address)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", address, err)
	}
	f := &framed{Conn: conn, welcomeBy: time.Now().Add(w.timeout)}
	f.hear()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		_ = conn.Close()
		return nil, errClosed
	}
	if w.current != nil {
		_ = w.current.Close() // the client leaves it open if the session has expired
	}
	w.current = f
	return f, nil
}

// dropIfSilent closes the connection if nothing has come over it since then: its server may be gone without a word, and the
// client would wait for two thirds of the session's timeout before it tries another.
func (w *wire) dropIfSilent(since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current != nil && time.Since(since) >= patience && w.current.heard().Before(since) {
		_ = w.current.Close()
	}
}

// close closes the connection, and none comes after it.
func (w *wire) close() {
	w.cancel()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.current != nil {
		_ = w.current.Close()
	}
}

// framed is a connection on which each answer begins with its length. It checks the length before the client makes room
// for so many bytes: another service at the wrong port may have sent text.
type framed struct {
	net.Conn

	welcomeBy time.Time
	welcomed  atomic.Bool
	last      atomic.Int64
	unsent    atomic.Pointer[error] // of the write that failed

	// The reader's alone.
	header [headerLength]byte
	have   int // of the header
	left   int // of the answer
}

func (f *framed) hear()            { f.last.Store(time.Now().UnixNano()) }
func (f *framed) heard() time.Time { return time.Unix(0, f.last.Load()) }

// SetReadDeadline never puts off the end of the wait for a welcome.
func (f *framed) SetReadDeadline(t time.Time) error {
	if !f.welcomed.Load() {
		t = f.welcomeBy
	}
	return f.Conn.SetReadDeadline(t)
}

// A connect request begins with its length and the version of the protocol, and then has the last zxid that the client has seen.
const zxidFrom, zxidTo = 8, 16

// forgetful takes that zxid out of the connect request. A server that has lost its data, as one without a volume does with its pod,
// closes the connection of a client that has seen a later zxid, at each try. What is read rests on [caughtUp].
func forgetful(request []byte) []byte {
	if len(request) < zxidTo {
		return request
	}
	request = bytes.Clone(request)
	clear(request[zxidFrom:zxidTo])
	return request
}

// Write keeps a failure from the client once the server has welcomed it. It closes the connection instead, so that the reader
// ends, and the client answers each request once. By itself it answers the request that authenticates a new connection both
// when the write fails and when the connection ends; there is room for one answer, and the client hangs (sendRequest, sendData
// and flushRequests in its conn.go).
func (f *framed) Write(p []byte) (int, error) {
	if !f.welcomed.Load() {
		return f.Conn.Write(forgetful(p))
	}
	n, err := f.Conn.Write(p)
	if err == nil {
		return n, nil
	}
	f.unsent.CompareAndSwap(nil, &err)
	_ = f.Close()
	return len(p), nil
}

// Read reads no further than to the end of a header or of an answer. If a write has failed, it returns that error.
func (f *framed) Read(p []byte) (int, error) {
	n, err := f.read(p)
	if unsent := f.unsent.Load(); err != nil && unsent != nil {
		err = *unsent
	}
	return n, err
}

func (f *framed) read(p []byte) (int, error) {
	if f.left > 0 {
		n, err := f.Conn.Read(p[:min(len(p), f.left)])
		return f.took(n), err
	}
	n, err := f.Conn.Read(p[:min(len(p), headerLength-f.have)])
	f.have += copy(f.header[f.have:], p[:n])
	if err != nil && !f.welcomed.Load() {
		err = fmt.Errorf("%s refuses the connection; check the port, and whether it speaks TLS: %w", f.RemoteAddr(), err)
	}
	if f.have < headerLength {
		return n, err
	}
	f.have = 0
	length := binary.BigEndian.Uint32(f.header[:])
	if err := f.check(length); err != nil {
		return 0, err
	}
	f.left = int(length)
	return n, err
}

func (f *framed) took(n int) int {
	f.left -= n
	f.hear()
	if f.left == 0 && !f.welcomed.Swap(true) {
		_ = f.Conn.SetReadDeadline(time.Time{}) // the client believes that there is none
	}
	return n
}

func (f *framed) check(length uint32) error {
	switch {
	case !f.welcomed.Load() && (length < minWelcome || length > maxWelcome):
		return fmt.Errorf("%s does not answer as a ZooKeeper server does; check the port, and whether it speaks TLS",
			f.RemoteAddr())
	case length < minAnswer:
		return fmt.Errorf("an answer has only %d bytes", length)
	case length > maxAnswer:
		return fmt.Errorf("an answer has more than %d bytes", maxAnswer)
	}
	return nil
}

// hosts gives the client the servers in turn. Their names are looked up at each connection, since a
// server in Kubernetes changes its address.
type hosts struct {
	// failed is called when every server refused the connection.
	failed func()

	mu      sync.Mutex
	servers []string
	next    int
	tried   int
	lost    bool
}

// Init implements zk.HostProvider.
func (h *hosts) Init(servers []string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.servers = servers // in random order: the client has seen to it
	return nil
}

// Len implements zk.HostProvider.
func (h *hosts) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.servers)
}

// Next implements zk.HostProvider. If again is true, the client drops the requests that are queued, and waits a second:
// after all servers have failed, and after a connection was lost, so that nothing is sent long after it was asked for.
func (h *hosts) Next() (server string, again bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	allFailed := h.tried == len(h.servers)
	again = allFailed || h.lost
	if again {
		h.tried, h.lost = 0, false
	}
	if allFailed {
		h.failed()
	}
	server = h.servers[h.next]
	h.next = (h.next + 1) % len(h.servers)
	h.tried++
	return server, again
}

// Connected implements zk.HostProvider.
func (h *hosts) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tried, h.lost = 0, true
}
