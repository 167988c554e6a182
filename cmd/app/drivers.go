package app

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/history"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/registry"
)

// drivers makes registries and knows those in force.
type drivers struct {
	constructors map[string]registry.Constructor
	metrics      *metrics.RegistryMetrics
	logger       logr.Logger
	// version chooses the pages that messages refer to.
	version string
	traces  *traces
	history history.Log
	// fence is this manager's lease.
	fence registryclient.Fence
	// dryRun is nil but in a dry run.
	dryRun  *dryRun
	current atomic.Pointer[registries]
	// refused are the last failures to open the configuration in force (true) and another one.
	refused map[bool]refusal
}

// refusal is a failure to open a configuration, with all that it rests on.
type refusal struct {
	config *config.Config
	files  fingerprint
	before *registries
	at     time.Time
	err    error
}

// refusedFor is how long a failure is remembered although nothing has changed: a driver may read more than it is to.
const refusedFor = time.Minute

func (r refusal) holds(now refusal) bool {
	return r.err != nil && now.at.Sub(r.at) < refusedFor &&
		r.files == now.files && r.before == now.before && reflect.DeepEqual(r.config, now.config)
}

// checkConfig refuses the configuration that a manager with these flags refuses at its start, and prints what is in force of any other.
func (o *options) checkConfig(ctx context.Context, f *flags) error {
	var refused error
	limits := o.limits(ctx, f)
	limits.Refused = func(err error) { refused = err } // what the drivers refuse is listed too
	limits.ClusterUID = nil                            // a file is checked without a cluster
	c, err := config.Load(f.config, limits)
	if err != nil {
		return err
	}
	if _, _, err := f.features(c); err != nil {
		return err
	}
	d := &drivers{constructors: o.constructors, metrics: metrics.NewRegistryMetrics(prometheus.NewRegistry()), version: o.version}
	d.logger, d.history = o.log(f)
	opened, err := d.open(ctx, c)
	if err = errors.Join(refused, besides(refused, err), opened.closeBut(nil)); err != nil {
		return fmt.Errorf("%s: %w", f.config, err)
	}
	text, err := c.Effective()
	if err != nil {
		return fmt.Errorf("printing the configuration: %w", err)
	}
	_, err = fmt.Fprintf(o.output, "# %s: no problem found. This is in force, with all defaults:\n%s", f.config, text)
	return err
}

// besides leaves out what is wrong with fields that are refused already: a driver was given their default.
func besides(refused, found error) error {
	fields := map[string]bool{}
	for _, one := range config.Joined(refused) {
		if of, is := errors.AsType[*field.Error](one); is {
			fields[of.Field] = true
		}
	}
	return errors.Join(slices.DeleteFunc(config.Joined(found), func(one error) bool {
		of, is := errors.AsType[*field.Error](one)
		return is && fields[of.Field]
	})...)
}

// registries are those of one configuration, by name.
type registries struct {
	config *config.Config
	byName map[string]*opened
	// sections are those since the start, the last one of each name.
	sections map[string]config.Registry
	// rotated are those that were opened again because their files changed, sorted.
	rotated []string
}

// opened is a registry that was made from one section of the configuration.
type opened struct {
	// section's MaxInFlight may be out of date: the client has what is in force.
	section config.Registry
	client  *registryclient.Client
	// files is of the files that the section names, as they were when it was opened.
	files fingerprint
}

// open returns the registries of a configuration. One that is in force stays if only maxInFlight of its
// section changed. If its section or its files changed, it is opened again: it is the same registry, see fixed, and what is known of
// it stays. If only files changed and that fails, it stays. open puts nothing in force. With an error, the others are opened all the same,
// unless the same was refused before and nothing has changed since: a reload tries every two seconds.
func (d *drivers) open(ctx context.Context, c *config.Config) (*registries, error) {
	now := refusal{config: c, before: d.inForce(), at: time.Now()}
	for _, name := range c.RegistryNames() {
		files := fingerprintOf(c.Registries[name].Config)
		now.files = sha256.Sum256(append(now.files[:], files[:]...))
	}
	isInForce := c == now.before.config
	if last := d.refused[isInForce]; last.holds(now) {
		return &registries{config: c}, last.err
	}
	next, err := d.openAll(ctx, c)
	if now.err = err; ctx.Err() != nil {
		now.err = nil // which may be why
	}
	if d.refused == nil {
		d.refused = map[bool]refusal{}
	}
	d.refused[isInForce] = now
	return next, err
}

