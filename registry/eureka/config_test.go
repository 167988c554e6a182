package eureka_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
	"github.com/rollcall-dev/rollcall/registry/eureka"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
)

func TestNew(t *testing.T) {
	t.Parallel()
	d := drivertest.Driver{
		New: eureka.New, Good: "https://eureka.example.com:8761/eureka", Auth: []driverkit.AuthKind{driverkit.Password},
	}
	d.Run(t, map[string]drivertest.Case{
		"option of a type":    d.Options("Eureka's are whole seconds", `{"durationInSecs":"90s"}`, "options.durationInSecs", "of type int"),
		"no renewal":          d.Options("every entry would end", `{"renewalIntervalInSecs":0}`, "options.renewalIntervalInSecs", "from 1 to"),
		"below zero":          d.Options("time does not run back", `{"durationInSecs":-1}`, "options.durationInSecs", "from 1 to"),
		"ends too early":      d.Options("until another leader works it takes up to 17 s", `{"renewalIntervalInSecs":5,"durationInSecs":29}`, "options.durationInSecs", "set 30 or more"),
		"health of no URL":    d.Options("Spring Boot Admin takes URLs only", `{"healthCheckUrl":"/actuator/health"}`, "options.healthCheckUrl", "http://{host}:{port}/"),
		"health of no host":   d.Options("it leads nowhere", `{"healthCheckUrl":"http://:{port}/"}`, "options.healthCheckUrl", "http://{host}:{port}/"),
		"status of a name":    d.Options("it is not filled in", `{"statusPageUrl":"http://{pod}:{port}/"}`, "options.statusPageUrl", "{host} and {port}"),
		"page of no scheme":   d.Options("browsers take other things", `{"statusPageUrl":"ftp://{host}/"}`, "options.statusPageUrl", "http://{host}:{port}/"),
		"a lease of a month":  d.Options("the server computes in 32 bits", `{"durationInSecs":2592000}`, "options.durationInSecs", "to 86400"),
		"ends before renewal": d.Options("every entry would end", `{"renewalIntervalInSecs":90}`, "options.durationInSecs", "set 200 or more"),
		"list from tomorrow":  d.Options("a list can't be younger than new", `{"listStalenessInSecs":-1}`, "options.listStalenessInSecs", "from 0 to"),
	})
}

func TestNewNeedsNoServer(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		cfg                 registry.Config
		interval, staleness time.Duration
	}{
		"default": {registry.Config{Endpoint: "http://eureka.invalid/eureka/"}, 30 * time.Second, 210 * time.Second},
		"peers": {
			registry.Config{
				Endpoint: " https://a.invalid/eureka/v2, https://[fd00::1]:8761/eureka ", Timeout: time.Second,
				Options: json.RawMessage(`{"renewalIntervalInSecs":5,"durationInSecs":30,"listStalenessInSecs":0,"statusPageUrl":"","healthCheckUrl":"https://{host}/h"}`),
			}, 5 * time.Second, 0,
		},
	} {
		d := open(t, tc.cfg)
		if i, s := d.Traits().HeartbeatInterval, d.Traits().Staleness; i != tc.interval || s != tc.staleness {
			t.Errorf("%s: got an interval of %s and a staleness of %s; want %s, %s", name, i, s, tc.interval, tc.staleness)
		}
	}
}
