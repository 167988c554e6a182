// Command traefik follows Consul's catalog with Traefik's own provider and its defaults, and takes its configurations as Traefik does: one,
// and then none for providersThrottleDuration.
package main

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/traefik/traefik/v3/pkg/config/dynamic"
	"github.com/traefik/traefik/v3/pkg/provider/consulcatalog"
	"github.com/traefik/traefik/v3/pkg/safe"

	"github.com/rollcall-dev/rollcall/test/harness/registries/readers/follow"
)

// throttle is the default of providersThrottleDuration.
const throttle = 2 * time.Second

func main() { follow.Main(run) }

func run(tell func([]string)) error {
	endpoint := flag.String("endpoint", "", "Consul's host and port")
	service := flag.String("service", "", "the service")
	watch := flag.Bool("watch", false, "sets the provider's option watch")
	flag.Parse()
	zerolog.SetGlobalLevel(zerolog.ErrorLevel)
	builder := consulcatalog.ProviderBuilder{}
	builder.SetDefaults()
	builder.Endpoint.Address, builder.Watch = *endpoint, *watch
	provider := builder.BuildProviders()[0]
	if err := provider.Init(); err != nil {
		return fmt.Errorf("starting the provider: %w", err)
	}
	given, latest := make(chan dynamic.Message), make(chan dynamic.Message, 1)
	go func() {
		for message := range given { // never waits, and keeps the last
			select {
			case <-latest:
			default:
			}
			latest <- message
		}
	}()
	go func() {
		for message := range latest {
			tell(serversOf(message.Configuration, *service))
			time.Sleep(throttle)
		}
	}()
	if err := provider.Provide(given, safe.NewPool(context.Background())); err != nil {
		return fmt.Errorf("following the catalog: %w", err)
	}
	return nil
}

func serversOf(c *dynamic.Configuration, service string) (all []string) {
	found := c.HTTP.Services[service]
	if found == nil || found.LoadBalancer == nil {
		return nil
	}
	for _, server := range found.LoadBalancer.Servers {
		all = append(all, strings.TrimPrefix(server.URL, "http://"))
	}
	return all
}
