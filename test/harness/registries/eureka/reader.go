package eureka

import (
	"context"
	"os"

	"github.com/rollcall-dev/rollcall/test/harness/registries/java"
)

// Reader is a Spring application that has the server for its discovery, asks it every second, and does not know Rollcall.
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
func StartReader(ctx context.Context, server *Server) (*Reader, error) {
	jars, err := Get(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	jvm, args := jars.Command([]string{"-Xmx128m"}, append(program(jars, "Reader.java"),
		"--eureka.client.fetch-registry=true", "--eureka.client.registry-fetch-interval-seconds=1",
		"--eureka.client.service-url.defaultZone="+server.Endpoint+"/"))
	r, err := java.StartReader(ctx, jvm, args)
	return &Reader{r}, err
}

// Instances returns what the application gets for a service at this moment.
func (r *Reader) Instances(service string) (instances []Instance, err error) {
	err = r.Ask(service, &instances)
	return instances, err
}
