package zookeeper

import (
	"encoding/binary"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// What ZooKeeper's OpCode and KeeperException have.
const (
	create, createContainer = 1, 19
	unimplemented, noNode   = -6, -101
)

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
