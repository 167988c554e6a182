// Package network leads connections to a server, and has them meet faults on demand.
package network

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Fault is what a connection can meet.
type Fault string

// The faults.
const (
	Slow Fault = "network: slow" // what is sent comes late
	// Reset breaks the connection, and new ones too.
	Reset  Fault = "network: reset"
	Refuse Fault = "network: refuse" // as Reset, for all of them and at once
	Cut    Fault = "network: cut"    // what is sent never comes
)

const (
	// resetWithin is how long a connection lives at most that is to be reset.
	resetWithin = 200 * time.Millisecond
	// chunk is how much is passed on at once, and inTransit how many of them may be on their way.
	chunk, inTransit = 32 << 10, 64
)

// Terms say how the network is from now on.
type Terms struct {
	Fault Fault
	// Share is how many of the connections meet it, from 0 to 1. All meet Refuse.
	Share float64
	// Upward: what the clients send meets it, else what they are answered.
	Upward bool
	// Least and Most are how late something comes that is slow.
	Least, Most time.Duration
	// Seed is of the dice that choose connections and delays.
	Seed uint64
}

// Network leads connections to an address, and counts those that meet a fault. Its methods are safe for concurrent use.
type Network struct {
	// Address is where it listens.
	Address string

	upstream string

	mu       sync.Mutex
	listener net.Listener // nil while it refuses
	terms    Terms
	dice     *rand.Rand
	links    map[*link]bool
	touched  map[Fault]int
	running  sync.WaitGroup
}

// link is a client's connection and its other half.
type link struct {
	client, server net.Conn
	// meets the fault of now, and has met it. The network's lock covers both.
	meets, met bool
}

// Start listens at an address, 127.0.0.1:0 for example, and leads to upstream until Stop.
func Start(ctx context.Context, address, upstream string) (*Network, error) {
	n := &Network{Address: address, upstream: upstream, links: map[*link]bool{}, touched: map[Fault]int{}}
	if err := n.listen(ctx); err != nil {
		return nil, err
	}
	n.Address = n.listener.Addr().String()
	return n, nil
}

// Stop ends every connection.
func (n *Network) Stop() {
	n.mu.Lock()
	n.refuse()
	n.mu.Unlock()
	n.running.Wait()
}

// Forget begins a new count.
func (n *Network) Forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.touched)
}

// Hits is how many connections met each fault.
func (n *Network) Hits() map[Fault]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.touched)
}

// Open is how many connections there are.
func (n *Network) Open() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.links)
}

// Set begins a fault.
func (n *Network) Set(t Terms) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.terms, n.dice = t, rand.New(rand.NewPCG(t.Seed, 0))
	if t.Fault == Refuse {
		for l := range n.links {
			n.touch(l)
		}
		n.refuse()
		return
	}
	for l := range n.links {
		n.draw(l)
	}
}

// Clear ends the fault. A connection that lost something of what was sent is of no use any more.
func (n *Network) Clear(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for l := range n.links {
		if n.terms.Fault == Cut && l.met {
			l.reset()
		}
		l.meets, l.met = false, false
	}
	n.terms = Terms{}
	return n.listen(ctx)
}

// listen does nothing where it listens. The caller holds the lock, or is alone.
func (n *Network) listen(ctx context.Context) error {
	if n.listener != nil {
		return nil
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp4", n.Address)
	if err != nil {
		return fmt.Errorf("listening for what is to go to %s: %w", n.upstream, err)
	}
	n.listener = listener
	n.running.Go(func() { n.accept(listener) })
	return nil
}

// refuse takes no connection any more, and ends those that there are. The caller holds the lock.
func (n *Network) refuse() {
	if n.listener != nil {
		_ = n.listener.Close()
		n.listener = nil
	}
	for l := range n.links {
		l.reset()
	}
}

func (n *Network) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return // closed
		}
		n.running.Go(func() { n.lead(listener, client) })
	}
}

// lead passes on what both sides send, until one of them ends.
func (n *Network) lead(listener net.Listener, client net.Conn) {
	server, err := net.Dial("tcp", n.upstream) //nolint:noctx // it is on this machine, and fails at once or never
	if err != nil {
		_ = client.Close()
		return
	}
	l := &link{client: client, server: server}
	n.mu.Lock()
	if n.listener != listener {
		l.reset() // it refuses since
	}
	n.links[l] = true
	n.draw(l)
	n.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { n.pass(l, client, server, true) })
	both.Go(func() { n.pass(l, server, client, false) })
	both.Wait()
	n.mu.Lock()
	delete(n.links, l)
	n.mu.Unlock()
}

// draw says whether the link meets the fault that there is. The caller holds the lock.
func (n *Network) draw(l *link) {
	l.met = false
	l.meets = n.terms.Fault != "" && n.dice.Float64() < n.terms.Share
	if l.meets && n.terms.Fault == Reset {
		n.touch(l)
		time.AfterFunc(rand.N(resetWithin), l.reset)
	}
}

// touch counts a link once for each fault. The caller holds the lock.
func (n *Network) touch(l *link) {
	if !l.met {
		l.met = true
		n.touched[n.terms.Fault]++
	}
}

// parcel is what is on its way.
type parcel struct {
	data []byte
	due  time.Time
}

// pass reads from one side and writes to the other, what is slow after its time, until one of them ends.
func (n *Network) pass(l *link, from, to net.Conn, upward bool) {
	way := make(chan parcel, inTransit)
	var writer sync.WaitGroup
	writer.Go(func() {
		for p := range way {
			<-time.After(time.Until(p.due))
			if _, err := to.Write(p.data); err != nil {
				l.close()
			}
		}
	})
	for {
		data := make([]byte, chunk)
		read, err := from.Read(data)
		if lost, late := n.meets(l, upward); read > 0 && !lost {
			way <- parcel{data[:read], time.Now().Add(late)}
		}
		if err != nil {
			break
		}
	}
	close(way)
	writer.Wait()
	l.close()
}

// meets says what becomes of something that is sent now.
func (n *Network) meets(l *link, upward bool) (lost bool, late time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !l.meets || upward != n.terms.Upward {
		return false, 0
	}
	switch t := n.terms; t.Fault {
	case Cut:
		n.touch(l)
		return true, 0
	case Slow:
		n.touch(l)
		return false, t.Least + time.Duration(n.dice.Int64N(int64(t.Most-t.Least)+1))
	default:
		return false, 0
	}
}

func (l *link) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// reset ends the connection as a crash does: the client is not told that it is over, but that it broke.
func (l *link) reset() {
	if tcp, ok := l.client.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	l.close()
}
