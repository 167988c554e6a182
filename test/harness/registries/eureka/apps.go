package eureka

import (
	"context"
	"os"
	"strconv"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/registries/java"
	"github.com/rollcall-dev/rollcall/test/harness/registries/java/spring"
)

// StartApps starts a program of Spring applications that register themselves at the server by Spring Cloud's Eureka client.
func StartApps(ctx context.Context, server *Server) (*spring.Apps, error) {
	jars, err := Get(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	return spring.StartApps(ctx, jars, func(at registry.Instance) []string {
		return []string{
			"--eureka.instance.prefer-ip-address=true", "--eureka.instance.ip-address=" + at.Address,
			"--eureka.instance.non-secure-port=" + strconv.Itoa(at.Port), "--eureka.instance.instance-id=" + at.Service + ":" + at.Endpoint(),
		}
	}, client(jars, server, "--eureka.client.register-with-eureka=true")...)
}

// StartReader starts a Spring application that has the server for its discovery and asks it after so many seconds.
func StartReader(ctx context.Context, server *Server, fetches int) (*spring.Reader, error) {
	jars, err := Get(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	return spring.StartReader(ctx, jars,
		client(jars, server, "--eureka.client.fetch-registry=true", "--eureka.client.registry-fetch-interval-seconds="+strconv.Itoa(fetches))...)
}

func client(jars *java.Jars, server *Server, properties ...string) []string {
	return append(properties, configuration(jars), "--eureka.client.service-url.defaultZone="+server.Endpoint+"/")
}
