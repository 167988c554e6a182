package eureka

import (
	"context"
	"fmt"
	"os"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/registries/java"
)

// Apps is a program of Spring applications that register themselves by Spring Cloud's own client, and do not know Rollcall.
type Apps struct{ *java.Reader }

// StartApps starts the program, with no application in it. Stop ends it, and deregisters nothing.
func StartApps(ctx context.Context, server *Server) (*Apps, error) {
	jars, err := Get(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	jvm, args := jars.Command([]string{"-Xmx256m"}, append(program(jars, "App.java"),
		"--eureka.client.register-with-eureka=true", "--eureka.client.service-url.defaultZone="+server.Endpoint+"/"))
	r, err := java.StartReader(ctx, jvm, args)
	return &Apps{r}, err
}

// Register starts an application, which registers itself in the service, at the address and port.
func (a *Apps) Register(at registry.Instance) error { return a.do("start", at) }

// Deregister ends the application as SIGTERM does: it deregisters itself.
func (a *Apps) Deregister(at registry.Instance) error { return a.do("stop", at) }

func (a *Apps) do(verb string, at registry.Instance) error {
	var done bool
	return a.Ask(fmt.Sprintf("%s %s %s %d", verb, at.Service, at.Address, at.Port), &done)
}
