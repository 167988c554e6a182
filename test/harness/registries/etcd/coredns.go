package etcd

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rollcall-dev/rollcall/test/harness/process"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
)

// CoreDNS answers for the zone skydns.local with what an etcd has.
type CoreDNS struct {
	*registries.Server
	// Address is host:port.
	Address string
}

// StartCoreDNS builds CoreDNS and runs it, with its plugin etcd and these.
func (s *Server) StartCoreDNS(ctx context.Context, plugins ...string) (*CoreDNS, error) {
	port, err := process.FreePortWith(ctx)
	if err != nil {
		return nil, err
	}
	dns := &CoreDNS{Address: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	dns.Server, err = registries.Run(ctx, registries.Spec{
		Name: "CoreDNS",
		Command: func(dir string) (process.Command, error) {
			program, err := registries.BuildReader(ctx, dir, "./coredns")
			if err != nil {
				return process.Command{}, err
			}
			at := filepath.Join(dir, "Corefile")
			text := fmt.Sprintf("skydns.local:%d {\n bind 127.0.0.1\n %s\n etcd {\n  endpoint %s\n }\n}\n",
				port, strings.Join(plugins, "\n "), s.URL())
			return process.Command{Path: program, Args: []string{"-conf", at}}, os.WriteFile(at, []byte(text), 0o600)
		},
		Ready: func(ctx context.Context) error {
			connection, err := new(net.Dialer).DialContext(ctx, "tcp", dns.Address)
			if err != nil {
				return err
			}
			return connection.Close()
		},
	})
	return dns, err
}
