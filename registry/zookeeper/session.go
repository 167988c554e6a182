package zookeeper

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// session is one session with ZooKeeper, over as many connections as it takes; if it expires, the client begins another
// one. It is safe for concurrent use.
//
// Its requests wait for a connection that is authenticated, as long as their context allows and no longer than
// until all servers have failed once. None is queued in the client while there is no connection: it would be sent when
// there is one again, however long after its caller has given up.
type session struct {
	conn   *zk.Conn
	wire   *wire
	digest []byte // user:password; nil without
	log    *slog.Logger

	// plainFolders is set once a server has shown that it knows no containers.
	plainFolders atomic.Bool

	mu         sync.Mutex
	connected  bool
	introduced bool  // the server knows the user, and the client authenticates again on each connection
	refused    error // the server does not accept the credentials
	generation int   // counts connections
	rounds     int   // counts how often all servers have failed
	why        error // the client's last trouble
	closed     bool
	changed    chan struct{} // closed and replaced at each change
}

// settings are what a session is made of.
type settings struct {
	servers   []string
	timeout   time.Duration // the session's
	connectBy time.Duration // of one connection
	tls       *tls.Config   // nil without
	digest    []byte        // user:password; nil without
	log       *slog.Logger
}

// newSession begins to connect, and returns immediately.
func newSession(ctx context.Context, set settings) (*session, error) {
	return newSessionOver(newWire(context.WithoutCancel(ctx), set.tls, set.connectBy), set)
}

// newSessionOver is newSession over the connections of w.
func newSessionOver(w *wire, set settings) (*session, error) {
	s := &session{
		wire:   w,
		digest: set.digest, log: set.log, introduced: set.digest == nil, changed: make(chan struct{}),
	}
	conn, _, err := zk.Connect(set.servers, set.timeout,
		zk.WithDialer(s.wire.dial),
		zk.WithHostProvider(&hosts{failed: s.allFailed}),
		zk.WithEventCallback(s.observe),
		zk.WithLogger(listener(s.trouble)),
		zk.WithLogInfo(false),
		zk.WithMaxBufferSize(maxAnswer),
	)
	if err != nil {
		s.wire.close()
		return nil, fmt.Errorf("making the client: %w", err)
	}
	s.conn = conn
	if !s.introduced {
		go s.introduce()
	}
	return s, nil
}

// close leaves the session to time out. Requests under way end with an error.
func (s *session) close() {
	s.change(func() { s.closed = true })
	s.wire.close() // first, so that the client's Close finds no connection
	go s.conn.Close()
}

// introduce authenticates until the server has acknowledged it. The client authenticates again on each new connection, but
// only with what was once acknowledged.
func (s *session) introduce() {
	for {
		err := s.conn.AddAuth("digest", s.digest)
		done := false
		s.change(func() {
			s.introduced = err == nil
			if err != nil && isRefusal(err) {
				s.refused = err
			}
			done = s.introduced || s.closed
		})
		if done {
			return
		}
	}
}

// change changes the state and tells those who wait for it.
func (s *session) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

// observe is called by the client, which waits for it.
func (s *session) observe(e zk.Event) {
	if e.Type != zk.EventSession {
		return
	}
	switch e.State {
	case zk.StateHasSession:
		s.change(func() { s.connected, s.why = true, nil; s.generation++ })
		s.log.Info("connected to ZooKeeper", "server", e.Server)
	case zk.StateDisconnected, zk.StateExpired:
		var lost bool
		var why error
		s.change(func() { lost, why, s.connected = s.connected, s.why, false })
		if lost {
			s.log.Info("connection to ZooKeeper lost", "server", e.Server, "error", why)
		}
	default:
	}
}

func (s *session) allFailed()        { s.change(func() { s.rounds++ }) }
func (s *session) trouble(err error) { s.change(func() { s.why = err }) }

// listener takes the errors out of what the client logs: it returns them nowhere.
type listener func(error)

// Printf implements zk.Logger.
func (l listener) Printf(_ string, args ...any) {
	for _, arg := range args {
		if err, is := arg.(error); is {
			l(err)
		}
	}
}

// await returns when requests can be made, with the number of the connection.
func (s *session) await(ctx context.Context) (generation int, err error) {
	rounds := -1
	for {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		s.mu.Lock()
		changed := s.changed
		ready, err := s.ready(rounds)
		generation = s.generation
		if rounds < 0 {
			rounds = s.rounds
		}
		s.mu.Unlock()
		if ready || err != nil {
			return generation, err
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
}

// ready reports whether requests can be made, or why they never will be, or that all servers have failed since there were
// so many rounds. The caller holds the lock.
func (s *session) ready(rounds int) (bool, error) {
	switch {
	case s.closed:
		return false, errClosed
	case s.refused != nil && !s.introduced:
		return false, s.refused
	case s.connected && s.introduced:
		return true, nil
	case rounds >= 0 && s.rounds > rounds && s.why != nil:
		return false, fmt.Errorf("no connection to ZooKeeper: %w", s.why)
	}
	return false, nil
}

// excuse returns why a call may have got no answer, "" if nothing is known.
func (s *session) excuse() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.connected && s.introduced:
		return ""
	case s.why == nil:
		return "; there is no connection to ZooKeeper yet"
	}
	return fmt.Sprintf("; no connection to ZooKeeper: %v", s.why)
}

