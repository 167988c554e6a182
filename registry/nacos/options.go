package nacos

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// Options are the driver's own part of the configuration.
type Options struct { //nolint:recvcheck // a value, but for places, which are filled in
	// Namespace is the ID, not the name, of the Nacos namespace, with {namespace}, {label:KEY} and {nsLabel:KEY} if pods differ.
	// Default: public.
	Namespace string `json:"namespace"`
	// Group is the group of the services, with the same placeholders. Default: DEFAULT_GROUP.
	Group string `json:"group"`
	// Cluster is the Nacos cluster of the instances, within each service. Default: DEFAULT.
	Cluster string `json:"cluster"`
	// Ephemeral registers instances that need heartbeats; a service is all ephemeral or all persistent. Default: false.
	Ephemeral bool `json:"ephemeral"`
	// HeartbeatInterval is how often an ephemeral instance is renewed, such as 10s, 45s at most. Default: 5s.
	HeartbeatInterval driverkit.Duration `json:"heartbeatInterval"`
	// HealthChecker is who probes persistent instances: server (Nacos' servers, as they do by default) or none (Rollcall turns that
	// off for a service whose first instance is Rollcall's). Default: none.
	HealthChecker string `json:"healthChecker"`
	// APIVersion is the version of Nacos' HTTP API: v1, v2 or v3. Default: what the server speaks, v3 or else v1.
	APIVersion string `json:"apiVersion"`
	// Login is what auth holds: password (a user of Nacos and its password), accessKey (an access key and its secret key, with which
	// each request is signed, as for Alibaba Cloud MSE) or sts (temporary credentials of Alibaba Cloud). Default: password.
	Login string `json:"login"`
	// SignatureRegionID is the region of Alibaba Cloud for signatures of version 4, such as cn-hangzhou. Default: signatures of version 1.
	SignatureRegionID string `json:"signatureRegionId"`
	// IPv6Brackets writes IPv6 addresses in brackets, such as [fd00::7], as applications with Spring Cloud Alibaba do: their clients make
	// URLs of them. Default: false.
	IPv6Brackets bool `json:"ipv6Brackets"`

	// respite is how long Nacos waits for a renewal after those that were missed.
	respite time.Duration
}

// written is the instance of a pod with its address as it is in Nacos.
func (o Options) written(in registry.Instance) registry.Instance {
	if o.IPv6Brackets {
		in.Address = driverkit.InURL(in.Address)
	}
	return in
}

const (
	checkerNone   = "none"
	checkerServer = "server"

	loginPassword  = "password"
	loginAccessKey = "accessKey"
	loginSTS       = "sts"

	// unset is the heartbeatInterval of options without one.
	unset driverkit.Duration = -1
	// defaultInterval is Nacos' own.
	defaultInterval  = 5 * time.Second
	shortestInterval = time.Second
	// longestInterval lets [missed] of them, and the respite, end before Nacos drops a client that sent nothing for 3 minutes, whatever lease
	// its instances ask for (nacos.naming.client.expired.time, in ClientConstants of nacos-naming).
	longestInterval = 45 * time.Second

	// Nacos holds an instance unhealthy that was not renewed for missed intervals and respite: for every interval that is
	// above registry.Config.LeastLease. Its own default, 15 s, ends before another leader works. The respite is this much longer than
	// Rollcall takes to change its leader, 30 s by default.
	missed = 3
	spare  = 10 * time.Second
)

// leastTimeout is room for the pauses of any call, 4 s at most, and for its requests. The longest are those of the removal of an
// entry that was in rotation next to the application's own.
const leastTimeout = 4500 * time.Millisecond

// checkTimeout refuses one within which some calls can't succeed however often they are made. 0 is none.
func checkTimeout(timeout time.Duration) error {
	if timeout <= 0 || timeout >= leastTimeout {
		return nil
	}
	return registry.FieldError("timeout", fmt.Errorf("is %s; set %s or more: Nacos shows readers a change half a second late, and "+
		"calls wait for that", timeout, leastTimeout))
}

