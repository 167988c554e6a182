package driverkit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"

	"github.com/rollcall-dev/rollcall/registry"
)

// Places are the options of a driver that can choose an entry's place by its pod: the driver's values, with the option's field.
type Places []PlaceOption

// PlaceOption is one option of [Places].
type PlaceOption struct {
	Field string
	Value *string
}

// placeholder is one of a PlaceTemplate: see [registry.Traits].
var placeholder = regexp.MustCompile(`\{(namespace|(nsLabel|label):([a-z0-9A-Z.-]+/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)\}`)

// Template returns the values with placeholders, joined by slashes: the PlaceTemplate of [registry.Traits]. The error is of the field with
// an unknown placeholder.
func (p Places) Template() (string, error) {
	var templates []string
	for _, o := range p.templates() {
		if strings.ContainsAny(placeholder.ReplaceAllString(*o.Value, ""), "{}/") {
			return "", registry.FieldError(o.Field, fmt.Errorf(
				"is %q; in braces, use {namespace}, {label:KEY} or {nsLabel:KEY}, with a label's key such as {label:team}", *o.Value))
		}
		templates = append(templates, *o.Value)
	}
	return strings.Join(templates, "/"), nil
}

func (p Places) templates() (all Places) {
	for _, o := range p {
		if strings.ContainsAny(*o.Value, "{}") {
			all = append(all, o)
		}
	}
	return all
}

// Fill sets the options with placeholders to their values for a place of the template. The error is of a place that no pod can have.
func (p Places) Fill(place string) error {
	options, values := p.templates(), strings.Split(place, "/")
	if len(values) != len(options) {
		return fmt.Errorf("has %d parts, and the template has %d", len(values), len(options))
	}
	for i, o := range options {
		if values[i] == "" {
			return registry.FieldError(o.Field, errors.New("is empty"))
		}
		*o.Value = values[i]
	}
	return nil
}

// Example replaces the placeholders, so that the rest of the options can be checked.
func (p Places) Example() {
	for _, o := range p.templates() {
		*o.Value = placeholder.ReplaceAllString(*o.Value, "x")
	}
}

// InPlace is a driver for one place.
type InPlace interface {
	registry.Registry
	registry.Lister
	registry.Getter
	registry.AppEntrySteerer
}

// mostPlaces bounds how many drivers are kept, since whoever can label a pod can choose its place.
const mostPlaces = 1000

// Placed is a [registry.PlaceLister] with a driver for each place. The drivers share their connections. It has the capabilities of the
// base, and those that the base lacks have no effect.
type Placed struct {
	placedEntries

	template string
	// base is a driver without a place, for what is the same in all places.
	base InPlace
	open func(place string) (InPlace, error)

	mu     sync.Mutex
	opened map[string]InPlace
}

// NewPlaced makes a Placed for a template that is not empty. The base and what open returns have the same capabilities. Open must make no
// call, and returns an error for a place that the registry does not allow, for example because of a character in it, and for an empty one.
func NewPlaced(template string, base InPlace, open func(place string) (InPlace, error)) *Placed {
	p := &Placed{template: template, base: base, open: open, opened: map[string]InPlace{}}
	p.placedEntries = placedEntries{"registering", func(in registry.Instance) (registry.AppRegistry, error) { return p.of(in) }}
	return p
}

// Traits implements [registry.Describer]: those of the base, in places.
func (p *Placed) Traits() registry.Traits {
	traits := registry.TraitsOf(p.base)
	traits.PlaceTemplate = p.template
	return traits
}

// ListPlace implements [registry.PlaceLister]. A place that the registry does not allow has no entries.
func (p *Placed) ListPlace(ctx context.Context, cluster, place string) ([]registry.Entry, error) {
	driver, err := p.in(place)
	if err != nil {
		return nil, nil //nolint:nilerr // such a place has no entries
	}
	entries, err := driver.List(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("in %s: %w", place, err)
	}
	for i := range entries {
		entries[i].Place = place
	}
	return entries, nil
}

func (p *Placed) in(place string) (InPlace, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if driver, has := p.opened[place]; has {
		return driver, nil
	}
	driver, err := p.open(place)
	if err != nil {
		return nil, err
	}
	if len(p.opened) >= mostPlaces {
		clear(p.opened)
	}
	p.opened[place] = driver
	return driver, nil
}

