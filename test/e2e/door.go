package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// door is an address that leads to another one, and can be slow or shut.
type door struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	delay time.Duration
	shut  bool
	open  map[net.Conn]bool
}

// openDoor listens at the address until ctx ends.
func openDoor(ctx context.Context, address, target string) (*door, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", address)
	if err != nil {
		return nil, fmt.Errorf("opening a door to %s: %w", target, err)
	}
	d := &door{listener: listener, target: target, open: map[net.Conn]bool{}}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	go d.serve(ctx)
	return d, nil
}

// Shut drops every connection and each one that comes, until the door is opened again.
func (d *door) Shut(shut bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut = shut
	for conn := range d.open {
		_ = conn.Close()
	}
}

// Slow holds back what each connection sends, from here on, for this long.
func (d *door) Slow(delay time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.delay = delay
}

func (d *door) serve(ctx context.Context) {
	for {
		conn, err := d.listener.Accept()
		if err != nil {
			return // ctx has ended
		}
		go d.lead(ctx, conn)
	}
}

// enter notes a connection, unless the door is shut.
func (d *door) enter(conn net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.shut {
		d.open[conn] = true
	}
	return !d.shut
}

func (d *door) leave(conn net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, conn)
}

// lead connects conn with the target until one of them ends.
func (d *door) lead(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	if !d.enter(conn) {
		return
	}
	defer d.leave(conn)
	target, err := (&net.Dialer{}).DialContext(ctx, "tcp4", d.target)
	if err != nil {
		return
	}
	defer target.Close()
	go func() {
		defer conn.Close()
		_, _ = io.Copy(conn, target)
	}()
	_, _ = io.Copy(target, &held{Reader: conn, ctx: ctx, door: d})
}

// held passes on what it reads after the door's delay.
type held struct {
	io.Reader

	ctx  context.Context //nolint:containedctx // io.Reader has no room for it
	door *door
}

func (h *held) Read(p []byte) (int, error) {
	n, err := h.Reader.Read(p)
	h.door.mu.Lock()
	delay := h.door.delay
	h.door.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-h.ctx.Done():
		}
	}
	return n, err
}
