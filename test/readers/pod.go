package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

// pod is a server that tells who it is.
type pod struct {
	endpoint string
	port     int
}

const loopback = "127.0.0.1"

// servePods serves until the context ends.
func servePods(ctx context.Context, n int) (all []*pod, err error) {
	for range n {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(loopback, "0"))
		if err != nil {
			return nil, fmt.Errorf("listening: %w", err)
		}
		p := &pod{endpoint: listener.Addr().String(), port: listener.Addr().(*net.TCPAddr).Port} //nolint:forcetypeassert // it is one
		server := &http.Server{
			ReadHeaderTimeout: time.Minute,
			Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, p.endpoint) }),
		}
		go func() { _ = server.Serve(listener) }()
		context.AfterFunc(ctx, func() { _ = server.Close() })
		all = append(all, p)
	}
	return all, nil
}

func (p *pod) instance() registry.Instance {
	name := "web-" + strconv.Itoa(p.port)
	return registry.Instance{
		Service: service, Address: loopback, Port: p.port, Cluster: "readers", Namespace: "shop", Pod: name, UID: "uid-of-" + name,
		Registry: "default",
	}
}
