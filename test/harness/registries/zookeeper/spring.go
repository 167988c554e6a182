package zookeeper

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/registries/java"
	"github.com/rollcall-dev/rollcall/test/harness/registries/java/spring"
)

const (
	springJars = "zookeeper/spring"
	// ActuatorPort is where an application of Spring answers at /actuator/serviceregistry, at its own address.
	ActuatorPort = 9090
)

// StartSpringApps starts a program of Spring applications that register themselves by Spring Cloud ZooKeeper.
func (s *Server) StartSpringApps(ctx context.Context) (*spring.Apps, error) {
	jars, err := java.Get(ctx, os.Stderr, springJars)
	if err != nil {
		return nil, err
	}
	return spring.StartApps(ctx, jars, func(at registry.Instance) []string {
		return []string{
			"--server.address=" + at.Address, "--spring.cloud.zookeeper.discovery.instance-host=" + at.Address,
			"--spring.cloud.zookeeper.discovery.instance-port=" + strconv.Itoa(at.Port),
		}
	}, "--spring.cloud.zookeeper.connect-string="+s.Endpoint, "--spring.main.web-application-type=servlet",
		fmt.Sprintf("--server.port=%d", ActuatorPort), "--management.endpoints.web.exposure.include=serviceregistry")
}

// SpringInstances is what Spring Cloud's load balancer chooses from if it keeps no cache.
func (r *Reader) SpringInstances(connect, service string) (seen []Seen, err error) {
	err = r.ask([]string{"spring", connect, "/services", PayloadSpring, service}, &seen)
	return seen, err
}

// ProvidedInstances is what Curator's ServiceProvider chooses from, whatever the payload.
func (r *Reader) ProvidedInstances(connect, service string) (seen []Seen, err error) {
	err = r.ask([]string{"provider", connect, "/services", PayloadObject, service}, &seen)
	return seen, err
}
