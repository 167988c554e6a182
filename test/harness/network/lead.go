package network

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
)

// HostPort is the address in an endpoint, which may have a scheme before it and a path after it.
func HostPort(endpoint string) string {
	_, rest, found := strings.Cut(endpoint, "://")
	if !found {
		rest = endpoint
	}
	address, _, _ := strings.Cut(rest, "/")
	return address
}

// Accept listens at a port of the host for connections until ctx ends. Each is served in a goroutine of its own, and closed after it.
func Accept(ctx context.Context, host string, serve func(net.Conn)) (address string, err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return "", fmt.Errorf("listening: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
	return listener.Addr().String(), nil
}

// Lead has each connection to the one server of the endpoint passed on until ctx ends, and returns the endpoint for it.
func Lead(ctx context.Context, endpoint string, pass func(client, server net.Conn)) (through string, err error) {
	at := HostPort(endpoint)
	address, err := Accept(ctx, "127.0.0.1", func(client net.Conn) {
		server, err := net.Dial("tcp", at) //nolint:noctx // it is on this machine
		if err != nil {
			return
		}
		defer server.Close()
		pass(client, server)
	})
	return strings.Replace(endpoint, at, address, 1), err
}

// Traffic counts what is passed on.
type Traffic struct {
	// Bytes are those of both ways.
	Bytes atomic.Int64
	// Trips are how often something was sent after an answer, or as the first.
	Trips atomic.Int64
}

// Pass passes a connection on, for [Lead].
func (t *Traffic) Pass(client, server net.Conn) {
	var asked atomic.Bool // since the server sent something last
	go func() {
		defer server.Close()
		_, _ = io.Copy(server, io.TeeReader(client, Tell(func(n int) {
			t.Bytes.Add(int64(n))
			if !asked.Swap(true) {
				t.Trips.Add(1)
			}
		})))
	}()
	_, _ = io.Copy(client, io.TeeReader(server, Tell(func(n int) {
		t.Bytes.Add(int64(n))
		asked.Store(false)
	})))
}

// Tell is a writer that tells how much is written to it.
type Tell func(n int)

func (t Tell) Write(p []byte) (int, error) {
	t(len(p))
	return len(p), nil
}
