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

// both is a drain and a readerLag that are alike.
func both(d time.Duration) advice { return advice{d, d} }

// all are the readers that run here. One that watches, or asks for each request, notices within a second, whatever the machine does.
func all() []reader {
	const many, some, few = 30, 10, 4
	const often, thrice, twice = 5, 3, 2
	immediately, afterFive := both(time.Second), both(6*time.Second)
	const five = 5 * time.Second
	return []reader{
		{name: "DNS, asked for each request", driver: "consul", set: immediately, changes: many, rollouts: often,
			server: consulServer, start: consulDNS},
		{name: "HAProxy 2.6, DNS", driver: "consul", set: advice{1500 * time.Millisecond, 3 * time.Second}, period: time.Second, changes: many,
			rollouts: often, proxies: true, server: consulServer, start: haproxy},
		{name: "nginx 1.22, consul-template 0.42", driver: "consul", set: immediately, changes: many, rollouts: often, proxies: true,
			server: consulServer, start: nginx},
		{name: "Envoy 1.40, STRICT_DNS", driver: "consul", set: afterFive, period: five, changes: some, rollouts: twice, proxies: true,
			server: consulServer, start: envoy},
		{name: "Traefik 3.6, Consul Catalog", driver: "consul", set: both(18 * time.Second), period: 15 * time.Second, changes: few,
			rollouts: thrice, server: consulServer, start: traefik()},
		{name: "Traefik 3.6, Consul Catalog, watch", driver: "consul", set: both(3 * time.Second), period: 2 * time.Second, changes: some,
			rollouts: often, server: consulServer, start: traefik("-watch")},
		{name: "Spring Cloud Consul", driver: "consul", options: map[string]string{"outOfRotation": "delete"},
			set: immediately, changes: many, rollouts: often, server: consulServer, start: springOfConsul},
		{name: "gRPC for Go", driver: "etcd", set: immediately, changes: many, rollouts: often, server: etcdServer, start: grpcOfEtcd},
		{name: "go-zero 1.10", driver: "etcd", options: map[string]string{"format": "go-zero"},
			set: immediately, changes: many, rollouts: often, server: etcdServer, start: goZero},
		{name: "Kitex 0.16", driver: "etcd", options: map[string]string{"format": "kitex"},
			set: afterFive, period: five, changes: some, rollouts: twice, server: etcdServer, start: kitex},
		{name: "CoreDNS 1.15, its cache with denial 9984 5", driver: "etcd",
			options: map[string]string{"format": "skydns", "target": "/skydns/local/skydns/{service}"},
			set:     afterFive, period: five, changes: some, rollouts: twice, server: etcdServer, start: coreDNS},
		{name: "Nacos' client for Go", driver: "nacos", set: immediately, changes: many, rollouts: often,
			server: nacosServer, start: nacosClient},
		{name: "Spring Cloud Alibaba", driver: "nacos", set: immediately, changes: many, rollouts: often,
			server: nacosServer, start: springOfNacos},
		{name: "Spring Cloud LoadBalancer", driver: "nacos", set: both(36 * time.Second), period: 35 * time.Second, changes: few, rollouts: 1,
			server: nacosServer, start: balancerOfNacos()},
		{name: "Spring Cloud LoadBalancer, cache.ttl=5s", driver: "nacos", set: afterFive, period: five, changes: some, rollouts: twice,
			server: nacosServer, start: balancerOfNacos("--spring.cloud.loadbalancer.cache.ttl=5s")},
		{name: "Dubbo 3.3, by interface", driver: "nacos", entry: asDubbo, set: afterFive, period: five, changes: some, rollouts: twice,
			server: nacosServer, start: dubboConsumer},
		{name: "Curator's ServiceProvider", driver: "zookeeper", set: immediately, changes: many, rollouts: often,
			server: zookeeperServer, start: curator},
		{name: "Spring Cloud Netflix", driver: "eureka", set: both(time.Minute), period: 30 * time.Second, changes: few, rollouts: 1,
			server: eurekaServer, start: springOfEureka},
	}
}
