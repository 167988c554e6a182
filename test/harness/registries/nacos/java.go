package nacos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/java"
	"github.com/rollcall-dev/rollcall/test/harness/registries/java/spring"
)

// Applications in Java that do not know Rollcall, each with its own jars. They log in nowhere: the server must have no password.
const springJars, dubboJars = "nacos/spring", "nacos/dubbo"

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
func (s *Server) StartSpringReader(ctx context.Context) (*spring.Reader, error) {
	jars, err := java.Get(ctx, os.Stderr, springJars)
	if err != nil {
		return nil, err
	}
	return spring.StartReader(ctx, jars, s.discovery())
}

func (s *Server) discovery() string {
	return fmt.Sprintf("--spring.cloud.nacos.discovery.server-addr=127.0.0.1:%d", s.Port)
}

// DubboInterface is the service that an application of Dubbo registers for its interface.
func DubboInterface(application string) string {
	return "providers:org.example.Shop:1.0.0:" + application
}

// Providers has JVMs ready to become a provider of Dubbo each. In a pod that is ready, the application has got as far.
type Providers struct{ spare chan *java.Reader }

// StartDubbo keeps as many JVMs ready until ctx ends.
func (s *Server) StartDubbo(ctx context.Context, ready int) (*Providers, error) {
	jars, err := java.Get(ctx, os.Stderr, dubboJars)
	if err != nil {
		return nil, err
	}
	p := &Providers{make(chan *java.Reader, ready)}
	go func() {
		defer close(p.spare)
		for ctx.Err() == nil {
			jvm, err := s.dubbo(ctx, jars, "provider")
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

// Register has a provider register itself: as an application of the service's name, and under [DubboInterface]. Its Stop kills
// it, as a container is killed in which a shell keeps SIGTERM from Dubbo. Dubbo refuses loopback addresses.
func (p *Providers) Register(at registry.Instance) (*java.Reader, error) {
	jvm, ok := <-p.spare
	if !ok {
		return nil, errors.New("no JVM can be started")
	}
	var done bool
	if err := jvm.Ask(fmt.Sprintf("%s %s %d %s", at.Service, at.Address, at.Port, at.Pod), &done); err != nil {
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

// StartDubboConsumer starts a consumer. Stop ends it.
func (s *Server) StartDubboConsumer(ctx context.Context, application string) (*Consumer, error) {
	jars, err := java.Get(ctx, os.Stderr, dubboJars)
	if err != nil {
		return nil, err
	}
	jvm, err := s.dubbo(ctx, jars, "consumer", application)
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
func (c *Consumer) Known(ctx context.Context) (known []netip.AddrPort, err error) {
	body, err := registries.NewClient(c.URL).Do(ctx, http.MethodGet, "", nil)
	if err == nil {
		err = json.Unmarshal(body, &known)
	}
	return known, err
}

func (s *Server) dubbo(ctx context.Context, jars *java.Jars, args ...string) (*java.Reader, error) {
	args = append([]string{filepath.Join(jars.Dir, "Dubbo.java"), fmt.Sprintf("nacos://127.0.0.1:%d", s.Port)}, args...)
	jvm, args := jars.Command([]string{"-Xmx128m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"}, args)
	return java.StartReader(ctx, jvm, args)
}