func (d *drivers) openAll(ctx context.Context, c *config.Config) (*registries, error) {
	before := d.inForce()
	next := &registries{config: c, byName: map[string]*opened{}, sections: map[string]config.Registry{}}
	maps.Copy(next.sections, before.sections)
	maps.Copy(next.sections, c.Registries)
	problems := d.fixed(before.sections, c)
	for _, name := range c.RegistryNames() {
		kept := before.get(name)
		if kept != nil && !kept.section.SameDriver(c.Registries[name]) {
			kept = nil
		}
		files := fingerprintOf(c.Registries[name].Config)
		if kept != nil {
			next.byName[name] = kept
			if kept.files == files {
				continue
			}
		}
		made, err := d.openOne(ctx, c, name)
		if err != nil {
			problems = append(problems, c.RegistryErrors(name, err)...)
			continue
		}
		made.files, next.byName[name] = files, made
		if kept != nil {
			made.client.Succeeds(kept.client)
			next.rotated = append(next.rotated, name)
		}
	}
	return next, errors.Join(append(problems, next.contradictions(d.version)...)...)
}

// contradictions are between what a registry can do and what the configuration asks of it.
func (r *registries) contradictions(version string) []error {
	var problems []error
	for _, name := range r.config.RegistryNames() {
		if o := r.byName[name]; o != nil {
			problems = append(problems, r.wrongWriter(name, o, version), r.weightless(name, o), r.unconditioned(name, o))
		}
	}
	return problems
}

// wrongWriter refuses a registry in which applications are to register themselves and Rollcall could not take them out, or the reverse.
func (r *registries) wrongWriter(name string, o *opened, version string) error {
	path, byApp := r.config.RegistryPath(name).Child("registeredBy"), r.config.Registries[name].RegisteredByApp
	switch {
	case byApp && o.client.AppEntries() == nil:
		return field.Invalid(path, "App", fmt.Sprintf(
			"driver %s can't take an entry out of rotation that an application wrote: remove this field, and turn off the "+
				"application's own registration: %s", o.section.Driver, reason.Docs(version, "docs/self-registration.md")))
	case !byApp && o.client.CallsPods():
		return field.Invalid(path, "Rollcall", fmt.Sprintf("driver %s writes no entries of its own: set registeredBy: App", o.section.Driver))
	}
	return nil
}

// weightless refuses warm-up of all pods if Rollcall registers pods in a registry without weights.
func (r *registries) weightless(name string, o *opened) error {
	if r.config.Service.WarmUp == 0 || r.config.Registries[name].RegisteredByApp || o.client.Weighs() {
		return nil
	}
	return field.Invalid(field.NewPath("warmUp"), r.config.Service.WarmUp.String(), fmt.Sprintf(
		"%s has no weights (driver %s, or its format): remove warmUp, and set annotation %s on the workloads whose pods are only in "+
			"registries with weights", r.config.RegistryPath(name), o.section.Driver, service.AnnotationWarmUp))
}

// unconditioned refuses a registry that follows a condition which is not written.
func (r *registries) unconditioned(name string, o *opened) error {
	if !o.client.Follows() || r.config.Features.PodCondition {
		return nil
	}
	return field.Required(field.NewPath("podCondition"), fmt.Sprintf(
		"set podCondition: true: driver %s of %s takes pods out by their condition %s", o.section.Driver, r.config.RegistryPath(name),
		lifecycle.ConditionInRotation))
}

// fixed refuses to give a name another registry than since the start, and a registry another name: what this process knows of entries
// goes by the name. The next one lists the registry first, and so finds out what it has.
func (d *drivers) fixed(since map[string]config.Registry, c *config.Config) []error {
	var problems []error
	refuse := func(name, format string, args ...any) {
		problems = append(problems, field.Invalid(c.RegistryPath(name), field.OmitValueType{}, fmt.Sprintf(format, args...)))
	}
	for _, name := range c.RegistryNames() {
		section := c.Registries[name]
		was, had := since[name]
		if had && !was.SameDriver(section) && !was.SameServer(section) {
			refuse(name, "%s, so it counts as another registry, which requires a restart: undo the change, or restart the manager %s",
				difference(was, section), afterRestart(section, d.version))
		}
		for _, former := range slices.Sorted(maps.Keys(since)) {
			if _, stays := c.Registries[former]; !had && !stays && section.SameServer(since[former]) {
				refuse(name, "until now this was registries[%s], and another name requires a restart: restart the manager, or keep the name", former)
			}
		}
	}
	return problems
}

