package drivertest

import (
	"encoding/binary"
	"io"
	"net"
	"slices"
)

// ServeZooKeeper lets the client of a connection in as ZooKeeper does. Its requests have the code, and what comes behind it, that
// answer says for their kind and body; pings and logins succeed.
func ServeZooKeeper(conn net.Conn, answer func(kind int, body []byte) (code int, more []byte)) {
	hello, err := ReadFrame(conn)
	if err != nil {
		return
	}
	welcome := slices.Concat(hello[:4], hello[12:16])   // protocol, and the session's timeout as asked for
	welcome = binary.BigEndian.AppendUint64(welcome, 1) // its number
	WriteFrame(conn, append(binary.BigEndian.AppendUint32(welcome, 16), make([]byte, 17)...))
	for {
		request, err := ReadFrame(conn)
		if err != nil {
			return
		}
		code, more := 0, []byte(nil)
		const setAuth = 100
		if kind := int(binary.BigEndian.Uint32(request[4:])); int32(binary.BigEndian.Uint32(request)) > 0 && kind != setAuth {
			code, more = answer(kind, request[8:])
		}
		head := append(slices.Clone(request[:4]), make([]byte, 8)...)
		WriteFrame(conn, append(binary.BigEndian.AppendUint32(head, uint32(int32(code))), more...))
	}
}

// ReadFrame reads what comes behind its length.
func ReadFrame(r io.Reader) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(length[:]))
	_, err := io.ReadFull(r, frame)
	return frame, err
}

// WriteFrame writes what comes behind its length.
func WriteFrame(w io.Writer, frame []byte) {
	_, _ = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...))
}
