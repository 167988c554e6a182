// Package config reads Rollcall's configuration: one YAML file, decoded strictly, completed with defaults and checked
// as a whole. An error lists each field that is wrong and what to set instead.
package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/rollcall-dev/rollcall/internal/drain"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/registry"
)

// Defaults, for what the file leaves out.
const (
	DefaultTimeout     = 5 * time.Second
	DefaultMaxInFlight = 384

	// DefaultRegistry is the name of the registry that a configuration with a single one has under "registry".
	DefaultRegistry = "default"
)

// Config is a configuration that was checked. It is never changed: a reload makes another one.
type Config struct {
	Features

	// Cluster is the owner mark in the registry.
	Cluster string
	// Lease is the leader's.
	Lease Lease
	// Namespaces are those to watch.
	Namespaces service.Namespaces
	// Registries are those that a pod may be in, by name; there is at least one.
	Registries map[string]Registry
	// DefaultRegistries are the names of those for a pod that names none itself and whose namespace is in none of DefaultsFor: sorted,
	// unique, and all known. There is one at least in one of the two.
	DefaultRegistries []string
	// DefaultsFor are the namespaces, by registry, whose pods are in these.
	DefaultsFor map[string]service.Allowance
	// Hooks are the handlers and marks that Rollcall owns in addition to its own domain.
	Hooks lifecycle.Ownership
	// Service is as what a pod without annotations of its own is registered, and which service names pods may use.
	Service service.Rules
	// Drain is how long a pod stays up after it was taken out of rotation; [drain.Refused] where it was refused, see [Limits].
	Drain drain.Policy
	// UnreadyAfter is how long a pod in rotation may be not ready until it is taken out.
	UnreadyAfter time.Duration
	// PanicThreshold is a share in percent, from 0 to 100; 0 keeps every unready pod.
	PanicThreshold int
	Resync         Resync
	ProceedAfter   lifecycle.FailurePolicy

	// single is set if the file has registry, and not registries.
	single bool
	// file is what was read.
	file *object
}

// Effective is a file that makes this very configuration and leaves no default out, but for those of the drivers' options.
func (c *Config) Effective() ([]byte, error) { return c.file.effective() }

// Registry is what a driver's constructor takes, and what Rollcall itself needs to know to talk to a registry.
type Registry struct {
	registry.Config

	Driver string
	// MaxInFlight is the most calls that may be under way at the same time, renewals of leases not counted.
	MaxInFlight int
	// RegisteredByApp is set if the applications register themselves, unless a pod's annotation differs.
	RegisteredByApp bool
	// ReaderLag is how long clients may not know yet what the registry has acknowledged; nil for the driver's own value.
	ReaderLag *time.Duration
}

// Resync is how a registry is compared with the cluster.
type Resync struct {
	// Interval is how long after one comparison the next one begins; with zero it follows from the number of entries.
	Interval time.Duration
	// MaxRemovals is how many of this cluster's entries one comparison may remove: a number, or a percentage.
	MaxRemovals intstr.IntOrString
}

// Workers is how many pods are worked on together; a call holds its worker. The limit of a registry's maxInFlight follows from it, so
// that every registry finds workers although all others hang.
const Workers = 512

// Limits is what a configuration is checked against that it does not hold itself.
type Limits struct {
	// Drivers are the names that a registry's driver may have; nil allows all.
	Drivers []string
	// ClusterUID returns the UID of the namespace kube-system, if the cluster's name has it. Nil leaves the name as it is written.
	ClusterUID func() (string, error)
	// Unknown is called with the path of each field that is not read. Nil refuses such a field, and one below hooks is always
	// refused: it may say whose a pod is.
	Unknown func(path string)
	// Refused is called with what is wrong if the file can be read and nothing is wrong below hooks. The rest then counts as far as it can
	// be read: refused namespaces are all, and a refused drain is [drain.Refused]. Nil refuses such a configuration, as a manager must.
	Refused func(error)
}

// SameDriver reports whether both say the same of a registry but for what can change while its driver is in use.
func (r Registry) SameDriver(other Registry) bool {
	r.MaxInFlight, r.RegisteredByApp, r.ReaderLag = other.MaxInFlight, other.RegisteredByApp, other.ReaderLag
	return reflect.DeepEqual(r, other)
}

// MayWatch is [Config.Watches] for a namespace whose labels are not known.
func (c *Config) MayWatch(namespace string) bool {
	return c.Namespaces.Selector != nil || c.Namespaces.Has(namespace, nil)
}

// Watches reports whether the manager watches a namespace with these labels.
func (c *Config) Watches(namespace string, of labels.Set) bool {
	return c.Namespaces.Has(namespace, of)
}

