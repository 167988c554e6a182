package main

import (
	"context"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/registries/consul"
	"github.com/rollcall-dev/rollcall/test/harness/registries/etcd"
	"github.com/rollcall-dev/rollcall/test/harness/registries/eureka"
	"github.com/rollcall-dev/rollcall/test/harness/registries/nacos"
	"github.com/rollcall-dev/rollcall/test/harness/registries/zookeeper"
)

// stopping is a server that was started, which the end of the context stops.
func stopping[S interface {
	server
	Stop()
}](ctx context.Context, s S, err error,
) (server, error) {
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, s.Stop)
	return s, nil
}

func consulServer(ctx context.Context) (server, error) {
	s, err := consul.Start(ctx, consul.Options{})
	return stopping(ctx, s, err)
}

func etcdServer(ctx context.Context) (server, error) {
	s, err := etcd.Start(ctx, etcd.Options{})
	return stopping(ctx, s, err)
}

func nacosServer(ctx context.Context) (server, error) {
	s, err := nacos.Start(ctx, nacos.Options{Version: nacos.V3})
	return stopping(ctx, s, err)
}

func eurekaServer(ctx context.Context) (server, error) {
	s, err := eureka.Start(ctx, eureka.Options{ReadOnlyCache: true})
	return stopping(ctx, s, err)
}

func zookeeperServer(ctx context.Context) (server, error) {
	s, err := zookeeper.Start(ctx, zookeeper.Options{})
	return stopping(ctx, s, err)
}

// all are the readers that run here. A reader that watches, or asks for each request, notices within a second, whatever the machine does.
func all() []reader {
	const many, few, immediately = 30, 6, time.Second
	return []reader{
		{name: "DNS, asked for each request", driver: "consul", page: immediately, changes: many, server: consulServer, start: consulDNS},
		{name: "HAProxy 2.6, DNS", driver: "consul", page: 3 * time.Second, period: time.Second, changes: many,
			server: consulServer, start: haproxy},
		{name: "nginx 1.22, consul-template 0.42", driver: "consul", page: 2 * time.Second, changes: many, server: consulServer, start: nginx},
		{name: "Spring Cloud Consul", driver: "consul", options: map[string]string{"outOfRotation": "delete"},
			page: immediately, changes: many, server: consulServer, start: springOfConsul},
		{name: "gRPC for Go", driver: "etcd", page: immediately, changes: many, server: etcdServer, start: grpcOfEtcd},
		{name: "go-zero 1.10", driver: "etcd", options: map[string]string{"format": "go-zero"},
			page: immediately, changes: many, server: etcdServer, start: goZero},
		{name: "CoreDNS 1.15", driver: "etcd", options: map[string]string{"format": "skydns", "target": "/skydns/local/skydns/{service}"},
			page: 5 * time.Second, changes: many, server: etcdServer, start: coreDNS},
		{name: "Nacos' client for Go", driver: "nacos", page: immediately, changes: many, server: nacosServer, start: nacosClient},
		{name: "Spring Cloud Alibaba", driver: "nacos", page: immediately, changes: many, server: nacosServer, start: springOfNacos},
		{name: "Curator's ServiceProvider", driver: "zookeeper", page: immediately, changes: many, server: zookeeperServer, start: curator},
		{name: "Spring Cloud Netflix", driver: "eureka", page: 60 * time.Second, period: 30 * time.Second, changes: few, server: eurekaServer,
			start: springOfEureka},
	}
}
