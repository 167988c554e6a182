// Command grpc follows a service with etcd's resolver for gRPC, as its clients do.
package main

import (
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"

	clientv3 "go.etcd.io/etcd/client/v3"
	etcdresolver "go.etcd.io/etcd/client/v3/naming/resolver"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"

	"github.com/rollcall-dev/rollcall/test/harness/registries/readers/follow"
)

func main() { follow.Main(run) }

func run(tell func([]string)) error {
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
	if _, err := builder.Build(resolver.Target{URL: *address}, connection{tell}, resolver.BuildOptions{}); err != nil {
		return fmt.Errorf("resolving: %w", err)
	}
	return nil
}

// connection is what gRPC has behind a resolver.
type connection struct{ tell func([]string) }

// UpdateState implements [resolver.ClientConn].
func (c connection) UpdateState(s resolver.State) error {
	var addresses []string
	for _, one := range s.Addresses {
		addresses = append(addresses, one.Addr)
	}
	for _, one := range s.Endpoints {
		for _, at := range one.Addresses {
			addresses = append(addresses, at.Addr)
		}
	}
	c.tell(addresses)
	return nil
}

// ReportError implements [resolver.ClientConn].
func (c connection) ReportError(err error) { fmt.Fprintln(os.Stderr, "reader:", err) }

// NewAddress implements [resolver.ClientConn].
func (c connection) NewAddress([]resolver.Address) {}

// ParseServiceConfig implements [resolver.ClientConn].
func (c connection) ParseServiceConfig(string) *serviceconfig.ParseResult {
	return &serviceconfig.ParseResult{Err: errors.New("it reads no service configuration")}
}
