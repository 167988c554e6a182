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

	"github.com/godbus/dbus/v5"
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

// What kubelet is answered.
const (
	inhibitDelay  = 10 * time.Minute // longer than any shutdownGracePeriod, which kubelet would raise it to otherwise
	lockThatIsNot = 1 << 20          // a descriptor that kubelet does not have: closing it ends nothing

	prepareForShutdown = "PrepareForShutdown"
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
	var all error
	for _, conn := range l.conns {
		all = errors.Join(all, send(conn, dbus.TypeSignal, map[dbus.HeaderField]dbus.Variant{
			dbus.FieldPath:      dbus.MakeVariant(dbus.ObjectPath("/org/freedesktop/login1")),
			dbus.FieldInterface: dbus.MakeVariant("org.freedesktop.login1.Manager"),
			dbus.FieldMember:    dbus.MakeVariant(prepareForShutdown),
		}, is))
	}
	return all
}

// serve answers the calls of a client.
func (l *logind) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	if err := letIn(in, conn); err != nil {
		return
	}
	l.mu.Lock()
	l.conns = append(l.conns, conn)
	l.mu.Unlock()
	defer l.forget(conn)
	for {
		call, err := dbus.DecodeMessage(in)
		if err != nil {
			return
		}
		l.mu.Lock()
		err = send(conn, dbus.TypeMethodReply, map[dbus.HeaderField]dbus.Variant{
			dbus.FieldReplySerial: dbus.MakeVariant(call.Serial()),
		}, answerTo(call)...)
		l.mu.Unlock()
		if err != nil {
			return
		}
		if strings.Contains(fmt.Sprint(call.Body), prepareForShutdown) { // it has the lock already
			l.once.Do(func() { close(l.ready) })
		}
	}
}

// letIn lets a client in, whoever it is.
func letIn(in *bufio.Reader, conn net.Conn) error {
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		var answer string
		switch line = strings.Trim(line, "\x00\r\n"); {
		case line == "AUTH":
			answer = "REJECTED EXTERNAL"
		case strings.HasPrefix(line, "AUTH EXTERNAL"):
			answer = "OK 00000000000000000000000000000001"
		case line == "BEGIN":
			return nil
		default: // descriptors are not passed
			answer = "ERROR"
		}
		if _, err := io.WriteString(conn, answer+"\r\n"); err != nil {
			return err
		}
	}
}

// forget drops the connection of a kubelet that has ended.
func (l *logind) forget(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = slices.DeleteFunc(l.conns, func(one net.Conn) bool { return one == conn })
}

// answerTo is what kubelet needs of the answer.
func answerTo(call *dbus.Message) []any {
	switch call.Headers[dbus.FieldMember].Value() {
	case "Hello":
		return []any{":1.1"}
	case "Get": // InhibitDelayMaxUSec
		return []any{dbus.MakeVariant(uint64(inhibitDelay.Microseconds()))}
	case "Inhibit":
		return []any{uint32(lockThatIsNot)}
	default:
		return nil
	}
}

func send(to io.Writer, kind dbus.Type, headers map[dbus.HeaderField]dbus.Variant, body ...any) error {
	if len(body) > 0 {
		headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(body...))
	}
	return (&dbus.Message{Type: kind, Headers: headers, Body: body}).EncodeTo(to, binary.LittleEndian)
}
