package zookeeper

import (
	"bytes"
	"encoding/binary"
	"net"
	"sync"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

const setData, check = 5, 13

// TestARegistrationRestsOnTheFolder: one that a frozen server carries out once another driver has begun, which raises the version of the
// services' folder, is refused, because it was made on condition that the version is as it was. An entry that is not there is removed by
// raising the version alone.
func TestARegistrationRestsOnTheFolder(t *testing.T) {
	t.Parallel()
	const folder = "/services"
	var mu sync.Mutex
	version, raised, conditions := uint32(6), 0, 0
	stat := func(body ...byte) []byte {
		of := make([]byte, 68)
		binary.BigEndian.PutUint32(of[32:], version)
		return append(body, of...)
	}
	answer := func(kind int, of []byte) (code int, body []byte) {
		mu.Lock()
		defer mu.Unlock()
		isFolder := bytes.HasPrefix(of, append([]byte{0, 0, 0, byte(len(folder))}, folder...))
		condition := binary.BigEndian.AppendUint32(append([]byte{0, 0, 0, check, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, byte(len(folder))}, folder...), version)
		switch {
		case kind == getData && isFolder:
			return 0, stat(0xff, 0xff, 0xff, 0xff)
		case kind == setData && isFolder:
			raised++
			version++
			return 0, stat()
		case kind == multi && bytes.HasPrefix(of, condition):
			conditions++
			_, body = answerSome(kind, of)
			return 0, append([]byte{0, 0, 0, check, 0, 0, 0, 0, 0}, body...)
		}
		return answerSome(kind, of)
	}
	for n := range 2 {
		d := drivertest.Open[*Registry](t, New, registry.Config{Endpoint: drivertest.Accepting(t, "127.0.0.1", func(conn net.Conn) {
			drivertest.ServeZooKeeper(conn, answer)
		}), Options: []byte(`{"base": "` + folder + `"}`)})
		expect.NoError(t, d.Deregister(t.Context(), drivertest.Pod(1)))
		expect.Equal(t, n+1, raised, "how many drivers have raised the version")
		expect.NoError(t, d.Register(t.Context(), drivertest.Pod(1)))
		for _, err := range d.Batch(t.Context(), []registry.Change{{Instance: drivertest.Pod(2), State: registry.InService}}) {
			expect.NoError(t, err)
		}
		expect.Equal(t, 2*(n+1), conditions, "how many changes rest on it")
	}
}

// TestOthersBegin while a call is made, more often than there are tries at an entry that somebody else keeps changing: each that begins is
// done with the folder, so the call goes on.
func TestOthersBegin(t *testing.T) {
	t.Parallel()
	const others = 5 * maxConflicts
	tree, _ := newFakeTree(t)
	begun := 0
	endpoint := drivertest.Accepting(t, "127.0.0.1", func(conn net.Conn) {
		drivertest.ServeZooKeeper(conn, func(kind int, of []byte) (code int, body []byte) {
			if kind == multi && begun < others {
				begun++
				tree.write("/services", "")
			}
			return tree.answer(kind, of)
		})
	})
	tree.write("/services", "")
	d := drivertest.Open[*Registry](t, New, registry.Config{Endpoint: endpoint})
	expect.NoError(t, d.Register(t.Context(), drivertest.Pod(1)))
	expect.Equal(t, others, begun, "how many others began")
}
