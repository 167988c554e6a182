package nacos

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rollcall-dev/rollcall/registry"
)

// Options are the driver's own part of the configuration.
type Options struct {
	// Namespace is the ID of the Nacos namespace, which is not its name. Default: public.
	Namespace string `json:"namespace"`
	// Group is the group of all services. Default: DEFAULT_GROUP.
	Group string `json:"group"`
	// Cluster is the Nacos cluster, within each service, that the instances stand in. Default: DEFAULT.
	Cluster string `json:"cluster"`
	// Weight is that of an instance for which none is given, above 0 and at most 10000. Default: 1.
	Weight float64 `json:"weight"`
	// Ephemeral registers instances that live by heartbeats; a service is all ephemeral or all persistent. Default: false.
	Ephemeral bool `json:"ephemeral"`
	// HealthChecker is none or server: whether Nacos' servers are told not to probe the instances of a service whose first
	// one is Rollcall's, or left to do with it what they do by default. It is not for ephemeral instances. Default: none.
	HealthChecker string `json:"healthChecker"`
	// APIVersion is that of the HTTP API: v1, v2 or v3. Default: what the server speaks, v3 or else v1.
	APIVersion string `json:"apiVersion"`
}

const (
	checkerNone   = "none"
	checkerServer = "server"

	// maxWeight is Nacos' own bound.
	maxWeight = 10000
)

func decodeOptions(cfg registry.Config) (Options, error) {
	opts := Options{Namespace: "public", Group: "DEFAULT_GROUP", Cluster: "DEFAULT", Weight: 1}
	if err := cfg.DecodeOptions(&opts); err != nil {
		return Options{}, err
	}
	// What Nacos takes as names (ParamCheckRule in nacos-common).
	for _, f := range []struct {
		field, value, more string
		longest            int
	}{
		{"options.namespace", opts.Namespace, "-_", 64},
		{"options.group", opts.Group, "-_:.", 128},
		{"options.cluster", opts.Cluster, "-_", 64},
	} {
		if err := checkName(f.value, f.more, f.longest); err != nil {
			return Options{}, registry.FieldError(f.field, err)
		}
	}
	if !(opts.Weight > 0 && opts.Weight <= maxWeight) {
		return Options{}, registry.FieldError("options.weight", fmt.Errorf("must be above 0 and at most %d", maxWeight))
	}
	if err := oneOf(opts.APIVersion, "", version1, version2, version3); err != nil {
		return Options{}, registry.FieldError("options.apiVersion", err)
	}
	if opts.Ephemeral && opts.HealthChecker != "" {
		return Options{}, registry.FieldError("options.healthChecker",
			errors.New("is of no use with ephemeral instances, which Nacos does not probe; remove it"))
	}
	if err := oneOf(opts.HealthChecker, "", checkerNone, checkerServer); err != nil {
		return Options{}, registry.FieldError("options.healthChecker", err)
	}
	return opts, nil
}

func checkName(name, more string, longest int) error {
	allowed := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune(more, c)
	}
	switch {
	case name == "":
		return errors.New("is empty; remove it for the default")
	case len(name) > longest:
		return fmt.Errorf("has %d characters; Nacos allows %d", len(name), longest)
	case strings.ContainsFunc(name, func(c rune) bool { return !allowed(c) }):
		return fmt.Errorf("may have letters, digits and %s only", more)
	}
	return nil
}

// oneOf leaves the first, which is for nothing given, out of the error.
func oneOf(value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return errors.New("must be one of " + strings.Join(allowed[1:], ", "))
}
