package main

import (
	"context"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/consul"
	"github.com/rollcall-dev/rollcall/test/harness/registries/etcd"
	"github.com/rollcall-dev/rollcall/test/harness/registries/eureka"
	"github.com/rollcall-dev/rollcall/test/harness/registries/nacos"
	"github.com/rollcall-dev/rollcall/test/harness/registries/zookeeper"
)

// place is a registry that runs, and a reader of it.
type place struct {
	endpoint, version string
	// start returns what gives the endpoints to which the reader sends requests now.
	start func(ctx context.Context, pods []*pod) (given, error)
}

// on is a reader of a server, which the end of the context stops.
func on[S registries.Running](
	run func(context.Context) (S, error), endpoint func(S) string, start func(context.Context, S, []*pod) (given, error),
) func(context.Context) (place, error) {
	return func(ctx context.Context) (place, error) {
		s, err := run(ctx)
		if err != nil {
			return place{}, err
		}
		context.AfterFunc(ctx, s.Stop)
		return place{endpoint(s), s.Version(), func(ctx context.Context, pods []*pod) (given, error) { return start(ctx, s, pods) }}, nil
	}
}

func onConsul(start func(context.Context, *consul.Server, []*pod) (given, error)) func(context.Context) (place, error) {
	return on(registries.With(consul.Start, consul.Options{}), func(s *consul.Server) string { return s.URL }, start)
}

func onEtcd(start func(context.Context, *etcd.Server, []*pod) (given, error)) func(context.Context) (place, error) {
	return on(registries.With(etcd.Start, etcd.Options{}), (*etcd.Server).URL, start)
}

func onNacos(start func(context.Context, *nacos.Server, []*pod) (given, error)) func(context.Context) (place, error) {
	return on(registries.With(nacos.Start, nacos.Options{Version: nacos.V3}), func(s *nacos.Server) string { return s.Endpoint }, start)
}

func onEureka(start func(context.Context, *eureka.Server, []*pod) (given, error)) func(context.Context) (place, error) {
	return on(registries.With(eureka.Start, eureka.Options{ReadOnlyCache: true}), func(s *eureka.Server) string { return s.Endpoint }, start)
}

func onZooKeeper(start func(context.Context, *zookeeper.Server, []*pod) (given, error)) func(context.Context) (place, error) {
	return on(registries.With(zookeeper.Start, zookeeper.Options{}), func(s *zookeeper.Server) string { return s.Endpoint }, start)
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
			behind: onConsul(consulDNS)},
		{name: "HAProxy 2.6, DNS", driver: "consul", set: advice{1500 * time.Millisecond, 3 * time.Second}, period: time.Second, changes: many,
			rollouts: often, proxies: true, behind: onConsul(haproxy)},
		{name: "nginx 1.22, consul-template 0.42", driver: "consul", set: immediately, changes: many, rollouts: often, proxies: true,
			behind: onConsul(nginx)},
		{name: "Envoy 1.40, STRICT_DNS", driver: "consul", set: afterFive, period: five, changes: some, rollouts: twice, proxies: true,
			behind: onConsul(envoy)},
		{name: "Traefik 3.6, Consul Catalog", driver: "consul", set: both(18 * time.Second), period: 15 * time.Second, changes: few,
			rollouts: thrice, behind: onConsul(traefik())},
		{name: "Traefik 3.6, Consul Catalog, watch", driver: "consul", set: both(3 * time.Second), period: 2 * time.Second, changes: some,
			rollouts: often, behind: onConsul(traefik("-watch"))},
		{name: "Spring Cloud Consul", driver: "consul", options: map[string]string{"outOfRotation": "delete"},
			set: immediately, changes: many, rollouts: often, behind: onConsul(springOfConsul)},
		{name: "gRPC for Go", driver: "etcd", set: immediately, changes: many, rollouts: often, behind: onEtcd(grpcOfEtcd)},
		{name: "go-zero 1.10", driver: "etcd", options: map[string]string{"format": "go-zero"},
			set: immediately, changes: many, rollouts: often, behind: onEtcd(goZero)},
		{name: "Kitex 0.16", driver: "etcd", options: map[string]string{"format": "kitex"},
			set: afterFive, period: five, changes: some, rollouts: twice, behind: onEtcd(kitex)},
		{name: "CoreDNS 1.15, its cache with denial 9984 5", driver: "etcd",
			options: map[string]string{"format": "skydns", "target": "/skydns/local/skydns/{service}"},
			set:     afterFive, period: five, changes: some, rollouts: twice, behind: onEtcd(coreDNS)},
		{name: "Nacos' client for Go", driver: "nacos", set: immediately, changes: many, rollouts: often,
			behind: onNacos(nacosClient)},
		{name: "Spring Cloud Alibaba", driver: "nacos", set: immediately, changes: many, rollouts: often,
			behind: onNacos(springOfNacos)},
		{name: "Spring Cloud LoadBalancer", driver: "nacos", set: both(36 * time.Second), period: 35 * time.Second, changes: few, rollouts: 1,
			behind: onNacos(balancerOfNacos())},
		{name: "Spring Cloud LoadBalancer, cache.ttl=5s", driver: "nacos", set: afterFive, period: five, changes: some, rollouts: twice,
			behind: onNacos(balancerOfNacos("--spring.cloud.loadbalancer.cache.ttl=5s"))},
		{name: "Dubbo 3.3, by interface", driver: "nacos", entry: asDubbo, set: afterFive, period: five, changes: some, rollouts: twice,
			behind: onNacos(dubboConsumer)},
		{name: "Curator's ServiceProvider", driver: "zookeeper", set: immediately, changes: many, rollouts: often,
			behind: onZooKeeper(curator)},
		{name: "Spring Cloud Netflix", driver: "eureka", set: both(time.Minute), period: 30 * time.Second, changes: few, rollouts: 1,
			behind: onEureka(springOfEureka)},
	}
}
