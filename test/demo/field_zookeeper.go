package main

import (
	"context"
	"fmt"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/registries/read"
	"github.com/rollcall-dev/rollcall/test/harness/registries/zookeeper"
)

// zookeeperField is ZooKeeper with applications that own their entries and take them out of rotation themselves.
func zookeeperField(ctx context.Context, server *zookeeper.Server, app string) (*field, error) {
	conn, err := read.ConnectZooKeeper(server.Endpoint)
	if err != nil {
		return nil, err
	}
	f := &field{
		reader: func(service string) read.Reader { return read.Curator(conn, "/services/"+service, service) },
		stops:  []func(){conn.Close},
	}
	if app == "spring" {
		return f, f.zookeeperSpring(ctx, server)
	}
	return f, f.zookeeperDubbo(ctx, server)
}

// zookeeperSpring has Rollcall ask Spring's actuator. Clients look each second, and not each 35 s as Spring's cache does.
func (f *field) zookeeperSpring(ctx context.Context, server *zookeeper.Server) error {
	apps, err := server.StartSpringApps(ctx)
	if err != nil {
		return err
	}
	f.spring(apps)
	f.section = fmt.Sprintf("driver: pod, endpoint: \"http://{podIP}:%d/actuator\"", zookeeper.ActuatorPort)
	f.options = `, readerLag: 3s, options: {leave: {path: /serviceregistry, body: '{"status": "OUT_OF_SERVICE"}'}, ` +
		`join: {path: /serviceregistry, body: '{"status": "UP"}'}, state: {path: /serviceregistry}, in: {body: UP}, out: {body: OUT_OF_SERVICE}}`
	f.clients = "by Spring Cloud ZooKeeper, and clients take what its load balancer chooses from"
	f.has = f.listed
	f.client = func(ctx context.Context, service string) (read.Reader, error) {
		client, err := zookeeper.StartReader(ctx)
		if err != nil {
			return nil, err
		}
		f.stops = append(f.stops, client.Stop)
		return func(context.Context) ([]registry.Entry, error) {
			seen, err := client.SpringInstances(server.Endpoint, service)
			var entries []registry.Entry
			for _, in := range seen {
				entries = append(entries, given(service, in.Address, in.Port))
			}
			return entries, err
		}, nil
	}
	return nil
}