// connection returns the number of the connection, or that of the last one.
func (s *session) connection() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.generation
}

// The requests. Each waits for a connection and returns the client's error as it is. A request whose context ends continues
// until the client has an answer or has lost its connection: call them in a goroutine of their own.

func (s *session) get(ctx context.Context, path string) ([]byte, *zk.Stat, error) {
	if _, err := s.await(ctx); err != nil {
		return nil, nil, err
	}
	return s.conn.Get(path)
}

func (s *session) set(ctx context.Context, path string, data []byte, version int32) (*zk.Stat, error) {
	if _, err := s.await(ctx); err != nil {
		return nil, err
	}
	return s.conn.Set(path, data, version)
}

func (s *session) children(ctx context.Context, path string) ([]string, *zk.Stat, error) {
	if _, err := s.await(ctx); err != nil {
		return nil, nil, err
	}
	return s.conn.Children(path)
}

// stat fails with zk.ErrNoNode if there is no such node.
func (s *session) stat(ctx context.Context, path string) (*zk.Stat, error) {
	if _, err := s.await(ctx); err != nil {
		return nil, err
	}
	is, stat, err := s.conn.Exists(path)
	if err == nil && !is {
		err = zk.ErrNoNode
	}
	return stat, err
}

func (s *session) exists(ctx context.Context, path string) (bool, error) {
	_, err := s.stat(ctx, path)
	if errors.Is(err, zk.ErrNoNode) {
		return false, nil
	}
	return err == nil, err
}

// caughtUp makes reads that see all that was acknowledged before it. The server catches up by an empty transaction, which it answers
// when it has applied all that went before. ZooKeeper's sync is cheaper and not enough: it does nothing at the leader, which applies
// a change a moment after a follower may have acknowledged it (LeaderZooKeeperServer makes its CommitProcessor with matchSyncs
// false), and is not a barrier if the leader changes (ZOOKEEPER-1675). It fails with errReconnected if the reads may be of another
// server, which may be behind the first.
func caughtUp[T any](ctx context.Context, s *session, reads func(context.Context) (T, error)) (read T, err error) {
	generation, err := s.await(ctx)
	if err != nil {
		return read, err
	}
	const anyVersion = -1
	blame, err := s.multi(ctx, []any{&zk.CheckVersionRequest{Path: slash, Version: anyVersion}})
	if err != nil && blame < 0 { // else it was refused, but in its turn
		return read, err
	}
	if read, err = reads(ctx); err == nil && s.connection() != generation {
		err = errReconnected
	}
	return read, err
}

// createFolder makes a container. Servers before ZooKeeper 3.5 know none, and end the session of who asks for one
// (UnimplementedRequestProcessor): from then on a folder is a persistent node, and the request is made once more if it met that end.
func (s *session) createFolder(ctx context.Context, path string, acl []zk.ACL) error {
	err := s.create(ctx, path, acl)
	if isUnimplemented(err) {
		if !s.plainFolders.Swap(true) {
			s.log.Warn("this ZooKeeper knows no containers: folders of services are persistent nodes, and stay when they are empty")
		}
		if err = s.create(ctx, path, acl); errors.Is(err, zk.ErrConnectionClosed) || errors.Is(err, zk.ErrSessionExpired) {
			err = s.create(ctx, path, acl)
		}
	}
	return err
}

func (s *session) create(ctx context.Context, path string, acl []zk.ACL) error {
	_, err := s.await(ctx)
	switch {
	case err != nil:
	case s.plainFolders.Load():
		_, err = s.conn.Create(path, []byte{}, zk.FlagPersistent, acl)
	default:
		_, err = s.conn.CreateContainer(path, []byte{}, zk.FlagContainer, acl)
	}
	return err
}

// multi makes all changes or none, and returns which one of them is to blame for the error, -1 if that is not known.
func (s *session) multi(ctx context.Context, ops []any) (blame int, err error) {
	if _, err := s.await(ctx); err != nil {
		return -1, err
	}
	answers, err := s.conn.Multi(ops...)
	if err == nil {
		return -1, nil
	}
	for i, a := range answers {
		if a.Error != nil { // the first: what comes after it was not tried
			return i, a.Error
		}
	}
	return -1, err
}

// commit is multi for changes, of which the servers may still make those that were sent over a connection that broke.
func (s *session) commit(ctx context.Context, ops []any) (blame int, err error) {
	if blame, err = s.multi(ctx, ops); errors.Is(err, zk.ErrConnectionClosed) {
		err = driverkit.Late(err)
	}
	return blame, err
}
