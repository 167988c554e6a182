package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/registries/nacos"
	"github.com/rollcall-dev/rollcall/test/harness/registries/read"
)

const (
	// dubboPort is Dubbo's default.
	dubboPort = 20880
	// dubboTimeout is Dubbo.java's for a call.
	dubboTimeout = 5 * time.Second
	// jvmsReady is how many pods start at once.
	jvmsReady = 3
	// Dubbo refuses loopback addresses. hack/own-network.sh makes these ones of this machine.
	dubboPods, dubboMachine = "10.100.0.0/16", "10.100.255.254"
)

// podsOf is the range of the pods' addresses, empty for the default.
func podsOf(app string) string {
	if app == "dubbo" {
		return dubboPods
	}
	return ""
}

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
	f.stops = append(f.stops, apps.Stop)
	f.clients = "by Spring Cloud Alibaba's Nacos client, and clients find them by the same"
	f.start = func(_ context.Context, at registry.Instance) (func(context.Context) error, error) {
		return func(context.Context) error { return apps.Deregister(at) }, apps.Register(at)
	}
	f.client = func(ctx context.Context, service string) (read.Reader, error) {
		client, err := server.StartSpringReader(ctx)
		if err != nil {
			return nil, err
		}
		f.stops = append(f.stops, client.Stop)
		return springReader(client, service), nil
	}
	return nil
}

// nacosDubbo has providers and consumers of Dubbo. A provider registers its interface and its application, and each kind has
// consumers that go by it.
func (f *field) nacosDubbo(ctx context.Context, server *nacos.Server) error {
	ctx, cancel := context.WithCancel(ctx)
	f.stops = append(f.stops, cancel)
	providers, err := server.StartDubbo(ctx, jvmsReady)
	if err != nil {
		return err
	}
	f.clients = "by Dubbo, each interface and each application, and consumers of Dubbo call them by both"
	f.ends = "is killed when its container stops, as where a shell keeps SIGTERM from it, and its entries go with its connection"
	f.port, f.machine, f.timeout = dubboPort, dubboMachine, 2*dubboTimeout
	f.services = func(namespace string) string {
		return fmt.Sprintf("%s=%d,%s=%d", namespace, dubboPort, nacos.DubboInterface(namespace), dubboPort)
	}
	one, hasOne := f.reader, f.has
	f.reader = func(service string) read.Reader { return both(one(service), one(nacos.DubboInterface(service))) }
	f.has = func(ctx context.Context, at registry.Instance) (bool, error) {
		application, err := hasOne(ctx, at)
		at.Service = nacos.DubboInterface(at.Service)
		offered, otherErr := hasOne(ctx, at)
		return application && offered, errors.Join(err, otherErr)
	}
	f.start = func(_ context.Context, at registry.Instance) (func(context.Context) error, error) {
		provider, err := providers.Register(at)
		if err != nil {
			return nil, err
		}
		return func(context.Context) error { provider.Stop(); return nil }, nil
	}
	f.via = map[string]string{}
	f.client = func(ctx context.Context, service string) (read.Reader, error) {
		consumer, err := server.StartDubboConsumer(ctx, service)
		if err != nil {
			return nil, err
		}
		f.stops, f.via[service] = append(f.stops, consumer.Stop), consumer.URL
		return func(ctx context.Context) ([]registry.Entry, error) {
			known, err := consumer.Known(ctx)
			var entries []registry.Entry
			for _, at := range known {
				entries = append(entries, given(service, at.Addr().String(), int(at.Port())))
			}
			return entries, err
		}, nil
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
