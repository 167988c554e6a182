package nacos

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/registries/java"
	"github.com/rollcall-dev/rollcall/test/harness/registries/java/spring"
)

// Applications of Spring that do not know Rollcall. They log in nowhere: the server must have no password.
const springJars = "nacos/spring"

// StartSpringApps starts a program of Spring applications that register themselves by Spring Cloud Alibaba.
func (s *Server) StartSpringApps(ctx context.Context) (*spring.Apps, error) {
	jars, err := java.Get(ctx, os.Stderr, springJars)
	if err != nil {
		return nil, err
	}
	return spring.StartApps(ctx, jars, func(at registry.Instance) []string {
		return []string{
			"--spring.cloud.nacos.discovery.ip=" + at.Address, "--spring.cloud.nacos.discovery.port=" + strconv.Itoa(at.Port),
		}
	}, s.discovery())
}

// StartSpringReader starts a Spring application that looks services up by Spring Cloud Alibaba.
func (s *Server) StartSpringReader(ctx context.Context, properties ...string) (*spring.Reader, error) {
	jars, err := java.Get(ctx, os.Stderr, springJars)
	if err != nil {
		return nil, err
	}
	return spring.StartReader(ctx, jars, append(properties, s.discovery())...)
}

func (s *Server) discovery() string {
	return fmt.Sprintf("--spring.cloud.nacos.discovery.server-addr=127.0.0.1:%d", s.Port)
}

// DubboURL is how applications of Dubbo are told of the server, which must have no password.
func (s *Server) DubboURL() string { return fmt.Sprintf("nacos://127.0.0.1:%d", s.Port) }
