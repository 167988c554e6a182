package zookeeper

import (
	"errors"
	"fmt"
	"strings"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// Options is what the driver knows besides the fields that all drivers have.
type Options struct {
	// Base is the folder of the services below the chroot: Curator's basePath, Spring's
	// spring.cloud.zookeeper.discovery.root. Default: /services.
	Base string `json:"base"`
	// Payload chooses where metadata and ownership tag are stored: none (next to Curator's own fields), map (the payload is a map of
	// strings) or spring (as Spring Cloud Zookeeper has it). Default: none.
	Payload string `json:"payload"`
	// OutOfRotation chooses how an entry is taken out of rotation: delete, enabled (it stays with "enabled":false) or status (it stays
	// with the status OUT_OF_SERVICE; needs payload spring). Default: delete.
	OutOfRotation string `json:"outOfRotation"`
	// ACL chooses who may write what Rollcall creates: creator (Rollcall's user in ZooKeeper; the world may read) or open (the world).
	// Default: creator with auth.username, else open.
	ACL string `json:"acl"`
}

// The values of the options.
const (
	payloadNone   = "none"
	payloadMap    = "map"
	payloadSpring = "spring"

	outDelete  = "delete"
	outEnabled = "enabled"
	outStatus  = "status"

	aclCreator = "creator"
	aclOpen    = "open"
)

const (
	defaultBase = "/services"
	defaultPort = "2181"
	slash       = "/"
)

// readOptions returns the options of the configuration with their defaults.
func readOptions(cfg registry.Config) (Options, error) {
	opts := Options{Base: defaultBase, Payload: payloadNone, OutOfRotation: outDelete, ACL: aclOpen}
	if cfg.Auth.Username != "" {
		opts.ACL = aclCreator
	}
	return opts, errors.Join(driverkit.DecodeOptions(cfg, &opts), opts.check())
}

func (o Options) check() error {
	problems := []error{
		driverkit.OneOf("options.payload", o.Payload, payloadNone, payloadMap, payloadSpring),
		driverkit.OneOf("options.outOfRotation", o.OutOfRotation, outDelete, outEnabled, outStatus),
		driverkit.OneOf("options.acl", o.ACL, aclCreator, aclOpen),
		registry.FieldError("options.base", checkPath(o.Base)),
	}
	if o.OutOfRotation == outStatus && o.Payload != payloadSpring {
		problems = append(problems,
			registry.FieldError("options.outOfRotation", errors.New("status is in Spring's payload: set payload to spring")))
	}
	return errors.Join(problems...)
}

// checkPath takes "/" and "/a/b".
func checkPath(path string) error {
	rest, absolute := strings.CutPrefix(path, slash)
	if !absolute {
		return fmt.Errorf("is %q; use a path that begins with /", path)
	}
	if rest == "" {
		return nil
	}
	for segment := range strings.SplitSeq(rest, slash) {
		if err := checkSegment(segment); err != nil {
			return fmt.Errorf("is %q, which is not a path in ZooKeeper: %w", path, err)
		}
	}
	return nil
}

// parseEndpoint reads an endpoint as ZooKeeper's own clients do: host:port,host:port/chroot. The chroot is "" if there
// is none.
func parseEndpoint(cfg registry.Config) (servers []string, chroot string, err error) {
	if strings.Contains(cfg.Endpoint, "://") {
		return nil, "", registry.FieldError("endpoint", errors.New("is a URL; use host:port,host:port/chroot"))
	}
	hosts, rest, rooted := strings.Cut(cfg.Endpoint, slash)
	if rooted {
		chroot = slash + rest
		if strings.Contains(rest, ",") {
			return nil, "", registry.FieldError("endpoint",
				errors.New("has a chroot before its end; use host:port,host:port/chroot"))
		}
		if err := checkPath(chroot); err != nil {
			return nil, "", registry.FieldError("endpoint", fmt.Errorf("has a chroot that %w", err))
		}
	}
	cfg.Endpoint = hosts
	addresses, err := driverkit.Addresses(cfg)
	if err != nil {
		return nil, "", err
	}
	for i, a := range addresses {
		if !strings.Contains(a, ":") || strings.HasSuffix(a, "]") {
			addresses[i] = a + ":" + defaultPort
		}
	}
	cfg.Endpoint = strings.Join(addresses, ",")
	servers, err = driverkit.HostPorts(cfg)
	return servers, strings.TrimSuffix(chroot, slash), err
}
