// Package dubbo runs providers and consumers of Dubbo that do not know Rollcall, in a registry whose client Dubbo has.
package dubbo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/java"
)

// Folder has what is pinned.
const Folder = "java/dubbo"

// QOS is the port at which a provider takes commands, at its own address and from anybody.
const QOS = 22222

// Interface is the service that an application of Dubbo registers for its interface.
func Interface(application string) string {
	return "providers:org.example.Shop:1.0.0:" + application
}

// Providers has JVMs ready to become a provider of Dubbo each. In a pod that is ready, the application has got as far.
type Providers struct{ spare chan *java.Reader }

// StartProviders keeps as many JVMs ready until ctx ends. The registry is a URL such as zookeeper://127.0.0.1:2181, without a password.
func StartProviders(ctx context.Context, registryURL string, ready int) (*Providers, error) {
	jars, err := java.Get(ctx, os.Stderr, Folder)
	if err != nil {
		return nil, err
	}
	p := &Providers{make(chan *java.Reader, ready)}
	go func() {
		defer close(p.spare)
		for ctx.Err() == nil {
			jvm, err := start(ctx, jars, registryURL, "provider")
			if err != nil {
				return
			}
			select {
			case p.spare <- jvm:
			case <-ctx.Done():
				jvm.Stop()
			}
		}
	}()
	return p, nil
}

// Register has a provider register itself: as an application of the service's name, and under [Interface]. Its Stop kills it, as a
// container is killed in which a shell keeps SIGTERM from Dubbo. Dubbo refuses loopback addresses.
func (p *Providers) Register(at registry.Instance) (*java.Reader, error) {
	jvm, ok := <-p.spare
	if !ok {
		return nil, errors.New("no JVM can be started")
	}
	var done bool
	if err := jvm.Ask(fmt.Sprintf("%s %s %d %s %d", at.Service, at.Address, at.Port, at.Pod, QOS), &done); err != nil {
		jvm.Stop()
		return nil, fmt.Errorf("starting a provider of Dubbo: %w", err)
	}
	return jvm, nil
}

// Consumer calls the providers of an application of Dubbo, by its interface's entries and by its own in turn.
type Consumer struct {
	*java.Reader
	// URL takes a POST for each call, and answers with the pod that answered.
	URL string
}

// StartConsumer starts a consumer. Stop ends it.
func StartConsumer(ctx context.Context, registryURL, application string) (*Consumer, error) {
	jars, err := java.Get(ctx, os.Stderr, Folder)
	if err != nil {
		return nil, err
	}
	jvm, err := start(ctx, jars, registryURL, "consumer", application)
	if err != nil {
		return nil, err
	}
	var port int
	if err := jvm.Ask("", &port); err != nil {
		jvm.Stop()
		return nil, fmt.Errorf("starting a consumer of Dubbo: %w", err)
	}
	return &Consumer{jvm, fmt.Sprintf("http://127.0.0.1:%d/", port)}, nil
}

// Known returns the addresses of the providers that the consumer calls by both kinds of entries.
func (c *Consumer) Known(ctx context.Context) ([]netip.AddrPort, error) { return c.get(ctx, "") }

// KnownByInterface returns the addresses of the providers that the consumer calls by the interface's entries.
func (c *Consumer) KnownByInterface(ctx context.Context) ([]netip.AddrPort, error) {
	return c.get(ctx, "interface")
}

func (c *Consumer) get(ctx context.Context, path string) (known []netip.AddrPort, err error) {
	body, err := registries.NewClient(c.URL).Do(ctx, http.MethodGet, path, nil)
	if err == nil {
		err = json.Unmarshal(body, &known)
	}
	return known, err
}

func start(ctx context.Context, jars *java.Jars, registryURL string, args ...string) (*java.Reader, error) {
	args = append([]string{filepath.Join(jars.Dir, "Dubbo.java"), registryURL}, args...)
	jvm, args := jars.Command([]string{"-Xmx128m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"}, args)
	return java.StartReader(ctx, jvm, args)
}
