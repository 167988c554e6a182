package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

// pod is a server that tells who it is.
type pod struct {
	address, endpoint string
	port              int
	entry             func(registry.Instance) registry.Instance
	// ended has it answer nobody, as between two versions.
	ended atomic.Bool
}

const loopback = "127.0.0.1"

// servePods serves until the context ends, at addresses of their own and one port, since readers of A records know no other.
func servePods(ctx context.Context, entry func(registry.Instance) registry.Instance) (all []*pod, err error) {
	port := 0
	for i := range pods {
		p := &pod{address: "127.0.0." + strconv.Itoa(i+1), entry: entry}
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(p.address, strconv.Itoa(port)))
		if err != nil {
			return nil, fmt.Errorf("listening: %w", err)
		}
		port = listener.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // it is one
		p.endpoint, p.port = listener.Addr().String(), port
		server := &http.Server{
			ReadHeaderTimeout: time.Minute,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if p.ended.Load() {
					panic(http.ErrAbortHandler)
				}
				fmt.Fprint(w, p.endpoint)
			}),
		}
		go func() { _ = server.Serve(listener) }()
		context.AfterFunc(ctx, func() { _ = server.Close() })
		all = append(all, p)
	}
	return all, nil
}

func (p *pod) instance() registry.Instance {
	name := "web-" + p.address
	in := registry.Instance{
		Service: service, Address: p.address, Port: p.port, Cluster: "readers", Namespace: "shop", Pod: name, UID: "uid-of-" + name,
		Registry: "default",
	}
	if p.entry != nil {
		in = p.entry(in)
	}
	return in
}
