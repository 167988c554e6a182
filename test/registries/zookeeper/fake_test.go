package zookeeper_test

import (
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"

	"github.com/rollcall-dev/rollcall/registry/registrytest"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
)

// What ZooKeeper's KeeperException calls CONNECTIONLOSS and NOAUTH.
const (
	codeLoss   = -4
	codeNoAuth = -102
)

// fake lets every client in and answers each of its requests with one error: what no real server can be made to do.
type fake struct {
	endpoint string
	code     int32
	requests atomic.Int64
}

func startFake(t registrytest.T, code int32) *fake {
	t.Helper()
	f := &fake{code: code}
	f.endpoint = drivertest.Accepting(t, "127.0.0.1", f.serve)
	return f
}

func (f *fake) serve(conn net.Conn) {
	hello, err := readFrame(conn)
	if err != nil {
		return
	}
	welcome := make([]byte, 0, 64)
	welcome = append(welcome, hello[:4]...)             // protocol
	welcome = append(welcome, hello[12:16]...)          // the session's timeout, as asked for
	welcome = binary.BigEndian.AppendUint64(welcome, 1) // its number
	welcome = append(binary.BigEndian.AppendUint32(welcome, 16), make([]byte, 17)...)
	writeFrame(conn, welcome)
	for {
		request, err := readFrame(conn)
		if err != nil {
			return
		}
		code := f.code
		if xid := int32(binary.BigEndian.Uint32(request)); xid < 0 {
			code = 0 // a ping
		} else {
			f.requests.Add(1)
		}
		answer := make([]byte, 16)
		copy(answer, request[:4])
		binary.BigEndian.PutUint32(answer[12:], uint32(code))
		writeFrame(conn, answer)
	}
}

func readFrame(r io.Reader) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(length[:]))
	_, err := io.ReadFull(r, frame)
	return frame, err
}

func writeFrame(w io.Writer, frame []byte) {
	_, _ = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...))
}