// RegisteredByApp reports for each registry whether applications register themselves there, unless a pod's annotation differs.
func (c *Config) RegisteredByApp() map[string]bool {
	by := make(map[string]bool, len(c.Registries))
	for name, r := range c.Registries {
		by[name] = r.RegisteredByApp
	}
	return by
}

// RegistryNames returns the names of all registries, sorted.
func (c *Config) RegistryNames() []string {
	return slices.Sorted(maps.Keys(c.Registries))
}

// RegistryPath is the path of a registry's section in the file.
func (c *Config) RegistryPath(name string) *field.Path {
	if c.single {
		return field.NewPath("registry")
	}
	return field.NewPath("registries").Key(name)
}

// RegistryErrors are those that the registry's driver has joined in err, each once. Each has the path of the registry's section before the
// field that the driver reports.
func (c *Config) RegistryErrors(name string, err error) (problems []error) {
	for _, one := range Joined(err) {
		problem := c.registryError(name, one)
		if !slices.ContainsFunc(problems, func(other error) bool { return other.Error() == problem.Error() }) {
			problems = append(problems, problem)
		}
	}
	return problems
}

// Joined takes what [errors.Join] or [Parse] has joined apart. Other errors that wrap several have a text of their own.
func Joined(err error) (all []error) {
	if err == nil {
		return nil
	}
	var parts []error
	switch list := err.(type) { //nolint:errorlint // what is wrapped further down has a text around it
	case utilerrors.Aggregate:
		parts = list.Errors()
	case interface{ Unwrap() []error }:
		parts = list.Unwrap()
		if err.Error() != errors.Join(parts...).Error() {
			return []error{err}
		}
	default:
		return []error{err}
	}
	for _, one := range parts {
		all = append(all, Joined(one)...)
	}
	return all
}

func (c *Config) registryError(name string, err error) error {
	path, detail := c.RegistryPath(name), err.Error()
	if key, ok := registry.FieldOf(err); ok {
		path = path.Child(key)
		detail = strings.TrimPrefix(detail, key+": ")
	}
	return field.Invalid(path, field.OmitValueType{}, detail)
}

// Load reads and parses the file at path.
func Load(path string, limits Limits) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	c, err := Parse(data, limits)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// Parse decodes, completes and checks a configuration. The error lists every field that is wrong.
func Parse(data []byte, limits Limits) (*Config, error) {
	v, c := &validator{unknown: limits.Unknown}, &Config{}
	written, err := decode(data)
	if err != nil {
		v.malformed(data, err)
	} else {
		c.file = v.object(nil, written, func(o *object) { c.read(o, limits) })
	}
	if len(v.problems) == 0 {
		return c, nil
	}
	if other := v.otherForm(); len(other) > 0 {
		return nil, other.ToAggregate()
	}
	if err = v.problems.ToAggregate(); limits.Refused == nil || v.refuses(file().String()) || v.refuses("hooks") {
		return nil, err
	}
	if v.refuses("namespaces") {
		c.Namespaces = service.Namespaces{}
	}
	if v.refuses("drain") {
		c.Drain = drain.Refused()
	}
	limits.Refused(err)
	return c, nil
}

// otherForm is what is wrong with apiVersion and kind: the other fields are then not of a form that is known here.
func (v *validator) otherForm() field.ErrorList {
	return slices.DeleteFunc(slices.Clone(v.problems), func(e *field.Error) bool { return e.Field != "apiVersion" && e.Field != "kind" })
}

// CheckReload refuses a change of what holds for the life of the process.
func CheckReload(current, next *Config) error {
	var problems field.ErrorList
	if next.Cluster != current.Cluster {
		problems = append(problems, field.Invalid(field.NewPath("cluster"), next.Cluster, fmt.Sprintf(
			"can't change while the manager runs, because its entries carry it: set %q, or restart the manager", current.Cluster)))
	}
	if !next.Namespaces.Equal(current.Namespaces) {
		problems = append(problems, field.Invalid(field.NewPath("namespaces"), next.Namespaces.String(),
			"can't change while the manager runs: restart it"))
	}
	if next.Lease != current.Lease {
		problems = append(problems, field.Invalid(field.NewPath("leaseDuration"), next.Lease.Duration().String(),
			"can't change while the manager runs: restart it"))
	}
	for _, name := range current.differ(next.Features) {
		problems = append(problems, field.Invalid(field.NewPath(name), field.OmitValueType{}, "can't change while the manager runs: restart it"))
	}
	return problems.ToAggregate()
}