// of returns the driver for an instance's place. The error is terminal.
func (p *Placed) of(in registry.Instance) (InPlace, error) {
	driver, err := p.in(in.Place)
	if err != nil {
		return nil, registry.Terminal(fmt.Errorf("the template %q of the registry's options gives the pod the place %q, which the registry "+
			"does not allow: %w: set the label or namespace to another value", p.template, in.Place, err))
	}
	return driver, nil
}

// Probes implements [registry.OptionalProber].
func (p *Placed) Probes() bool {
	prober, is := p.base.(registry.Prober)
	optional, asks := prober.(registry.OptionalProber)
	return is && (!asks || optional.Probes())
}

// Probe implements [registry.Prober].
func (p *Placed) Probe(ctx context.Context, in registry.Instance) error {
	driver, err := p.of(in)
	prober, is := driver.(registry.Prober)
	if err != nil || !is {
		return CallError(ctx, "probing", in, err)
	}
	return prober.Probe(ctx, in)
}

// Heartbeat implements [registry.Heartbeater].
func (p *Placed) Heartbeat(ctx context.Context, in registry.Instance) error {
	driver, err := p.of(in)
	beats, is := driver.(registry.Heartbeater)
	if err != nil || !is {
		return CallError(ctx, "renewing", in, err)
	}
	return beats.Heartbeat(ctx, in)
}

// UnlistedMembers implements [registry.MemberLister].
func (p *Placed) UnlistedMembers() []string {
	if lister, is := p.base.(registry.MemberLister); is {
		return lister.UnlistedMembers()
	}
	return nil
}

// BatchLimit implements [registry.Batcher].
func (p *Placed) BatchLimit() int {
	if batcher, is := p.base.(registry.Batcher); is {
		return batcher.BatchLimit()
	}
	return 1
}

// Batch implements [registry.Batcher].
func (p *Placed) Batch(ctx context.Context, changes []registry.Change) []error {
	if len(changes) == 0 {
		return nil
	}
	driver, err := p.of(changes[0].Instance)
	if batcher, is := driver.(registry.Batcher); err == nil && is {
		return batcher.Batch(ctx, changes)
	}
	errs := make([]error, 0, len(changes))
	for _, c := range changes {
		errs = append(errs, c.Make(ctx, p))
	}
	return errs
}

// AppEntries implements [registry.AppEntrySteerer].
func (p *Placed) AppEntries() registry.AppRegistry {
	apps := placedEntries{"putting back", func(in registry.Instance) (registry.AppRegistry, error) {
		driver, err := p.of(in)
		if err != nil {
			return nil, err
		}
		return driver.AppEntries(), nil
	}}
	if matcher, is := p.base.AppEntries().(registry.EntryMatcher); is {
		return struct {
			placedEntries
			registry.EntryMatcher
		}{apps, matcher}
	}
	return apps
}

// Close frees what all places share.
func (p *Placed) Close() error {
	if closer, is := p.base.(io.Closer); is {
		return closer.Close()
	}
	return nil
}

// placedEntries makes each call in the instance's place. A place that the registry does not allow has no entries: only joining it fails.
type placedEntries struct {
	joining string
	of      func(registry.Instance) (registry.AppRegistry, error)
}

// Register implements [registry.Registry].
func (e placedEntries) Register(ctx context.Context, in registry.Instance) error {
	there, err := e.of(in)
	if err != nil {
		return CallError(ctx, e.joining, in, err)
	}
	return there.Register(ctx, in)
}

// FailOver implements [registry.Registry].
func (e placedEntries) FailOver(ctx context.Context, in registry.Instance) error {
	there, err := e.of(in)
	if err != nil {
		return nil //nolint:nilerr // such a place has no entries
	}
	return there.FailOver(ctx, in)
}

// Deregister implements [registry.Registry].
func (e placedEntries) Deregister(ctx context.Context, in registry.Instance) error {
	there, err := e.of(in)
	if err != nil {
		return nil //nolint:nilerr // such a place has no entries
	}
	return there.Deregister(ctx, in)
}

// Get implements [registry.Getter].
func (e placedEntries) Get(ctx context.Context, in registry.Instance) (registry.State, error) {
	there, err := e.of(in)
	if err != nil {
		return registry.Absent, nil //nolint:nilerr // such a place has no entries
	}
	return there.Get(ctx, in)
}
