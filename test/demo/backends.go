package main

import (
	"context"
	"fmt"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"

	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
	"github.com/rollcall-dev/rollcall/test/harness/httpserver"
	"github.com/rollcall-dev/rollcall/test/harness/network"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/consul"
	"github.com/rollcall-dev/rollcall/test/harness/registries/etcd"
	"github.com/rollcall-dev/rollcall/test/harness/registries/eureka"
	"github.com/rollcall-dev/rollcall/test/harness/registries/nacos"
	"github.com/rollcall-dev/rollcall/test/harness/registries/read"
	"github.com/rollcall-dev/rollcall/test/harness/registries/zookeeper"
)

const (
	defaultDriver = "http"
	// serviceName is what the demo's configuration makes of its CloneSet's labels.
	serviceName = "web"
)

// backend is a registry that the manager talks to, and that the demo's client reads as its clients do.
type backend struct {
	// about is the server and its version.
	about string
	// section has the fields of the registry section of the manager's configuration.
	section string
	// address is the host and port that section names.
	address string
	// door leads to the address and can be shut; nil before openDoor.
	door *network.Network
	read read.Reader
	// field is what there is around it where applications register themselves; nil where they can't be steered.
	field func(ctx context.Context, app string) (*field, error)
	// look returns a command that shows a person what it has of a service.
	look func(service string) string
	stop func()
	done <-chan struct{} // closed when the server has ended; nil where there is none
	err  func() error
}

// backends starts each registry that the demo can be shown with, by its driver's name.
func backends() map[string]func(context.Context) (*backend, error) {
	return map[string]func(context.Context) (*backend, error){
		"consul":      consulBackend,
		"etcd":        etcdBackend,
		"eureka":      eurekaBackend,
		defaultDriver: func(ctx context.Context) (*backend, error) { return httpBackend(ctx, clusterName), nil },
		"nacos":       nacosBackend,
		"zookeeper":   zookeeperBackend,
	}
}

// driverFrom reads the variable REGISTRY.
func driverFrom(value string) (string, error) {
	if value == "" {
		return defaultDriver, nil
	}
	if _, known := backends()[value]; !known {
		return "", fmt.Errorf("REGISTRY is %q: set one of %s, or leave it out for %s", value,
			strings.Join(slices.Sorted(maps.Keys(backends())), ", "), defaultDriver)
	}
	return value, nil
}

// openDoor has those who write come through a door, so that the registry can be away for them and not for those who read: a
// Consul without a leader is like that.
func (b *backend) openDoor(ctx context.Context) error {
	door, err := network.Start(ctx, "127.0.0.1:0", b.address)
	if err != nil {
		return fmt.Errorf("opening a door to the registry: %w", err)
	}
	stop := b.stop
	b.door, b.stop = door, func() { door.Stop(); stop() }
	b.section = strings.ReplaceAll(b.section, b.address, door.Address)
	return nil
}

// httpBackend is the HTTP registry protocol, served by the demo, with what those write who name this cluster.
func httpBackend(ctx context.Context, cluster string) *backend {
	server := httptest.NewServer(httpserver.New(fakeregistry.Memory(ctx), httpserver.Options{}))
	list := server.URL + "/v1/instances?cluster=" + cluster
	return &backend{
		about: "the HTTP registry protocol, served by the demo", address: network.HostPort(server.URL),
		section: fmt.Sprintf("driver: http, endpoint: %q", server.URL),
		read:    read.Listed(list, serviceName), look: func(string) string { return "curl '" + list + "'" }, stop: server.Close,
	}
}

func consulBackend(ctx context.Context) (*backend, error) {
	server, err := consul.Start(ctx, consul.Options{})
	if err != nil {
		return nil, err
	}
	return running(server.Server, backend{
		section: fmt.Sprintf("driver: consul, endpoint: %q", server.URL), address: network.HostPort(server.URL),
		field: func(context.Context, string) (*field, error) { return consulField(server) },
		read:  read.Consul(server.URL, serviceName),
		look:  func(service string) string { return fmt.Sprintf("curl %s/v1/health/service/%s", server.URL, service) },
	}), nil
}

func etcdBackend(ctx context.Context) (*backend, error) {
	server, err := etcd.Start(ctx, etcd.Options{})
	if err != nil {
		return nil, err
	}
	reader, closeReader, err := read.Etcd(server.Endpoint, "services/"+serviceName, serviceName)
	if err != nil {
		server.Stop()
		return nil, err
	}
	return running(server.Server, backend{
		section: fmt.Sprintf("driver: etcd, endpoint: %q", "http://"+server.Endpoint), address: server.Endpoint,
		read: reader,
		look: func(service string) string {
			return fmt.Sprintf("etcdctl --endpoints %s get --prefix services/%s/", server.Endpoint, service)
		},
		stop: func() { _ = closeReader() },
	}), nil
}

// eurekaBackend answers from no cache: with them the drain would have to be 90 s, and the demo would take an hour. Its clients
// look each second and not each half minute, so nothing has to wait for a minute until they know a pod.
func eurekaBackend(ctx context.Context) (*backend, error) {
	server, err := eureka.Start(ctx, eureka.Options{})
	if err != nil {
		return nil, err
	}
	return running(server.Server, backend{
		section: fmt.Sprintf("driver: eureka, endpoint: %q, readerLag: 3s", server.Endpoint), address: network.HostPort(server.Endpoint),
		field: func(ctx context.Context, _ string) (*field, error) { return eurekaField(ctx, server) },
		read:  read.Eureka(server.Endpoint, serviceName),
		look: func(service string) string {
			return fmt.Sprintf("curl -H 'Accept: application/json' %s/apps/%s", server.Endpoint, service)
		},
	}), nil
}

func nacosBackend(ctx context.Context) (*backend, error) {
	server, err := nacos.Start(ctx, nacos.Options{Version: nacos.V3})
	if err != nil {
		return nil, err
	}
	return running(server.Server, backend{
		section: fmt.Sprintf("driver: nacos, endpoint: %q", server.Endpoint), address: network.HostPort(server.Endpoint),
		field: func(ctx context.Context, app string) (*field, error) { return nacosField(ctx, server, app) },
		read:  read.Nacos(server.Endpoint+"/nacos", serviceName),
		look: func(service string) string {
			return fmt.Sprintf("curl '%s/nacos/v3/client/ns/instance/list?serviceName=%s'", server.Endpoint, service)
		},
	}), nil
}

func zookeeperBackend(ctx context.Context) (*backend, error) {
	server, err := zookeeper.Start(ctx, zookeeper.Options{})
	if err != nil {
		return nil, err
	}
	reader, closeReader, err := read.ZooKeeper(server.Endpoint, "/services/"+serviceName, serviceName)
	if err != nil {
		server.Stop()
		return nil, err
	}
	return running(server.Server, backend{
		section: fmt.Sprintf("driver: zookeeper, endpoint: %q", server.Endpoint), address: server.Endpoint,
		field: func(ctx context.Context, app string) (*field, error) { return zookeeperField(ctx, server, app) },
		read:  reader,
		look: func(service string) string {
			return fmt.Sprintf("zkCli.sh -server %s ls /services/%s", server.Endpoint, service)
		},
		stop: closeReader,
	}), nil
}

// running adds to b what every server of its own has.
func running(server *registries.Server, b backend) *backend {
	b.about = server.Name() + " " + server.Version()
	closeReader := b.stop
	b.stop = func() {
		if closeReader != nil {
			closeReader()
		}
		server.Stop()
	}
	b.done, b.err = server.Done(), server.Err
	return &b
}
