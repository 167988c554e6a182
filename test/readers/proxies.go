package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rollcall-dev/rollcall/test/harness/process"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/consul"
)

// Proxies choose the servers in turn: so many requests, each on a connection of its own, reach each of them.
const turns = 2 * pods

// haproxy follows Consul's DNS as https://www.haproxy.com/blog/dns-service-discovery-haproxy describes.
func haproxy(ctx context.Context, s *consul.Server, _ []*pod) (given, error) {
	return proxy(ctx, "haproxy", func(dir, address string) ([][]string, error) {
		at := filepath.Join(dir, "haproxy.cfg")
		return [][]string{{"haproxy", "-db", "-f", at}}, write(at, `
global
  maxconn 100
resolvers consul
  nameserver consul %s
  accepted_payload_size 8192
  hold valid 1s
defaults
  mode http
  timeout connect 5s
  timeout client 5s
  timeout server 5s
listen web
  bind %s
  balance roundrobin
  option httpclose
  server-template web 10 _%s._tcp.service.consul resolvers consul resolve-opts allow-dup-ip init-addr none
`, s.DNS, address, service)
	})
}

// envoy looks Consul's DNS up as a cluster of the type STRICT_DNS does, which takes addresses alone from it.
func envoy(ctx context.Context, s *consul.Server, all []*pod) (given, error) {
	return proxy(ctx, "envoy", func(dir, address string) ([][]string, error) {
		_, dns, err := net.SplitHostPort(s.DNS)
		if err != nil {
			return nil, fmt.Errorf("reading the address of Consul's DNS: %w", err)
		}
		_, port, err := net.SplitHostPort(address)
		at := filepath.Join(dir, "envoy.yaml")
		return [][]string{{"envoy", "-c", at, "--use-dynamic-base-id", "--concurrency", "1"}}, errors.Join(err, write(at, `
static_resources:
  listeners:
  - address: {socket_address: {address: 127.0.0.1, port_value: %s}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: web
          route_config: {virtual_hosts: [{name: web, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: web}}]}]}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
  clusters:
  - name: web
    type: STRICT_DNS
    dns_lookup_family: V4_ONLY
    typed_dns_resolver_config:
      name: envoy.network.dns_resolver.cares
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig
        resolvers: [{socket_address: {address: 127.0.0.1, port_value: %s}}]
    load_assignment:
      cluster_name: web
      endpoints:
      - lb_endpoints: [{endpoint: {address: {socket_address: {address: %s.service.consul, port_value: %d}}}}]
`, port, dns, service, all[0].port))
	})
}

// nginx has its upstream written, and is reloaded, by consul-template.
func nginx(ctx context.Context, s *consul.Server, _ []*pod) (given, error) {
	template, err := build(ctx, "github.com/hashicorp/consul-template")
	if err != nil {
		return nil, err
	}
	return proxy(ctx, "nginx", func(dir, address string) ([][]string, error) {
		at, upstream, source := filepath.Join(dir, "nginx.conf"), filepath.Join(dir, "upstream.conf"), filepath.Join(dir, "upstream.tpl")
		run := []string{"nginx", "-p", dir, "-c", at, "-e", "stderr"}
		reloads := source + ":" + upstream + ":" + strings.Join(run, " ") + " -s reload"
		return [][]string{
				append(run, "-g", "daemon off;"), {template, "-consul-addr", strings.TrimPrefix(s.URL, "http://"), "-template", reloads},
			}, errors.Join(write(source, `upstream web {
{{ range service "%s" }}  server {{ .Address }}:{{ .Port }};
{{ else }}  server 127.0.0.1:9; # nginx wants one
{{ end }}}
`, service), write(upstream, "upstream web { server 127.0.0.1:9; }\n"), write(at, `
error_log stderr;
pid %[1]s/nginx.pid;
worker_processes 1;
events {}
http {
  access_log off;
  client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
  include %[2]s;
  server { listen %[3]s; location / { proxy_pass http://web; proxy_next_upstream off; } }
}
`, dir, upstream, address))
	})
}

func write(at, format string, of ...any) error {
	const readable = 0o644 // by the proxy's own user
	if err := os.WriteFile(at, fmt.Appendf(nil, format, of...), readable); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

// proxy runs a command, which serves at the address, and returns who answers requests there.
func proxy(ctx context.Context, name string, commands func(dir, address string) ([][]string, error)) (given, error) {
	if _, err := exec.LookPath(name); err != nil {
		return nil, fmt.Errorf("%w: install %s, for Debian as .ci/run does", err, name)
	}
	dir, err := os.MkdirTemp("", "rollcall-readers-")
	if err != nil {
		return nil, fmt.Errorf("making a folder: %w", err)
	}
	port, err := process.FreePortWith(ctx)
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort(loopback, strconv.Itoa(port))
	context.AfterFunc(ctx, func() { _ = os.RemoveAll(dir) })
	all, err := commands(dir, address)
	if err != nil {
		return nil, err
	}
	launcher := process.NewLauncher() // its thread ends with this program
	for _, args := range all {
		p, err := process.Start(launcher, dir, process.Command{Name: name, Path: args[0], Args: args[1:]})
		if err != nil {
			return nil, err
		}
		context.AfterFunc(ctx, p.Kill)
	}
	client := newClient()
	return func(ctx context.Context) (all []string, err error) {
		for range turns {
			one, err := ask(ctx, client, "http://"+address)
			if err != nil {
				return all, err
			}
			all = append(all, one)
		}
		return all, nil
	}, nil
}

func ask(ctx context.Context, client *http.Client, url string) (string, error) {
	text, err := (&registries.Client{URL: url, HTTP: client}).Do(ctx, http.MethodGet, "", nil)
	return string(text), err
}
