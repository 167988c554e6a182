package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/java/dubbo"
	"github.com/rollcall-dev/rollcall/test/harness/registries/read"
	"github.com/rollcall-dev/rollcall/test/harness/registries/zookeeper"
)

const (
	// dubboPort is Dubbo's default.
	dubboPort = 20880
	// dubboTimeout is Dubbo.java's for a call.
	dubboTimeout = 5 * time.Second
	// jvmsReady is how many pods start together.
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

// dubbo has providers and consumers of Dubbo in a registry.
func (f *field) dubbo(ctx context.Context, registryURL string) error {
	ctx, cancel := context.WithCancel(ctx)
	f.stops = append(f.stops, cancel)
	providers, err := dubbo.StartProviders(ctx, registryURL, jvmsReady)
	if err != nil {
		return err
	}
	f.clients = "by Dubbo, each interface and each application, and consumers of Dubbo call them by both"
	f.ends = "is killed when its container stops, as happens if a shell keeps SIGTERM from it, and its entries go with its connection"
	f.port, f.machine, f.timeout = dubboPort, dubboMachine, 2*dubboTimeout
	f.start = func(_ context.Context, at registry.Instance) (func(context.Context) error, error) {
		provider, err := providers.Register(at)
		if err != nil {
			return nil, err
		}
		return func(context.Context) error { provider.Stop(); return nil }, nil
	}
	f.via = map[string]string{}
	f.client = func(ctx context.Context, service string) (read.Reader, error) {
		consumer, err := dubbo.StartConsumer(ctx, registryURL, service)
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

// zookeeperDubbo has Rollcall ask the providers themselves to leave and to join: ZooKeeper's entries are their sessions'.
func (f *field) zookeeperDubbo(ctx context.Context, server *zookeeper.Server) error {
	f.section = fmt.Sprintf("driver: pod, endpoint: \"http://{podIP}:%d\"", dubbo.QOS)
	f.options = `, readerLag: 6s, options: {leave: {path: /offline}, join: {path: /online}, state: {path: /ls}, ` +
		`in: {body: '\(Y\)'}, out: {body: '\(N\)'}}`
	f.has = answersQOS
	f.drain = 15 * time.Second // as docs/drivers/pod.md has it
	return f.dubbo(ctx, "zookeeper://"+server.Endpoint)
}

// answersQOS tells whether the provider still offers its interface, in rotation or not: it takes its entries away itself.
func answersQOS(ctx context.Context, at registry.Instance) (bool, error) {
	body, err := registries.NewClient("http://"+net.JoinHostPort(at.Address, strconv.Itoa(dubbo.QOS))).Do(ctx, http.MethodGet, "/ls", nil)
	return strings.Contains(string(body), "org.example.Shop"), err
}