func decodeOptions(cfg registry.Config) (Options, error) {
	opts := Options{
		respite: cfg.LeastLease(0) + spare, Namespace: "public", Group: "DEFAULT_GROUP", Cluster: "DEFAULT", HeartbeatInterval: unset,
	}
	decoded := driverkit.DecodeOptions(cfg, &opts)
	return opts, errors.Join(decoded, opts.checkPlaces(), opts.checkValues(), opts.checkKind())
}

// checkPlaces refuses names with their placeholders filled in.
func (o Options) checkPlaces() error {
	if _, err := o.places().Template(); err != nil {
		return err
	}
	o.places().Example()
	return o.checkNames()
}

// places are the options that can set an entry's place by its pod.
func (o *Options) places() driverkit.Places {
	return driverkit.Places{{Field: "options.namespace", Value: &o.Namespace}, {Field: "options.group", Value: &o.Group}}
}

func (o Options) checkNames() error {
	var problems []error
	// What Nacos takes (ParamCheckRule in nacos-common).
	for _, f := range []struct {
		field, value, more string
		longest            int
	}{
		{"options.namespace", o.Namespace, "-_", 64},
		{"options.group", o.Group, "-_:.", 128},
		{"options.cluster", o.Cluster, "-_", 64},
	} {
		if f.value == "" {
			problems = append(problems, registry.FieldError(f.field, errors.New("is empty; remove it for the default")))
		}
		problems = append(problems, driverkit.CheckName(f.field, f.value, f.more, f.longest))
	}
	return errors.Join(problems...)
}

func (o Options) checkValues() error {
	problems := []error{
		driverkit.OneOf("options.apiVersion", o.APIVersion, "", version1, version2, version3),
		driverkit.OneOf("options.login", o.Login, "", loginPassword, loginAccessKey, loginSTS),
		driverkit.OneOf("options.healthChecker", o.HealthChecker, "", checkerNone, checkerServer),
	}
	if d := time.Duration(o.HeartbeatInterval); o.HeartbeatInterval != unset && (d < shortestInterval || d > longestInterval) {
		problems = append(problems, registry.FieldError("options.heartbeatInterval",
			fmt.Errorf("must be a time such as 10s, from %s to %s", shortestInterval, longestInterval)))
	}
	return errors.Join(problems...)
}

// checkKind returns an error for what is of no use with instances or a login of this kind.
func (o Options) checkKind() error {
	var problems []error
	if o.Ephemeral && o.HealthChecker != "" {
		problems = append(problems, registry.FieldError("options.healthChecker",
			errors.New("has no effect with ephemeral instances, which Nacos does not probe; remove it")))
	}
	if !o.Ephemeral && o.HeartbeatInterval != unset {
		problems = append(problems, registry.FieldError("options.heartbeatInterval",
			errors.New("has no effect with persistent instances, which need none; remove it, or set options.ephemeral")))
	}
	if o.SignatureRegionID != "" && o.Login != loginAccessKey && o.Login != loginSTS {
		problems = append(problems, registry.FieldError("options.signatureRegionId",
			errors.New("has no effect unless options.login is accessKey or sts; remove it")))
	}
	return errors.Join(problems...)
}

// interval is how often an entry is renewed, 0 for never.
func (o Options) interval() time.Duration {
	switch {
	case !o.Ephemeral:
		return 0
	case o.HeartbeatInterval > 0:
		return time.Duration(o.HeartbeatInterval)
	}
	return defaultInterval
}

// The metadata with which an instance sets how long its lease is, in milliseconds (PreservedMetadataKeys in nacos-api).
const (
	metaInterval  = "preserved.heart.beat.interval"
	metaUnhealthy = "preserved.heart.beat.timeout"
	metaRemoved   = "preserved.ip.delete.timeout"
)

func leaseKeys() []string { return []string{metaInterval, metaUnhealthy, metaRemoved} }

// lease is the metadata of an entry's lease; nothing for one that has none. It beats what Nacos does by default.
func (o Options) lease() map[string]string {
	d := o.interval()
	if d == 0 {
		return nil
	}
	unhealthy := missed*d + o.respite
	millis := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	return map[string]string{metaInterval: millis(d), metaUnhealthy: millis(unhealthy), metaRemoved: millis(2 * unhealthy)}
}
