package main

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/network"
	"github.com/rollcall-dev/rollcall/test/harness/registries/consul"
	"github.com/rollcall-dev/rollcall/test/harness/registries/etcd"
	"github.com/rollcall-dev/rollcall/test/harness/registries/nacos"
	"github.com/rollcall-dev/rollcall/test/harness/registries/read"
	"github.com/rollcall-dev/rollcall/test/harness/registries/zookeeper"
)

// cutDrivers are those with a [place]. Eureka has none: the heartbeats of 10,000 entries, 333 a second, are more than is left of two cores,
// so no measurement begins at rest.
func cutDrivers() []string { return []string{"etcd", "consul", "zookeeper", "nacos"} }

// place is a real registry behind a network that can be cut.
type place struct {
	*network.Network

	driver, url string                 // as the manager is given them
	readers     map[string]read.Reader // of each service, at the server itself
	closers     []func()
}

// start runs the server, and the network between the manager and the server.
func (p *place) start(ctx context.Context) error {
	run := map[string]func(context.Context) (endpoint string, err error){
		"etcd": p.etcd, "consul": p.consul, "zookeeper": p.zooKeeper, "nacos": p.nacos,
	}[p.driver]
	endpoint, err := run(ctx)
	if err != nil {
		return err
	}
	at, err := url.Parse(endpoint)
	if err != nil {
		return fmt.Errorf("reading the address of the server: %w", err)
	}
	if p.Network, err = network.Start(ctx, "127.0.0.1:0", at.Host); err != nil {
		return fmt.Errorf("starting the network: %w", err)
	}
	p.closers = append(p.closers, p.Network.Stop)
	at.Host = p.Address
	p.url = strings.TrimPrefix(at.String(), "//") // ZooKeeper's has no scheme
	return nil
}

// stop ends what was started, the last first.
func (p *place) stop() {
	for _, end := range slices.Backward(p.closers) {
		end()
	}
}

func (p *place) etcd(ctx context.Context) (string, error) {
	server, err := etcd.Start(ctx, etcd.Options{})
	if err != nil {
		return "", err
	}
	p.closers = append(p.closers, server.Stop)
	for _, service := range services() {
		reader, closeReader, err := read.Etcd(server.Endpoint, "services/"+service, service)
		if err != nil {
			return "", err
		}
		p.readers[service], p.closers = reader, append(p.closers, func() { _ = closeReader() })
	}
	return "http://" + server.Endpoint, nil
}

func (p *place) consul(ctx context.Context) (string, error) {
	server, err := consul.Start(ctx, consul.Options{})
	if err != nil {
		return "", err
	}
	p.closers = append(p.closers, server.Stop)
	for _, service := range services() {
		p.readers[service] = read.Consul(server.URL, service)
	}
	return server.URL, nil
}

// zooKeeper counts the nodes of a service, since there are none of pods that are out, and to read 10,000 takes longer than a look may.
func (p *place) zooKeeper(ctx context.Context) (string, error) {
	server, err := zookeeper.Start(ctx, zookeeper.Options{})
	if err != nil {
		return "", err
	}
	p.closers = append(p.closers, server.Stop)
	conn, err := read.ConnectZooKeeper(server.Endpoint)
	if err != nil {
		return "", err
	}
	p.closers = append(p.closers, conn.Close)
	for _, service := range services() {
		p.readers[service] = func(context.Context) ([]registry.Entry, error) {
			nodes, _, err := conn.Children("/services/" + service)
			entries := make([]registry.Entry, len(nodes))
			for i := range entries {
				entries[i].State = registry.InService
			}
			return entries, err
		}
	}
	return "//" + server.Endpoint, nil
}

func (p *place) nacos(ctx context.Context) (string, error) {
	server, err := nacos.Start(ctx, nacos.Options{Version: nacos.V2})
	if err != nil {
		return "", err
	}
	p.closers = append(p.closers, server.Stop)
	for _, service := range services() {
		p.readers[service] = read.NacosList(server.Endpoint+"/nacos/v1/ns/instance/list", service)
	}
	return server.Endpoint, nil
}

func services() []string { return []string{largeService, otherService} }

// lose makes changes whose answers are lost, until each call has timed out, and returns how many of the large service are given to clients
// then.
func (p *place) lose(ctx context.Context, changes func() error) (there int, err error) {
	const readsFor = time.Second
	p.Set(network.Terms{Fault: network.Cut, Share: 1})
	err = changes()
	end := time.Now().Add(config.DefaultTimeout)
	if err == nil {
		<-time.After(config.DefaultTimeout - readsFor)
		there = p.given(ctx, largeService)
		<-time.After(time.Until(end))
	}
	if cleared := p.Clear(ctx); err == nil {
		err = cleared
	}
	return there, err
}

// given counts a service's instances that clients are given.
func (p *place) given(ctx context.Context, service string) int {
	given, _ := read.Given(ctx, p.readers[service])
	return len(given)
}
