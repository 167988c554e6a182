package zookeeper

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestABatchWithOneWithoutRights: a folder in which Rollcall may not work stops no pod of another service.
func TestABatchWithOneWithoutRights(t *testing.T) {
	t.Parallel()
	d := drivertest.Open[*Registry](t, New, registry.Config{Endpoint: drivertest.Accepting(t, "127.0.0.1", serveSome)})
	for _, theirs := range []string{"unreadable", "unwritable"} {
		changes := []registry.Change{
			{Instance: drivertest.Pod(1), State: registry.InService}, {Instance: drivertest.Pod(2), State: registry.InService},
			{Instance: drivertest.Pod(3), State: registry.InService},
		}
		changes[1].Instance.Service = theirs
		for i, err := range d.Batch(t.Context(), changes) {
			field, _ := registry.FieldOf(err)
			if refused := i == 1; refused && (registry.CodeOf(err) != registry.CodeTerminal || field != "auth.username") ||
				!refused && err != nil && registry.CodeOf(err) != registry.CodeNotApplied {
				t.Errorf("change %d beside one in a folder that is %s: got error %v", i, theirs, err)
			}
		}
	}
}

// TestAListWithoutRights says which folder it may not read: it may be another team's.
func TestAListWithoutRights(t *testing.T) {
	t.Parallel()
	d := drivertest.Open[*Registry](t, New, registry.Config{Endpoint: drivertest.Accepting(t, "127.0.0.1", serveSome)})
	_, err := d.List(t.Context(), "test")
	if field, _ := registry.FieldOf(err); field != "auth.username" {
		t.Errorf("the error is of field %q, want auth.username", field)
	}
	expect.Error(t, "a person has to learn where the rights are missing", err, "/services/unreadable")
}

// What ZooKeeper's OpCode and KeeperException have.
const (
	create, exists, getData, getChildren2, multi, createContainer = 1, 3, 4, 12, 14, 19
	unimplemented, noNode, noAuth, nodeExists                     = -6, -101, -102, -110
)

// serveSome is a server with a folder for web. It has no entry, and lets the user read nothing of the service unreadable
// and create no folder for unwritable.
func serveSome(conn net.Conn) { drivertest.ServeZooKeeper(conn, answerSome) }

func answerSome(kind int, of []byte) (code int, body []byte) {
	switch kind {
	case getData:
		if code = noNode; bytes.Contains(of, []byte("/unreadable/")) {
			code = noAuth
		}
	case getChildren2:
		if bytes.Contains(of, []byte("/unreadable")) {
			return noAuth, nil
		}
		body = append([]byte("\x00\x00\x00\x01\x00\x00\x00\x0aunreadable"), make([]byte, 68)...) // and a Stat
	case exists:
		if body = bytes.Repeat([]byte{0}, 68); bytes.Contains(of, []byte("/unwritable")) { // of a Stat
			code = noNode
		}
	case createContainer:
		if code = nodeExists; bytes.Contains(of, []byte("/unwritable")) {
			code = noAuth
		}
	case multi:
		for range bytes.Count(of, []byte("/"+idPrefix)) { // each creates one
			body = append(body, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0)
		}
		body = append(body, 0xff, 0xff, 0xff, 0xff, 1, 0xff, 0xff, 0xff, 0xff)
	}
	return code, body
}

// TestAServerWithoutContainers is one before ZooKeeper 3.5: it ends the session of a client that asks for one.
func TestAServerWithoutContainers(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var log strings.Builder
	asked, made := 0, []string{}
	locked := writing(func(line []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return log.Write(line)
	})
	d := drivertest.Open[*Registry](t, New, registry.Config{
		Logger: slog.New(slog.NewTextHandler(locked, nil)),
		Endpoint: drivertest.Accepting(t, "127.0.0.1", func(conn net.Conn) {
			ended := false
			drivertest.ServeZooKeeper(conn, func(kind int, of []byte) (code int, body []byte) {
				mu.Lock()
				defer mu.Unlock()
				switch {
				case ended:
					_ = conn.Close()
				case kind == createContainer:
					asked++
					ended = true
					return unimplemented, nil
				case kind == create:
					path := of[4:][:binary.BigEndian.Uint32(of)]
					made = append(made, string(path))
					return 0, of[:4+len(path)]
				}
				return 0, nil
			})
		}),
	})
	for _, service := range []string{"web", "api"} {
		expect.NoError(t, d.makeFolders(t.Context(), service))
	}
	expect.NoError(t, d.Close())
	mu.Lock()
	defer mu.Unlock()
	expect.Equal(t, []string{"/services", "/services/web", "/services", "/services/api"}, made, "the folders that were made")
	expect.Equal(t, 1, asked, "requests for a container: each ends the session")
	expect.Equal(t, 1, strings.Count(log.String(), "knows no containers"), "reports of it")
}

type writing func([]byte) (int, error)

func (w writing) Write(p []byte) (int, error) { return w(p) }

// TestAConnectionThatBreaksInAChange: what was sent may still be carried out, by a server that the leader has yet to hear.
func TestAConnectionThatBreaksInAChange(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		at     int // the kind of request at which it breaks
		late   bool
	}
	in := drivertest.Pod(1)
	calls := map[string]func(context.Context, *Registry) error{
		"alone": func(ctx context.Context, d *Registry) error { return d.Register(ctx, in) },
		"in a batch": func(ctx context.Context, d *Registry) error {
			return d.Batch(ctx, []registry.Change{{Instance: in, State: registry.InService}})[0]
		},
	}
	expect.Each(t, map[string]row{
		"in a read":  {"nothing was to be changed yet", getData, false},
		"in a write": {"the transaction is on its way", multi, true},
	}, func(t *testing.T, tc row) {
		for name, call := range calls {
			d := drivertest.Open[*Registry](t, New, registry.Config{Endpoint: drivertest.Accepting(t, "127.0.0.1", func(conn net.Conn) {
				drivertest.ServeZooKeeper(conn, func(kind int, of []byte) (code int, body []byte) {
					if kind == tc.at && bytes.Contains(of, []byte(idPrefix)) {
						_ = conn.Close()
					}
					return answerSome(kind, of)
				})
			})})
			err := call(t.Context(), d)
			var late interface{ Timeout() bool }
			if is := errors.As(err, &late) && late.Timeout(); err == nil || is != tc.late {
				t.Errorf("%s: got error %v, of a change that may land: %t; %s", name, err, is, tc.reason)
			}
		}
	})
}
