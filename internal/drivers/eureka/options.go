package eureka

import (
	"errors"
	"fmt"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

// Options are the driver's own part of the configuration. The names are Eureka's, and its numbers are whole seconds.
type Options struct {
	// RenewalIntervalInSecs is how often each entry's lease is renewed. It is told to the server, too, which counts on a
	// renewal every 30 seconds for its self-preservation. Default: 30.
	RenewalIntervalInSecs int `json:"renewalIntervalInSecs"`
	// DurationInSecs is how long an entry lives that is not renewed; the server takes twice that after the first renewal.
	// Default: 90.
	DurationInSecs int `json:"durationInSecs"`
	// ListStalenessInSecs is how old the server's answer to GET /apps may be: the server's response-cache-update-interval-ms
	// (not with use-read-only-response-cache false) plus its response-cache-auto-expiration-in-seconds. Default: 210.
	ListStalenessInSecs int `json:"listStalenessInSecs"`
}

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
	}
	if err := cfg.DecodeOptions(&opts); err != nil {
		return Options{}, err
	}
	for _, f := range []struct {
		field        string
		value, least int
	}{
		{"options.renewalIntervalInSecs", opts.RenewalIntervalInSecs, 1},
		{"options.durationInSecs", opts.DurationInSecs, 1},
		{"options.listStalenessInSecs", opts.ListStalenessInSecs, 0},
	} {
		if f.value < f.least || f.value > maxSeconds {
			return Options{}, registry.FieldError(f.field,
				fmt.Errorf("is %d; write whole seconds from %d to %d", f.value, f.least, maxSeconds))
		}
	}
	if opts.DurationInSecs <= opts.RenewalIntervalInSecs {
		return Options{}, registry.FieldError("options.durationInSecs", errors.New(
			"is not longer than options.renewalIntervalInSecs: entries would end before they are renewed"))
	}
	return opts, nil
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }
