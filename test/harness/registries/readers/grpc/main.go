// Command grpc follows a service with etcd's resolver for gRPC, as its clients do, and writes a line of JSON for each change of the
// addresses that it has.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
	etcdresolver "go.etcd.io/etcd/client/v3/naming/resolver"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "reader:", err)
		os.Exit(1)
	}
}

func run() error {
	endpoint := flag.String("endpoint", "", "the client URL of etcd")
	target := flag.String("target", "", "what the client dials, without etcd:///")
	flag.Parse()
	client, err := clientv3.NewFromURL(*endpoint)
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	builder, err := etcdresolver.NewBuilder(client)
	if err != nil {
		return fmt.Errorf("making the resolver: %w", err)
	}
	address, err := url.Parse("etcd:///" + *target)
	if err != nil {
		return fmt.Errorf("reading the target: %w", err)
	}
	if _, err := builder.Build(resolver.Target{URL: *address}, connection{json.NewEncoder(os.Stdout)}, resolver.BuildOptions{}); err != nil {
		return fmt.Errorf("resolving: %w", err)
	}
	_, err = io.Copy(io.Discard, os.Stdin) // it ends with the process that started this one
	return err
}

// connection is what gRPC has behind a resolver.
type connection struct{ out *json.Encoder }

// UpdateState implements [resolver.ClientConn].
func (c connection) UpdateState(s resolver.State) error {
	addresses := []string{}
	for _, one := range s.Addresses {
		addresses = append(addresses, one.Addr)
	}
	for _, one := range s.Endpoints {
		for _, at := range one.Addresses {
			addresses = append(addresses, at.Addr)
		}
	}
	slices.Sort(addresses)
	return c.out.Encode(slices.Compact(addresses))
}

// ReportError implements [resolver.ClientConn].
func (c connection) ReportError(err error) { fmt.Fprintln(os.Stderr, "reader:", err) }

// NewAddress implements [resolver.ClientConn].
func (c connection) NewAddress([]resolver.Address) {}

// ParseServiceConfig implements [resolver.ClientConn].
func (c connection) ParseServiceConfig(string) *serviceconfig.ParseResult {
	return &serviceconfig.ParseResult{Err: errors.New("it reads no service configuration")}
}
