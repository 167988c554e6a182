package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

const (
	// slowest is longer than a time-out of the managers now and then, and never two.
	quickest, slowest = 100 * time.Millisecond, 2500 * time.Millisecond
	// resetWithin is how long a connection lives at most that is to be reset.
	resetWithin = 200 * time.Millisecond
	// chunk is how much is passed on at once, and inTransit how many of them may be on their way.
	chunk, inTransit = 32 << 10, 64
)

// network leads the managers' connections to the registry, has about half of them meet a fault while there is one, and counts
// those.
type network struct {
	address, upstream string

	mu       sync.Mutex
	listener net.Listener // nil while it refuses
	fault    kind
	upward   bool // what the managers send meets the fault, else what they are answered
	dice     *rand.Rand
	links    map[*link]bool
	touched  map[kind]int
	running  sync.WaitGroup
}

// link is a connection of a manager and its other half.
type link struct {
	manager, registry net.Conn
	// meets the fault of now, and has met it. The network's lock covers both.
	meets, met bool
}

func startNetwork(ctx context.Context, upstream string) (*network, error) {
	n := &network{
		address: "127.0.0.1:0", upstream: upstream, links: map[*link]bool{}, touched: map[kind]int{}, dice: rand.New(rand.NewPCG(0, 0)),
	}
	if err := n.listen(ctx); err != nil {
		return nil, err
	}
	n.address = n.listener.Addr().String()
	return n, nil
}

// Stop ends every connection.
func (n *network) Stop() {
	n.mu.Lock()
	n.refuse()
	n.mu.Unlock()
	n.running.Wait()
}

// forget begins a new count.
func (n *network) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.touched)
}

// hits is how many connections met each fault.
func (n *network) hits() map[kind]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.touched)
}

func (n *network) open() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.links)
}

// set begins a fault.
func (n *network) set(k kind, dice uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fault, n.upward, n.dice = k, dice%2 == 0, rand.New(rand.NewPCG(dice, 0))
	if k == netRefuse {
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

// clear ends the fault. A connection that lost something of what was sent is of no use any more.
func (n *network) clear(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for l := range n.links {
		if n.fault == netCut && l.met {
			l.reset()
		}
		l.meets, l.met = false, false
	}
	n.fault = ""
	return n.listen(ctx)
}

// listen does nothing where it listens. The caller holds the lock, or is alone.
func (n *network) listen(ctx context.Context) error {
	if n.listener != nil {
		return nil
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", n.address)
	if err != nil {
		return fmt.Errorf("listening for the managers' connections to the registry: %w", err)
	}
	n.listener = listener
	n.running.Go(func() { n.accept(listener) })
	return nil
}

// refuse takes no connection any more, and ends those that there are. The caller holds the lock.
func (n *network) refuse() {
	if n.listener != nil {
		_ = n.listener.Close()
		n.listener = nil
	}
	for l := range n.links {
		l.reset()
	}
}

func (n *network) accept(listener net.Listener) {
	for {
		manager, err := listener.Accept()
		if err != nil {
			return // closed
		}
		n.running.Go(func() { n.lead(listener, manager) })
	}
}

// lead passes on what both sides send, until one of them ends.
func (n *network) lead(listener net.Listener, manager net.Conn) {
	registry, err := net.Dial("tcp", n.upstream) //nolint:noctx // it is on this machine, and fails at once or never
	if err != nil {
		_ = manager.Close()
		return
	}
	l := &link{manager: manager, registry: registry}
	n.mu.Lock()
	if n.listener != listener {
		l.reset() // it refuses since
	}
	n.links[l] = true
	n.draw(l)
	n.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { n.pass(l, manager, registry, true) })
	both.Go(func() { n.pass(l, registry, manager, false) })
	both.Wait()
	n.mu.Lock()
	delete(n.links, l)
	n.mu.Unlock()
}

// draw says whether the link meets the fault that there is. The caller holds the lock.
func (n *network) draw(l *link) {
	l.met = false
	l.meets = n.fault != "" && n.dice.Float64() < faultShare
	if l.meets && n.fault == netReset {
		n.touch(l)
		time.AfterFunc(rand.N(resetWithin), l.reset)
	}
}

// touch counts a link once for each fault. The caller holds the lock.
func (n *network) touch(l *link) {
	if !l.met {
		l.met = true
		n.touched[n.fault]++
	}
}

// parcel is what is on its way.
type parcel struct {
	data []byte
	due  time.Time
}

// pass reads from one side and writes to the other, what is slow after its time, until one of them ends.
func (n *network) pass(l *link, from, to net.Conn, upward bool) {
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
func (n *network) meets(l *link, upward bool) (lost bool, late time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !l.meets || upward != n.upward {
		return false, 0
	}
	switch n.fault {
	case netCut:
		n.touch(l)
		return true, 0
	case netSlow:
		n.touch(l)
		return false, quickest + time.Duration(n.dice.Int64N(int64(slowest-quickest)))
	default:
		return false, 0
	}
}

func (l *link) close() {
	_ = l.manager.Close()
	_ = l.registry.Close()
}

// reset ends the connection as a crash does: the manager is not told that it is over, but that it broke.
func (l *link) reset() {
	if tcp, ok := l.manager.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	l.close()
}
