package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/registry"
)

// leastInFlight leaves one call to other services where one service has its half.
const leastInFlight = 2

// readRegistries completes and checks the registries and which of them are the default.
func (c *Config) readRegistries(o *object, limits Limits) {
	one, several := o.any("registry"), o.list("registries")
	c.Registries, c.single = map[string]Registry{}, o.fields["registries"] == nil
	if c.single {
		most := o.mostInFlight(1)
		o.object("registry", func(o *object) { c.Registries[DefaultRegistry] = o.registry(c, limits, most) })
		c.DefaultRegistries = []string{DefaultRegistry}
		return
	}
	if one != nil {
		o.forbidden("registries", "registry and registries exclude each other: move the content of registry to an entry of registries with "+
			"name: default, the name that it had, and remove registry")
	}
	if len(several) == 0 {
		o.required("registries", "add at least one registry, with its name")
	}
	most := o.mostInFlight(len(several))
	o.objects("registries", c.entryPath, func(_ int, o *object) {
		name := o.registryName("name", c.Registries)
		c.readDefault(o, name, len(several) == 1)
		c.Registries[name] = o.registry(c, limits, most)
	})
	slices.Sort(c.DefaultRegistries)
	c.differentServers(o.validator)
	if len(c.DefaultRegistries)+len(c.DefaultsFor) == 0 {
		o.required("registries",
			"set default: true in one or more of them, or the namespaces for which it is one: pods without the annotation "+
				"rollcall.dev/registries are in these")
	}
}

// readDefault reads for whom a registry is the default: all, no one, or the namespaces that an object chooses.
func (c *Config) readDefault(o *object, registry string, single bool) {
	if _, chooses := o.any("default").(map[string]any); chooses {
		if c.DefaultsFor == nil {
			c.DefaultsFor = map[string]service.Allowance{}
		}
		o.object("default", func(o *object) { c.DefaultsFor[registry] = o.namespacesChosen() })
		return
	}
	isDefault := get(o, "default", "true or false, or an object that chooses namespaces", false) || single
	if o.inForce["default"] = isDefault; isDefault {
		c.DefaultRegistries = append(c.DefaultRegistries, registry)
	}
}

// entryPath has the name of a registry in place of its index, if it has one that no entry before it has.
func (c *Config) entryPath(i int, written any) *field.Path {
	fields, _ := written.(map[string]any)
	name, _ := fields["name"].(string)
	if _, taken := c.Registries[name]; taken || len(validation.IsDNS1123Label(name)) > 0 {
		return field.NewPath("registries").Index(i)
	}
	return c.RegistryPath(name)
}

func (o *object) registryName(key string, taken map[string]Registry) string {
	name := o.text(key)
	switch _, twice := taken[name]; {
	case name == "":
		o.required(key, "set a name for this registry, such as main")
	case twice:
		o.add(field.Duplicate(o.at(key), name))
	case len(validation.IsDNS1123Label(name)) > 0:
		o.invalid(key, name, "use at most 63 lower-case letters, digits or - that begin and end with a letter or digit")
	}
	return name
}

// differentServers refuses two names for one server: what a pod registers under one of them it removes when it leaves the
// other.
func (c *Config) differentServers(v *validator) {
	names := c.RegistryNames()
	for i, name := range names {
		for _, first := range names[:i] {
			if c.Registries[name].SameServer(c.Registries[first]) {
				// Without the endpoint: the driver, which refuses a password in it, has not seen it yet.
				v.add(field.Invalid(c.RegistryPath(name).Child("endpoint"), field.OmitValueType{}, fmt.Sprintf(
					"registries[%s] is the same server, with the same driver and options: remove one of the two, and its name from the "+
						"pods' annotations; to rename a registry, set only the new name and restart the manager", first)))
			}
		}
	}
}

