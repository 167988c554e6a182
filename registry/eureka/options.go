package eureka

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// Options are the driver's own part of the configuration. The names are Eureka's, and its numbers are whole seconds.
type Options struct {
	// RenewalIntervalInSecs is how often each entry's lease is renewed. The server's self-preservation expects a renewal every
	// 30 seconds. Default: 30.
	RenewalIntervalInSecs int `json:"renewalIntervalInSecs"`
	// DurationInSecs is how long an entry lives without a renewal, at least 20 and twice renewalIntervalInSecs. After the first
	// renewal the server waits twice as long. Default: 90.
	DurationInSecs int `json:"durationInSecs"`
	// ListStalenessInSecs is how old the server's answer to GET /apps may be: the server's response-cache-update-interval-ms
	// (not with use-read-only-response-cache false) plus its response-cache-auto-expiration-in-seconds. Default: 210.
	ListStalenessInSecs int `json:"listStalenessInSecs"`
	// StatusPageURL is an instance's status page, with {host} and {port} for its own; empty for none.
	// Default: http://{host}:{port}/actuator/info.
	StatusPageURL string `json:"statusPageUrl"`
	// HealthCheckURL is an instance's health check, which Spring Boot Admin needs, with the same placeholders.
	// Default: http://{host}:{port}/actuator/health.
	HealthCheckURL string `json:"healthCheckUrl"`
}

// What Spring's own clients register of themselves by default.
const (
	homePage           = "http://{host}:{port}/"
	defaultStatusPage  = "http://{host}:{port}/actuator/info"
	defaultHealthCheck = "http://{host}:{port}/actuator/health"
)

const (
	defaultRenewal  = 30
	defaultDuration = 90
	// defaultStaleness is 30 seconds of the read-only cache and 180 of the one behind it, which keeps an answer that long
	// where a change came while it was being made (google/guava#1881).
	defaultStaleness = 210
	// maxSeconds fits into what the server computes with: milliseconds in 32 bits.
	maxSeconds = 86400
)

func decodeOptions(cfg registry.Config) (Options, error) {
	opts := Options{
		RenewalIntervalInSecs: defaultRenewal, DurationInSecs: defaultDuration, ListStalenessInSecs: defaultStaleness,
		StatusPageURL: defaultStatusPage, HealthCheckURL: defaultHealthCheck,
	}
	decoded := driverkit.DecodeOptions(cfg, &opts)
	return opts, errors.Join(decoded, opts.checkSeconds(cfg), opts.checkURLs())
}

func (o Options) checkSeconds(cfg registry.Config) error {
	var problems []error
	for _, f := range []struct {
		field        string
		value, least int
	}{
		{"options.renewalIntervalInSecs", o.RenewalIntervalInSecs, 1},
		{"options.durationInSecs", o.DurationInSecs, 1},
		{"options.listStalenessInSecs", o.ListStalenessInSecs, 0},
	} {
		if f.value < f.least || f.value > maxSeconds {
			problems = append(problems, registry.FieldError(f.field,
				fmt.Errorf("is %d; set whole seconds from %d to %d", f.value, f.least, maxSeconds)))
		}
	}
	if len(problems) > 0 {
		return errors.Join(problems...)
	}
	if least := cfg.LeastLease(seconds(o.RenewalIntervalInSecs)); seconds(o.DurationInSecs) < least {
		return registry.FieldError("options.durationInSecs", fmt.Errorf("is %d; set %.0f or more, twice "+
			"options.renewalIntervalInSecs and %.0f: otherwise entries expire before the next leader renews them",
			o.DurationInSecs, least.Seconds(), cfg.LeastLease(0).Seconds()))
	}
	return nil
}

func (o Options) checkURLs() error {
	var problems []error
	for _, f := range []struct{ field, template, example string }{
		{"options.statusPageUrl", o.StatusPageURL, defaultStatusPage},
		{"options.healthCheckUrl", o.HealthCheckURL, defaultHealthCheck},
	} {
		filled := filledIn(f.template, "host", 1)
		u, err := url.Parse(filled)
		switch {
		case f.template == "":
		case strings.ContainsAny(filled, "{}"):
			problems = append(problems, registry.FieldError(f.field,
				fmt.Errorf("is %q; only {host} and {port} can be in braces: %s", f.template, f.example)))
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
			problems = append(problems, registry.FieldError(f.field,
				fmt.Errorf("is %q; use an http or https URL such as %s, or \"\" for none", f.template, f.example)))
		}
	}
	return errors.Join(problems...)
}

// url makes an instance's URL of a template. One that leads to the instance's own port is https if that is.
func urlOf(template, host string, in registry.Instance) string {
	if rest, plain := strings.CutPrefix(template, "http://{host}:{port}"); plain && isSecure(in) {
		template = "https://{host}:{port}" + rest
	}
	return filledIn(template, host, in.Port)
}

// filledIn puts an instance's host, with brackets if it is IPv6, and port into the template of a URL.
func filledIn(template, host string, port int) string {
	return strings.NewReplacer("{host}", host, "{port}", strconv.Itoa(port)).Replace(template)
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }
