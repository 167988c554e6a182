package etcd

import (
	"errors"
	"fmt"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// transactionLimit is etcd's own default for --max-txn-ops. A server that takes fewer refuses a batch, and takes each change by itself.
const transactionLimit = 128

// Options are those of this driver, below registry.options.
type Options struct {
	// Format is what clients read: grpc (etcd's own resolver for gRPC), go-zero, kratos, kitex or skydns
	// (CoreDNS). Default: grpc.
	Format string `json:"format"`
	// Target is what the keys of a service begin with. A gRPC client dials etcd:///{target}. {service} is replaced by the
	// service's name and must be a whole part between slashes. Default: that of the format's own clients, for grpc services/{service}.
	Target string `json:"target"`
	// Scheme is the protocol of the pods' ports with format kratos: grpc, grpcs, http or https. Default: grpc.
	Scheme string `json:"scheme"`
	// Lease is how long an entry stays when Rollcall no longer renews it, in whole seconds of at least 60s (four times leaseDuration), such as
	// 5m; 0s means forever. Default: 0s.
	Lease driverkit.Duration `json:"lease"`
}

func decodeOptions(cfg registry.Config) (Options, error) {
	o := Options{Format: formatGRPC, Scheme: "grpc"}
	decoded := driverkit.DecodeOptions(cfg, &o)
	problems := []error{
		decoded,
		driverkit.OneOf("options.format", o.Format, formatGRPC, formatGoZero, formatKratos, formatKitex, formatSkyDNS),
		driverkit.OneOf("options.scheme", o.Scheme, "grpc", "grpcs", "http", "https"),
	}
	lease := time.Duration(o.Lease)
	// The shortest that outlasts a change of leader: see registry.Config.LeastLease.
	minLease := cfg.LeastLease(0) * beatsPerLease / (beatsPerLease - 2)
	if lease != 0 && (lease < minLease || lease%time.Second != 0) {
		problems = append(problems, registry.FieldError("options.lease",
			fmt.Errorf("is %s; set whole seconds, at least %s, or 0s for no lease", lease, minLease)))
	}
	return o, errors.Join(problems...)
}
