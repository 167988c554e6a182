package consul

import (
	"context"
	"net/url"
	"os"

	"github.com/rollcall-dev/rollcall/test/harness/registries/java"
	"github.com/rollcall-dev/rollcall/test/harness/registries/java/spring"
)

// StartSpringReader starts a Spring application that looks services up by Spring Cloud Consul, with its defaults. The server must have
// neither TLS nor access control.
func (s *Server) StartSpringReader(ctx context.Context) (*spring.Reader, error) {
	jars, err := java.Get(ctx, os.Stderr, "consul/spring")
	if err != nil {
		return nil, err
	}
	at, err := url.Parse(s.URL)
	if err != nil {
		return nil, err
	}
	return spring.StartReader(ctx, jars, "--spring.cloud.consul.host="+at.Hostname(), "--spring.cloud.consul.port="+at.Port())
}
