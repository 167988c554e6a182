package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/registries/consul"
	"github.com/rollcall-dev/rollcall/test/harness/registries/eureka"
	"github.com/rollcall-dev/rollcall/test/harness/registries/java/spring"
	"github.com/rollcall-dev/rollcall/test/harness/registries/read"
)

// field is a registry with what there is around it where applications register themselves: their clients, none of which knows
// Rollcall.
type field struct {
	// section is the registry's in the manager's configuration; empty: that of its own driver.
	section string
	// options follow in the registry's section of the manager's configuration, each after a comma.
	options string
	// clients says in a few words by which client applications register themselves, and requests find them.
	clients string
	// reader looks a service up, and shows what is out of rotation too where the registry shows it.
	reader func(service string) read.Reader
	// client looks a service up by the registry's own client.
	client func(ctx context.Context, service string) (read.Reader, error)
	// via has the URLs of clients that choose the instance themselves, by service, once client has started them.
	via map[string]string
	// drain is how long a pod stays up once it is out; 0: as long as for most clients.
	drain time.Duration
	// ends says what becomes of an application when its pod's containers stop.
	ends string
	// timeout is how long a request may take; 0: as long as any.
	timeout time.Duration
	// port is where all applications serve; 0: where the pods do.
	port int
	// machine is the address of one that is no pod; empty: 127.0.0.1.
	machine string
	// services returns the pods' annotation rollcall.dev/services; nil: the application registers one, its namespace.
	services func(namespace string) string
	// start runs an application, and returns once it has registered itself. stop has it deregister itself.
	start func(ctx context.Context, at registry.Instance) (stop func(context.Context) error, err error)
	// has tells whether the registry has the application's entry, in rotation or not.
	has func(ctx context.Context, at registry.Instance) (bool, error)
	// stops end what runs for it, the last one first.
	stops []func()
}

func (f *field) stop() {
	for _, stop := range slices.Backward(f.stops) {
		stop()
	}
}

// listed tells whether a reader of the service has an entry at the instance's address and port.
func (f *field) listed(ctx context.Context, at registry.Instance) (bool, error) {
	entries, err := f.reader(at.Service)(ctx)
	return slices.ContainsFunc(entries, func(e registry.Entry) bool { return e.Endpoint() == at.Endpoint() }), err
}

// consulField registers by Consul's own command at its agent, and looks up at Consul's health endpoint.
func consulField(server *consul.Server) (*field, error) {
	agent, err := url.Parse(server.URL)
	if err != nil {
		return nil, fmt.Errorf("reading the address of Consul's agent: %w", err)
	}
	f := &field{
		options: fmt.Sprintf(", options: {agentEndpoint: \"http://{nodeIP}:%s\"}", agent.Port()),
		ends:    deregisters,
		clients: "by Consul's own command at its agent, and clients ask Consul's health endpoint",
		reader:  func(service string) read.Reader { return read.Consul(server.URL, service) },
		start: func(ctx context.Context, at registry.Instance) (func(context.Context) error, error) {
			id := "-id=" + at.Pod
			return func(ctx context.Context) error { return server.Run(ctx, "services", "deregister", id) },
				server.Run(ctx, "services", "register", id, "-name="+at.Service, "-address="+at.Address, "-port="+strconv.Itoa(at.Port))
		},
	}
	f.client = func(_ context.Context, service string) (read.Reader, error) { return f.reader(service), nil }
	f.has = f.listed
	return f, nil
}

// eurekaField registers and looks up by the Eureka client of Spring Cloud.
func eurekaField(ctx context.Context, server *eureka.Server) (*field, error) {
	apps, err := eureka.StartApps(ctx, server)
	if err != nil {
		return nil, err
	}
	f := &field{
		clients: "by Spring Cloud's Eureka client, and clients find them by the same",
		reader:  func(service string) read.Reader { return read.Eureka(server.Endpoint, service) },
	}
	f.spring(apps)
	f.has = f.listed
	f.client = f.springClient(func(ctx context.Context) (*spring.Reader, error) { return eureka.StartReader(ctx, server, 1) })
	return f, nil
}

// spring has applications of Spring Cloud.
func (f *field) spring(apps *spring.Apps) {
	f.stops = append(f.stops, apps.Stop)
	f.ends = deregisters
	f.start = func(_ context.Context, at registry.Instance) (func(context.Context) error, error) {
		return func(context.Context) error { return apps.Deregister(at) }, apps.Register(at)
	}
}

// springClient has clients that take what their DiscoveryClient gives.
func (f *field) springClient(
	start func(context.Context) (*spring.Reader, error),
) func(ctx context.Context, service string) (read.Reader, error) {
	return func(ctx context.Context, service string) (read.Reader, error) {
		client, err := start(ctx)
		if err != nil {
			return nil, err
		}
		f.stops = append(f.stops, client.Stop)
		return springReader(client, service), nil
	}
}

// springReader is what a Spring application gets for a service.
func springReader(client *spring.Reader, service string) read.Reader {
	return func(context.Context) ([]registry.Entry, error) {
		instances, err := client.Instances(service)
		if err != nil {
			return nil, err
		}
		entries := make([]registry.Entry, 0, len(instances))
		for _, in := range instances {
			at, err := url.Parse(in.URI)
			if err != nil {
				return nil, fmt.Errorf("reading the address of %s: %w", in.ID, err)
			}
			port, err := strconv.Atoi(at.Port())
			if err != nil {
				return nil, fmt.Errorf("reading the port of %s: %w", in.ID, err)
			}
			entries = append(entries, given(service, at.Hostname(), port))
		}
		return entries, nil
	}
}

// deregisters is what most applications do when they end.
const deregisters = "deregisters itself when it ends, as on SIGTERM"

// given is an entry that a client was given for its service.
func given(service, address string, port int) registry.Entry {
	return registry.Entry{State: registry.InService, Instance: registry.Instance{Service: service, Address: address, Port: port}}
}

// appFrom reads the variable APP: which application registers itself in the driver's registry.
func appFrom(driver, app string) (string, error) {
	// The first one is the default.
	able := map[string][]string{
		"consul": {"consul"}, "eureka": {"spring"}, "nacos": {"go", "spring", "dubbo"}, "zookeeper": {"dubbo", "spring"},
	}
	known, ok := able[driver]
	if !ok {
		return "", fmt.Errorf("REGISTRY is %q: set one of %s, for which an application's own entry can be taken out of rotation",
			driver, strings.Join(slices.Sorted(maps.Keys(able)), ", "))
	}
	if app = cmp.Or(app, known[0]); !slices.Contains(known, app) {
		return "", fmt.Errorf("APP is %q: set one of %s, or leave it out", app, strings.Join(known, ", "))
	}
	return app, nil
}
