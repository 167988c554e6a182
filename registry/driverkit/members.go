package driverkit

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"
)

const (
	// unknownMembers is taken for the number of servers behind the only address of an endpoint if the registry does not list them: most
	// clusters have three.
	unknownMembers = 3
	// askAgain is after how long a registry is asked for its servers again, such as with the next list.
	askAgain = time.Minute
)

// Members compares the servers that a registry lists with the addresses of the endpoint. If there are more servers than addresses, an
// address stands for several, such as that of a load balancer, and one of them may lack what the others give to clients. There, nothing is
// absent until as many answers agree as there are servers, each on a connection of its own: see [Server.Alone]. Safe for concurrent use.
type Members struct {
	client *HTTPClient
	list   func(context.Context) ([]string, error)
	asking Shared[struct{}]

	mu     sync.Mutex
	asked  time.Time // zero before the first time
	known  []string  // nil if the registry has never listed them
	left   int       // how many of them are not reached where the registry lists them
	failed bool      // the last time
}

// NewMembers returns the members of a client's registry. The function asks the registry for its servers.
func NewMembers(client *HTTPClient, list func(context.Context) ([]string, error)) *Members {
	return &Members{client: client, list: list}
}

// Refresh asks the registry for its servers, unless it was asked a moment ago. A driver calls it after each list. It takes a part of the
// context's time, and an error is logged once: the registry may not tell this user.
func (m *Members) Refresh(ctx context.Context) {
	const part = 4
	ctx, cancel := Share(ctx, part)
	defer cancel()
	_, _ = m.asking.Ask(ctx, "", func(ctx context.Context) (none struct{}, _ error) {
		m.mu.Lock()
		recent := !m.asked.IsZero() && time.Since(m.asked) < askAgain && m.left == 0 // one that is left may be about to start
		m.mu.Unlock()
		if recent {
			return none, nil
		}
		servers, err := m.list(ctx)
		m.learn(servers, err)
		return none, nil
	})
}

func (m *Members) learn(servers []string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = time.Now()
	defer func() { m.client.several.Store(m.needed() > 1) }()
	if err == nil {
		m.known, m.failed = slices.Compact(slices.Sorted(slices.Values(servers))), false
		return
	}
	if !m.failed && m.known == nil {
		m.client.log.Warn("the registry does not list its servers; Rollcall can't tell whether endpoint has the addresses of all",
			"answers that must agree before an entry counts as absent", m.needed(), "error", err)
	}
	m.failed = true
}

// needed is how many answers have to agree before something is absent. The caller holds the lock.
func (m *Members) needed() int {
	switch addresses := len(m.client.servers); {
	case len(m.known) > addresses:
		return len(m.known)
	case m.known == nil && addresses == 1:
		return unknownMembers
	}
	return 1
}

// reachesAll reports whether [Policy.After] leads to all servers. The caller holds the lock.
func (m *Members) reachesAll() bool { return m.left == 0 && m.client.reached.Load() != nil }

// Several reports whether an address may stand for several servers. The first call asks the registry.
func (m *Members) Several(ctx context.Context) bool {
	m.first(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.needed() > 1
}

// first asks the registry if it was never asked.
func (m *Members) first(ctx context.Context) {
	m.mu.Lock()
	first := m.asked.IsZero()
	m.mu.Unlock()
	if first {
		m.Refresh(ctx)
	}
}

// More returns how many more answers, each on a connection of its own, have to agree with one that something is absent: none if every
// server has an address, or is one of [Members.Reach]. The first call asks the registry.
func (m *Members) More(ctx context.Context) int {
	m.first(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reachesAll() {
		return 0
	}
	return m.needed() - 1
}

// Reach sets the servers that the client reaches where the registry lists them: a call with [Policy.After] is made at those too. The others
// are left. While there are some, the registry is asked again with each [Members.Refresh]. The function that lists the servers calls it.
func (m *Members) Reach(servers []*url.URL, left int) {
	m.client.reached.Store(&servers)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left = left
}

// Reached returns the servers of the last [Members.Reach].
func (m *Members) Reached() []*url.URL {
	if reached := m.client.reached.Load(); reached != nil {
		return slices.Clone(*reached)
	}
	return nil
}

// Unlisted returns the servers if they are more than the addresses of the endpoint and not all are reached.
func (m *Members) Unlisted() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.known) <= len(m.client.servers) || m.reachesAll() {
		return nil
	}
	return slices.Clone(m.known)
}

// Alone returns the server with a connection of its own, until the context ends. If the address stands for several servers, all its
// requests reach the same one for as long as the connection lasts; other requests may reach any.
func (s Server) Alone(ctx context.Context) Server {
	pool, is := s.client.transport.(*http.Transport)
	if !is {
		return s
	}
	own := pool.Clone()
	own.MaxConnsPerHost = 1
	context.AfterFunc(ctx, own.CloseIdleConnections)
	s.alone = own
	return s
}

// IsAlone reports whether the server has a connection of its own.
func (s Server) IsAlone() bool { return s.alone != nil }

func (s Server) transport() http.RoundTripper {
	if s.alone != nil {
		return s.alone
	}
	return s.client.transport
}
