package zookeeper_test

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
)

// The numbers of requests: this driver changes everything by transactions.
const (
	opExists       = 3
	opGetData      = 4
	opGetChildren2 = 12
	opMulti        = 14
)

// proxy stands between a driver and its server, and can take away what a network can take away.
type proxy struct {
	endpoint string

	mu       sync.Mutex
	server   string
	conns    map[net.Conn]struct{}
	refusing bool
	held     map[int32]chan struct{} // by the kind of request, 0 for all; closed to let them go
	arrived  chan struct{}           // gets one for each request that is held
	asked    map[int32]int           // how often, by the kind of request
}

func startProxy(t *testing.T, server string) *proxy {
	t.Helper()
	p := &proxy{
		server: server,
		conns:  map[net.Conn]struct{}{}, held: map[int32]chan struct{}{}, arrived: make(chan struct{}, 1000), asked: map[int32]int{},
	}
	p.endpoint = drivertest.Accepting(t, "127.0.0.1", p.serve)
	t.Cleanup(func() {
		p.release()
		p.cut()
	})
	return p
}

func (p *proxy) serve(client net.Conn) {
	p.mu.Lock()
	to := p.server
	p.mu.Unlock()
	server, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer server.Close()
	p.mu.Lock()
	if p.refusing {
		p.mu.Unlock()
		return
	}
	p.conns[client], p.conns[server] = struct{}{}, struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, client)
		delete(p.conns, server)
	}()
	go func() {
		defer client.Close()
		_, _ = io.Copy(client, server)
	}()
	for first := true; ; first = false {
		frame, err := drivertest.ReadFrame(client)
		if err != nil {
			return
		}
		if !first {
			p.pass(int32(binary.BigEndian.Uint32(frame[4:])))
		}
		drivertest.WriteFrame(server, frame)
	}
}

// pass waits as long as requests of the kind are held.
func (p *proxy) pass(kind int32) {
	p.mu.Lock()
	p.asked[kind]++
	p.mu.Unlock()
	for _, k := range []int32{0, kind} {
		p.mu.Lock()
		gate := p.held[k]
		p.mu.Unlock()
		if gate != nil {
			p.arrived <- struct{}{}
			<-gate
		}
	}
}

// hold keeps back the next request of the kind and all that come after it on its connection, until release.
func (p *proxy) hold(kind int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held[kind] = make(chan struct{})
}

// next lets what is held of the kind go, and holds what comes after it.
func (p *proxy) next(kind int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.held[kind])
	p.held[kind] = make(chan struct{})
}

func (p *proxy) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for kind, gate := range p.held {
		close(gate)
		delete(p.held, kind)
	}
}

// refuse ends all connections, and takes no others until it is called with false.
func (p *proxy) refuse(refusing bool) {
	p.mu.Lock()
	p.refusing = refusing
	p.mu.Unlock()
	if refusing {
		p.cut()
	}
}

// lead ends all connections, and leads the next ones to another server.
func (p *proxy) lead(server string) {
	p.mu.Lock()
	p.server = server
	p.mu.Unlock()
	p.cut()
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		_ = conn.Close()
	}
}

// inUse reports whether a connection goes through.
func (p *proxy) inUse() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns) > 0
}
