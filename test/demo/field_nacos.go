package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/registries/java/dubbo"
	"github.com/rollcall-dev/rollcall/test/harness/registries/java/spring"
	"github.com/rollcall-dev/rollcall/test/harness/registries/nacos"
	"github.com/rollcall-dev/rollcall/test/harness/registries/read"
)

// nacosField is Nacos with applications that use a client of it.
func nacosField(ctx context.Context, server *nacos.Server, app string) (*field, error) {
	f := &field{
		ends:   deregisters,
		reader: func(service string) read.Reader { return read.Nacos(server.Endpoint+"/nacos", service) },
		has: func(ctx context.Context, at registry.Instance) (bool, error) {
			entry, _, err := server.Entry(ctx, at)
			return entry != nil, err
		},
	}
	switch app {
	case "spring":
		return f, f.nacosSpring(ctx, server)
	case "dubbo":
		return f, f.nacosDubbo(ctx, server)
	default:
		f.nacosGo(server)
	}
	return f, nil
}

// nacosGo registers and looks up by Nacos' own client for Go, over gRPC.
func (f *field) nacosGo(server *nacos.Server) {
	f.clients = "by Nacos' own client for Go, over gRPC, and clients subscribe by the same"
	f.start = func(ctx context.Context, at registry.Instance) (func(context.Context) error, error) {
		app, err := server.RegisterItself(ctx, at)
		if err != nil {
			return nil, err
		}
		return app.Leave, nil
	}
	f.client = func(ctx context.Context, service string) (read.Reader, error) {
		client, err := server.Subscribe(ctx, service)
		if err != nil {
			return nil, err
		}
		f.stops = append(f.stops, client.Stop)
		return func(context.Context) ([]registry.Entry, error) {
			seen, err := client.Latest()
			if err != nil {
				return nil, err
			}
			var entries []registry.Entry
			for _, in := range seen {
				if in.Enabled && in.Healthy {
					entries = append(entries, given(service, in.IP, in.Port))
				}
			}
			return entries, nil
		}, nil
	}
}

// nacosSpring registers and looks up by Spring Cloud Alibaba.
func (f *field) nacosSpring(ctx context.Context, server *nacos.Server) error {
	apps, err := server.StartSpringApps(ctx)
	if err != nil {
		return err
	}
	f.spring(apps)
	f.clients = "by Spring Cloud Alibaba's Nacos client, and clients find them by the same"
	f.client = f.springClient(func(ctx context.Context) (*spring.Reader, error) { return server.StartSpringReader(ctx) })
	return nil
}

// nacosDubbo has providers and consumers of Dubbo. A provider registers its interface and its application, and each kind has
// consumers that go by it.
func (f *field) nacosDubbo(ctx context.Context, server *nacos.Server) error {
	if err := f.dubbo(ctx, server.DubboURL()); err != nil {
		return err
	}
	f.services = func(namespace string) string {
		return fmt.Sprintf("%s=%d,%s=%d", namespace, dubboPort, dubbo.Interface(namespace), dubboPort)
	}
	one, hasOne := f.reader, f.has
	f.reader = func(service string) read.Reader { return both(one(service), one(dubbo.Interface(service))) }
	f.has = func(ctx context.Context, at registry.Instance) (bool, error) {
		application, err := hasOne(ctx, at)
		at.Service = dubbo.Interface(at.Service)
		offered, otherErr := hasOne(ctx, at)
		return application && offered, errors.Join(err, otherErr)
	}
	return nil
}

// both reads what has entries of two kinds: it is in service where it is so by both.
func both(one, other read.Reader) read.Reader {
	return func(ctx context.Context) ([]registry.Entry, error) {
		entries, err := one(ctx)
		others, otherErr := other(ctx)
		return merged(entries, others), errors.Join(err, otherErr)
	}
}

func merged(entries, others []registry.Entry) []registry.Entry {
	var all []registry.Entry
	for _, e := range slices.Concat(entries, others) {
		same := func(o registry.Entry) bool { return o.Endpoint() == e.Endpoint() && o.State == registry.InService }
		if !slices.ContainsFunc(entries, same) || !slices.ContainsFunc(others, same) {
			e.State = registry.OutOfService
		}
		if !slices.ContainsFunc(all, func(o registry.Entry) bool { return o.Endpoint() == e.Endpoint() }) {
			all = append(all, e)
		}
	}
	return all
}