func (o *object) registry(of *Config, limits Limits, mostInFlight int) Registry {
	r := Registry{Driver: o.driver("driver", limits.Drivers)}
	r.Cluster, r.Takeover, r.Endpoint = of.Cluster, of.Lease.Takeover(), o.text("endpoint")
	o.object("tls", func(o *object) {
		r.TLS = registry.TLS{CAFile: o.text("caFile"), CertFile: o.text("certFile"), KeyFile: o.text("keyFile")}
	})
	o.object("auth", func(o *object) {
		r.Auth = registry.Auth{TokenFile: o.text("tokenFile"), Username: o.text("username"), PasswordFile: o.text("passwordFile")}
	})
	r.Timeout = o.duration("timeout", DefaultTimeout, time.Millisecond)
	if limit := of.Lease.TimeoutLimit(); r.Timeout >= limit {
		o.invalid("timeout", r.Timeout.String(), fmt.Sprintf("set less than %s: a call that timed out may reach the registry until "+
			"twice the timeout has passed, and that must be within the leader's lease; or set a longer leaseDuration", limit))
	}
	r.MaxInFlight = int(o.number("maxInFlight", int64(min(DefaultMaxInFlight, mostInFlight))))
	if r.MaxInFlight < leastInFlight {
		o.invalid("maxInFlight", r.MaxInFlight, fmt.Sprintf("set %d or more: one service gets at most half of them", leastInFlight))
	} else if r.MaxInFlight > mostInFlight {
		o.invalid("maxInFlight", r.MaxInFlight, fmt.Sprintf("set at most %d, which is %d divided by the number of other registries: slow "+
			"registries must leave workers for the others", mostInFlight, Workers*3/4))
	}
	r.RegisteredByApp = o.oneOf("registeredBy", "Rollcall", "App") == "App"
	if o.any("readerLag") != nil {
		r.ReaderLag = new(o.duration("readerLag", time.Minute, 0))
	}
	// Marshal sorts the keys, so that the same options are the same text.
	if options := o.mapping("options", "an object with the driver's options"); len(options) > 0 {
		r.Options, _ = json.Marshal(options)
	}
	return r
}

func (o *object) driver(name string, drivers []string) string {
	driver, known := o.text(name), slices.Sorted(slices.Values(drivers))
	switch {
	case driver == "" && len(known) == 0:
		o.required(name, "set the name of a driver, such as consul")
	case driver == "":
		o.required(name, "use one of "+strings.Join(known, ", "))
	case drivers != nil && !slices.Contains(known, driver):
		o.add(field.NotSupported(o.at(name), driver, known))
	}
	return driver
}

// mostInFlight is how many calls to one of so many registries may be under way. All registries but one together get at
// most three quarters of the workers, so that the one finds workers although all others hang.
func (o *object) mostInFlight(registries int) int {
	const share = Workers * 3 / 4
	others := max(registries-1, 1)
	if share < leastInFlight*others {
		o.add(field.Invalid(o.at("registries"), field.OmitValueType{}, fmt.Sprintf(
			"%d registries are too many, since registries that hang must leave workers for the others: set at most %d",
			registries, share/leastInFlight+1)))
	}
	return max(share/others, leastInFlight)
}

// SameServer reports whether both sections mean one place in one server, as far as they show: they have the same driver and
// options, and an address in common. Two DNS names for one address count as two. A registry that needs no address is in
// this process, and two of them are never the same.
func (r Registry) SameServer(other Registry) bool {
	theirs := other.addresses()
	return r.Driver == other.Driver && bytes.Equal(r.Options, other.Options) &&
		slices.ContainsFunc(r.addresses(), func(a string) bool { return slices.Contains(theirs, a) })
}

// addresses returns those of the endpoint, each in one form. A path behind the last of several stands for all where they
// are not URLs: that is ZooKeeper's chroot.
func (r Registry) addresses() []string {
	urls := strings.Contains(r.Endpoint, "://")
	hosts, path := r.Endpoint, ""
	if !urls {
		hosts, path, _ = strings.Cut(r.Endpoint, "/")
	}
	var addresses []string
	for a := range strings.SplitSeq(hosts, ",") {
		switch a = strings.TrimSpace(a); {
		case a == "":
		case urls:
			addresses = append(addresses, normalURL(a))
		default:
			addresses = append(addresses, strings.ToLower(a)+"/"+strings.TrimRight(path, "/"))
		}
	}
	return addresses
}

// normalURL has the scheme and the host in lower case, a port always, and no slash at the end.
func normalURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return text // the driver reports what is wrong
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port + strings.TrimRight(u.Path, "/")
}
