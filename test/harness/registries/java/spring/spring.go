// Package spring runs Spring applications that do not know Rollcall, with the discovery client that their jars hold. They are
// started from their source files.
package spring

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/cache"
	"github.com/rollcall-dev/rollcall/test/harness/registries/java"
)

// Apps is a program of Spring applications that register themselves by Spring Cloud's own client.
type Apps struct {
	*java.Reader

	of func(at registry.Instance) []string
}

// StartApps starts the program, with no application in it. All have the properties, and each those that of returns for its
// instance besides. Stop ends the program, and deregisters nothing.
func StartApps(ctx context.Context, jars *java.Jars, of func(registry.Instance) []string, properties ...string) (*Apps, error) {
	r, err := start(ctx, jars, "-Xmx256m", "App.java", properties)
	return &Apps{r, of}, err
}

// Register starts an application, which registers itself in the service, at the address and port.
func (a *Apps) Register(at registry.Instance) error {
	return a.do("start", append([]string{id(at), "--spring.application.name=" + at.Service}, a.of(at)...)...)
}

// Deregister ends the application as SIGTERM does: it deregisters itself.
func (a *Apps) Deregister(at registry.Instance) error { return a.do("stop", id(at)) }

func (a *Apps) do(verb string, words ...string) error {
	var done bool
	return a.Ask(verb+" "+strings.Join(words, " "), &done)
}

func id(at registry.Instance) string { return at.Service + ":" + at.Endpoint() }

// Reader is a Spring application that looks services up by Spring Cloud's own client.
type Reader struct{ *java.Reader }

// Instance is what the application gets: org.springframework.cloud.client.ServiceInstance.
type Instance struct {
	ID        string            `json:"id"`
	ServiceID string            `json:"serviceId"`
	URI       string            `json:"uri"`
	URIHost   string            `json:"uriHost"`
	Secure    bool              `json:"secure"`
	Metadata  map[string]string `json:"metadata"`
}

// StartReader starts the application. Stop ends it.
func StartReader(ctx context.Context, jars *java.Jars, properties ...string) (*Reader, error) {
	r, err := start(ctx, jars, "-Xmx128m", "Reader.java", properties)
	return &Reader{r}, err
}

// Instances returns what the application gets for a service at this moment.
func (r *Reader) Instances(service string) (instances []Instance, err error) {
	err = r.Ask(service, &instances)
	return instances, err
}

// Balanced returns what Spring Cloud LoadBalancer chooses from at this moment. Its cache has it, too.
func (r *Reader) Balanced(service string) (instances []Instance, err error) {
	err = r.Ask(service+" balanced", &instances)
	return instances, err
}

func start(ctx context.Context, jars *java.Jars, memory, source string, properties []string) (*java.Reader, error) {
	dir, err := cache.Dir(ctx, "test/harness/registries/java/spring")
	if err != nil {
		return nil, err
	}
	jvm, args := jars.Command([]string{memory}, append([]string{filepath.Join(dir, source)}, properties...))
	return java.StartReader(ctx, jvm, args)
}
