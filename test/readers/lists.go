package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/consul"
	"github.com/rollcall-dev/rollcall/test/harness/registries/etcd"
	"github.com/rollcall-dev/rollcall/test/harness/registries/eureka"
	"github.com/rollcall-dev/rollcall/test/harness/registries/java/dubbo"
	"github.com/rollcall-dev/rollcall/test/harness/registries/java/spring"
	"github.com/rollcall-dev/rollcall/test/harness/registries/nacos"
	"github.com/rollcall-dev/rollcall/test/harness/registries/zookeeper"
)

// build builds a program of the module of readers, which is there until the context ends, and returns its path.
func build(ctx context.Context, name string) (string, error) {
	into, err := os.MkdirTemp("", "rollcall-readers-")
	if err != nil {
		return "", fmt.Errorf("making a folder: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = os.RemoveAll(into) })
	return registries.BuildReader(ctx, into, name)
}

// follows runs a program that prints the endpoints that it has, as JSON, whenever they have changed.
func follows(ctx context.Context, name string, args ...string) (given, error) {
	program, err := build(ctx, "./"+name)
	if err != nil {
		return nil, err
	}
	client, err := registries.Follow[[]string](exec.CommandContext(ctx, program, args...))
	if err != nil {
		return nil, err
	}
	return func(context.Context) ([]string, error) { return client.Latest() }, nil
}

func grpcOfEtcd(ctx context.Context, s *etcd.Server, _ []*pod) (given, error) {
	return follows(ctx, "grpc", "-endpoint", s.URL(), "-target", "services/"+service)
}

func goZero(ctx context.Context, s *etcd.Server, _ []*pod) (given, error) {
	return follows(ctx, "gozero", "-endpoint", s.URL(), "-key", service)
}

func kitex(ctx context.Context, s *etcd.Server, _ []*pod) (given, error) {
	return follows(ctx, "kitex", "-endpoint", s.URL(), "-service", service)
}

// traefik is Traefik's provider alone: what Traefik routes to.
func traefik(more ...string) func(context.Context, *consul.Server, []*pod) (given, error) {
	return func(ctx context.Context, s *consul.Server, _ []*pod) (given, error) {
		return follows(ctx, "traefik", append(more, "-endpoint", strings.TrimPrefix(s.URL, "http://"), "-service", service)...)
	}
}

func nacosClient(ctx context.Context, s *nacos.Server, _ []*pod) (given, error) {
	client, err := s.Subscribe(ctx, service)
	if err != nil {
		return nil, err
	}
	return func(context.Context) (endpoints []string, err error) {
		all, err := client.Latest()
		for _, one := range all {
			if one.Healthy && one.Enabled && one.Weight > 0 {
				endpoints = append(endpoints, net.JoinHostPort(one.IP, strconv.Itoa(one.Port)))
			}
		}
		return endpoints, err
	}, nil
}

// coreDNS asks CoreDNS for each request, and CoreDNS its cache. By default that keeps for 30 s that a pod's name does not exist.
func coreDNS(ctx context.Context, s *etcd.Server, _ []*pod) (given, error) {
	dns, err := s.StartCoreDNS(ctx, "cache {\n  denial 9984 5\n }")
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, dns.Stop)
	return asks(dns.Address, service+".skydns.local"), nil
}

func consulDNS(_ context.Context, s *consul.Server, _ []*pod) (given, error) {
	return asks(s.DNS, service+".service.consul"), nil
}

// asks resolves the name's SRV records, without a cache.
func asks(dns, name string) given {
	resolver := registries.Resolver(dns)
	return func(ctx context.Context) (all []string, err error) {
		_, records, err := resolver.LookupSRV(ctx, "", "", name)
		for _, r := range records {
			hosts, gone := resolver.LookupHost(ctx, r.Target)
			if gone != nil {
				continue // since
			}
			for _, host := range hosts {
				all = append(all, net.JoinHostPort(host, strconv.Itoa(int(r.Port))))
			}
		}
		return all, err
	}
}

func springOfConsul(ctx context.Context, s *consul.Server, _ []*pod) (given, error) {
	reader, err := s.StartSpringReader(ctx)
	return finds(ctx, reader, err, (*spring.Reader).Instances)
}

func springOfNacos(ctx context.Context, s *nacos.Server, _ []*pod) (given, error) {
	reader, err := s.StartSpringReader(ctx)
	return finds(ctx, reader, err, (*spring.Reader).Instances)
}

// balancerOfNacos is what Spring Cloud LoadBalancer chooses from.
func balancerOfNacos(properties ...string) func(context.Context, *nacos.Server, []*pod) (given, error) {
	return func(ctx context.Context, s *nacos.Server, _ []*pod) (given, error) {
		reader, err := s.StartSpringReader(ctx, properties...)
		return finds(ctx, reader, err, (*spring.Reader).Balanced)
	}
}

func springOfEureka(ctx context.Context, s *eureka.Server, _ []*pod) (given, error) {
	const fetches = 30 // Eureka's default
	reader, err := eureka.StartReader(ctx, s, fetches)
	return finds(ctx, reader, err, (*spring.Reader).Instances)
}

// finds is what a Spring application gets, by its DiscoveryClient or its load balancer.
func finds(
	ctx context.Context, reader *spring.Reader, err error, by func(*spring.Reader, string) ([]spring.Instance, error),
) (given, error) {
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, reader.Stop)
	return func(context.Context) (all []string, err error) {
		instances, err := by(reader, service)
		for _, one := range instances {
			all = append(all, strings.TrimPrefix(one.URI, "http://"))
		}
		return all, err
	}, nil
}

// asDubbo is an entry as a provider of Dubbo registers for its interface.
func asDubbo(in registry.Instance) registry.Instance {
	in.Service = dubbo.Interface(service)
	in.Metadata = map[string]string{
		"protocol": "dubbo", "path": "org.example.Shop", "interface": "org.example.Shop", "version": "1.0.0", "group": service,
		"side": "provider", "category": "providers", "methods": "pod", "application": service,
	}
	return in
}

// dubboConsumer is what a consumer calls by the interface's entries.
func dubboConsumer(ctx context.Context, s *nacos.Server, _ []*pod) (given, error) {
	consumer, err := dubbo.StartConsumer(ctx, s.DubboURL(), service)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, consumer.Stop)
	return func(ctx context.Context) (all []string, err error) {
		known, err := consumer.KnownByInterface(ctx)
		for _, one := range known {
			all = append(all, one.String())
		}
		return all, err
	}, nil
}

// curator is what Curator's ServiceProvider chooses from.
func curator(ctx context.Context, s *zookeeper.Server, _ []*pod) (given, error) {
	reader, err := zookeeper.StartReader(ctx)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, reader.Stop)
	return func(context.Context) (all []string, err error) {
		instances, err := reader.ProvidedInstances(s.Endpoint, service)
		for _, one := range instances {
			all = append(all, net.JoinHostPort(one.Address, strconv.Itoa(one.Port)))
		}
		return all, err
	}, nil
}