// afterRestart is what a restart does with a registry that was replaced. What applications write stays where it is.
func afterRestart(section config.Registry, version string) string {
	if section.RegisteredByApp {
		return "to steer the applications' entries there; those in the old registry stay as they are, and no pod has to move"
	}
	return "to register every pod there; entries in the old registry stay until you remove them. To lose no request, add the new " +
		"registry under another name and move the pods: " + reason.Docs(version, "docs/several-registries.md")
}

// difference is why two sections of one name are not about the same registry. It leaves out the endpoint: the driver, which refuses a
// password in it, has not seen it yet.
func difference(was, now config.Registry) string {
	switch {
	case was.Driver != now.Driver:
		return fmt.Sprintf("driver was %s and is %s", was.Driver, now.Driver)
	case !bytes.Equal(was.Options, now.Options):
		return "options changed"
	case now.Endpoint == "":
		return "the section changed and has no endpoint"
	default:
		return "endpoint has none of the addresses that it had"
	}
}

// fingerprint identifies the content of a registry's files without revealing it.
type fingerprint [sha256.Size]byte

// fingerprintOf is of every file that a driver reads. What keeps one from being read counts as its content.
func fingerprintOf(c registry.Config) fingerprint {
	var all []byte
	for _, path := range []string{c.TLS.CAFile, c.TLS.CertFile, c.TLS.KeyFile, c.Auth.TokenFile, c.Auth.PasswordFile} {
		content, err := os.ReadFile(path)
		digest := sha256.Sum256(fmt.Appendf(content, "%T %v", err, err))
		all = append(all, digest[:]...)
	}
	return sha256.Sum256(all)
}

func (d *drivers) openOne(ctx context.Context, c *config.Config, name string) (*opened, error) {
	section := c.Registries[name]
	construct := d.constructors[section.Driver]
	if construct == nil {
		return nil, registry.FieldError("driver", fmt.Errorf("this manager has no driver %q", section.Driver))
	}
	cfg := section.Config
	cfg.Logger = slog.New(logr.ToSlogHandler(d.logger.WithName("registry").WithValues("registry", name, "driver", section.Driver)))
	if d.traces != nil {
		cfg.Outgoing = d.traces.outgoing
	}
	made, err := construct(ctx, cfg)
	if err == nil && made == nil {
		err = errors.New("the driver returned no registry")
	}
	if err != nil {
		return nil, err
	}
	o := &opened{section: section, client: registryclient.New(made, registryclient.Options{
		Name: name, Driver: section.Driver, Timeout: section.Timeout, MaxInFlight: section.MaxInFlight,
		Fence: d.fence, DryRun: d.dryRun.change(name), Metrics: d.metrics, Logger: d.logger, History: d.history,
		Trace: d.traces.calls(name, cfg.Endpoint),
	})}
	return o, nil
}

// inForce returns none at the start.
func (d *drivers) inForce() *registries { return cmp.Or(d.current.Load(), &registries{}) }

// replace puts next in force, closes what is no longer, and shows nothing of it any more.
func (d *drivers) replace(next *registries) error {
	for name, o := range next.byName {
		o.client.SetMaxInFlight(next.config.Registries[name].MaxInFlight)
	}
	before := d.inForce()
	d.current.Store(next)
	err := before.closeBut(next) // and waits for the calls under way, which are counted when they end
	for name, o := range before.byName {
		if next.get(name) == nil { // one that was opened again keeps its metrics
			d.metrics.Forget(name, o.section.Driver)
		}
	}
	return err
}

// get returns nil if there is none of that name.
func (r *registries) get(name string) *opened {
	if r == nil {
		return nil
	}
	return r.byName[name]
}

// closeBut closes all that are not among the others too.
func (r *registries) closeBut(others *registries) error {
	var problems []error
	for name, o := range r.byName {
		if others.get(name) == o {
			continue
		}
		if err := o.client.Close(); err != nil {
			problems = append(problems, fmt.Errorf("closing registry %s: %w", name, err))
		}
	}
	return errors.Join(problems...)
}

func (r *registries) drivers() map[string]string {
	names := map[string]string{}
	for name, o := range r.byName {
		names[name] = o.section.Driver
	}
	return names
}

// slots returns what bounds the calls to each registry in force.
func (d *drivers) slots() map[string]metrics.Slots {
	slots := map[string]metrics.Slots{}
	for name, o := range d.inForce().byName {
		slots[name] = o.client.Status()
	}
	return slots
}
