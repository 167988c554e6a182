package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// logind stands for the operating system of one node: it is the system bus, with nothing on it but as much of systemd-logind as
// kubelet asks of it (pkg/kubelet/nodeshutdown/systemd). There is no machine that could be shut down: its kubelet is told that it is.
type logind struct {
	mu    sync.Mutex
	conns []net.Conn
	// ready is closed once kubelet holds the lock that delays a shutdown, and listens.
	ready chan struct{}
	once  sync.Once
}

// What kubelet asks for, by the member in a call's header, and what it is answered: a signature and a body.
const (
	inhibitDelay  = 10 * time.Minute // longer than any shutdownGracePeriod, which kubelet would raise it to otherwise
	lockThatIsNot = 1 << 20          // a descriptor that kubelet does not have: closing it ends nothing
)

// startLogind listens on a socket.
func startLogind(ctx context.Context, socket string) (*logind, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("listening as a system bus: %w", err)
	}
	l := &logind{ready: make(chan struct{})}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go l.serve(conn)
		}
	}()
	return l, nil
}

// shutDown tells kubelet that the machine is being shut down, or that it is not after all.
func (l *logind) shutDown(ctx context.Context, is bool) error {
	select {
	case <-l.ready:
	case <-ctx.Done():
		return errors.New("kubelet has not asked to delay a shutdown")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	body := []byte{0, 0, 0, 0}
	if is {
		body[0] = 1
	}
	signal := message(4, 1, []field{
		{1, "o", "/org/freedesktop/login1"}, {2, "s", "org.freedesktop.login1.Manager"}, {3, "s", "PrepareForShutdown"}, {8, "g", "b"},
	}, body)
	var all error
	for _, conn := range l.conns {
		_, err := conn.Write(signal)
		all = errors.Join(all, err)
	}
	return all
}

// serve lets a client in, whoever it is, and answers its calls.
func (l *logind) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for begun := false; !begun; {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		var answer string
		switch line = strings.Trim(line, "\x00\r\n"); {
		case line == "AUTH":
			answer = "REJECTED EXTERNAL"
		case strings.HasPrefix(line, "AUTH EXTERNAL"):
			answer = "OK 00000000000000000000000000000001"
		case line == "BEGIN":
			begun = true
			continue
		default: // descriptors are not passed
			answer = "ERROR"
		}
		if _, err := io.WriteString(conn, answer+"\r\n"); err != nil {
			return
		}
	}
	l.mu.Lock()
	l.conns = append(l.conns, conn)
	l.mu.Unlock()
	defer l.forget(conn)
	for {
		call, err := readMessage(in)
		if err != nil {
			return
		}
		l.mu.Lock()
		_, err = conn.Write(answerTo(call))
		l.mu.Unlock()
		if err != nil {
			return
		}
		if strings.Contains(string(call), "PrepareForShutdown") { // it has the lock already
			l.once.Do(func() { close(l.ready) })
		}
	}
}

// forget drops the connection of a kubelet that has ended.
func (l *logind) forget(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = slices.DeleteFunc(l.conns, func(one net.Conn) bool { return one == conn })
}

// readMessage reads a message without its padding's check: 16 bytes, the header's fields up to a multiple of 8, and the body.
func readMessage(in io.Reader) ([]byte, error) {
	head := make([]byte, 16)
	if _, err := io.ReadFull(in, head); err != nil {
		return nil, err
	}
	fields, body := binary.LittleEndian.Uint32(head[12:]), binary.LittleEndian.Uint32(head[4:])
	rest := make([]byte, (fields+7)/8*8+body)
	_, err := io.ReadFull(in, rest)
	return slices.Concat(head, rest), err
}

func answerTo(call []byte) []byte {
	serial := binary.LittleEndian.Uint32(call[8:])
	fields, body := []field{{5, "u", serial}}, []byte(nil)
	switch text := string(call); {
	case strings.Contains(text, "Hello"):
		fields, body = append(fields, field{8, "g", "s"}), appendText(nil, ":1.1")
	case strings.Contains(text, "InhibitDelayMaxUSec"):
		body = binary.LittleEndian.AppendUint64([]byte{1, 't', 0, 0, 0, 0, 0, 0}, uint64(inhibitDelay.Microseconds()))
		fields = append(fields, field{8, "g", "v"})
	case strings.Contains(text, "Inhibit"):
		fields, body = append(fields, field{8, "g", "u"}), binary.LittleEndian.AppendUint32(nil, lockThatIsNot)
	}
	return message(2, serial, fields, body)
}

// field is one of a message's header: its code, its type and its value.
type field struct {
	code  byte
	kind  string
	value any
}

// message has D-Bus's form: https://dbus.freedesktop.org/doc/dbus-specification.html#message-protocol-messages
func message(kind byte, serial uint32, fields []field, body []byte) []byte {
	text := []byte{'l', kind, 0, 1}
	text = binary.LittleEndian.AppendUint32(text, uint32(len(body)))
	text = binary.LittleEndian.AppendUint32(text, serial)
	text = append(text, 0, 0, 0, 0)
	for _, f := range fields {
		text = append(pad(text, 8), f.code, 1, f.kind[0], 0)
		switch value := f.value.(type) {
		case uint32:
			text = binary.LittleEndian.AppendUint32(pad(text, 4), value)
		case string:
			if f.kind == "g" {
				text = append(append(append(text, byte(len(value))), value...), 0)
				continue
			}
			text = appendText(pad(text, 4), value)
		}
	}
	binary.LittleEndian.PutUint32(text[12:], uint32(len(text)-16))
	return slices.Concat(pad(text, 8), body)
}

func appendText(to []byte, text string) []byte {
	return append(append(binary.LittleEndian.AppendUint32(to, uint32(len(text))), text...), 0)
}

func pad(text []byte, to int) []byte {
	return append(text, make([]byte, (to-len(text)%to)%to)...)
}
