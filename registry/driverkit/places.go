package driverkit

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
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

// Fill sets the options with placeholders to their values for a place of the template.
func (p Places) Fill(place string) {
	values := strings.Split(place, "/")
	for i, o := range p.templates() {
		*o.Value = values[i]
	}
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
	template string
	// base is a driver without a place, for what is the same in all places.
	base InPlace
	open func(place string) (InPlace, error)

	mu     sync.Mutex
	opened map[string]InPlace
}

// NewPlaced makes a Placed for a template that is not empty. The base and what open returns have the same capabilities. Open must make no
// call, and returns an error for a place that the registry does not allow, for example because of a character in it.
func NewPlaced(template string, base InPlace, open func(place string) (InPlace, error)) *Placed {
	return &Placed{template: template, base: base, open: open, opened: map[string]InPlace{}}
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
		entries[i].Service = place + "/" + entries[i].Service
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

// of returns the driver for an instance, and the instance as that one knows it. The error is terminal.
func (p *Placed) of(in registry.Instance) (InPlace, registry.Instance, error) {
	place, name := registry.SplitPlace(p.template, in.Service)
	if place == "" {
		return nil, in, registry.Terminal(fmt.Errorf("service %q does not begin with a place of the template %q, "+
			"which the registry's options set", in.Service, p.template))
	}
	driver, err := p.in(place)
	if err != nil {
		return nil, in, registry.Terminal(fmt.Errorf("the template %q of the registry's options gives the pod the place %q, which the registry "+
			"does not allow: %w: set the label or namespace to another value", p.template, place, err))
	}
	in.Service = name
	return driver, in, nil
}

// Register implements [registry.Registry].
func (p *Placed) Register(ctx context.Context, in registry.Instance) error {
	driver, inPlace, err := p.of(in)
	if err != nil {
		return CallError(ctx, "registering", in, err)
	}
	return driver.Register(ctx, inPlace)
}

// FailOver implements [registry.Registry]. A place that the registry does not allow has no entries.
func (p *Placed) FailOver(ctx context.Context, in registry.Instance) error {
	driver, in, err := p.of(in)
	if err != nil {
		return nil //nolint:nilerr // such a place has no entries
	}
	return driver.FailOver(ctx, in)
}

// Deregister implements [registry.Registry], as FailOver does.
func (p *Placed) Deregister(ctx context.Context, in registry.Instance) error {
	driver, in, err := p.of(in)
	if err != nil {
		return nil //nolint:nilerr // such a place has no entries
	}
	return driver.Deregister(ctx, in)
}

// Get implements [registry.Getter], as FailOver does.
func (p *Placed) Get(ctx context.Context, in registry.Instance) (registry.State, error) {
	driver, in, err := p.of(in)
	if err != nil {
		return registry.Absent, nil //nolint:nilerr // such a place has no entries
	}
	return driver.Get(ctx, in)
}

// Probes implements [registry.OptionalProber].
func (p *Placed) Probes() bool {
	prober, is := p.base.(registry.Prober)
	optional, asks := prober.(registry.OptionalProber)
	return is && (!asks || optional.Probes())
}

// Probe implements [registry.Prober].
func (p *Placed) Probe(ctx context.Context, in registry.Instance) error {
	driver, inPlace, err := p.of(in)
	prober, is := driver.(registry.Prober)
	if err != nil || !is {
		return CallError(ctx, "probing", in, err)
	}
	return prober.Probe(ctx, inPlace)
}

// Heartbeat implements [registry.Heartbeater].
func (p *Placed) Heartbeat(ctx context.Context, in registry.Instance) error {
	driver, inPlace, err := p.of(in)
	beats, is := driver.(registry.Heartbeater)
	if err != nil || !is {
		return CallError(ctx, "renewing", in, err)
	}
	return beats.Heartbeat(ctx, inPlace)
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

// Batch implements [registry.Batcher] with a call for each place, all at the same time.
func (p *Placed) Batch(ctx context.Context, changes []registry.Change) []error {
	errs, inPlace := slices.Repeat([]error{errNoOutcome}, len(changes)), map[string][]int{}
	for i, c := range changes {
		place, _ := registry.SplitPlace(p.template, c.Instance.Service)
		inPlace[place] = append(inPlace[place], i)
	}
	var all sync.WaitGroup
	for _, at := range inPlace {
		all.Go(func() {
			there := make([]registry.Change, 0, len(at))
			for _, i := range at {
				there = append(there, changes[i])
			}
			for n, err := range p.batchInPlace(ctx, there) {
				errs[at[n]] = err
			}
		})
	}
	all.Wait()
	return errs
}

// batchInPlace makes changes that are all in one place.
func (p *Placed) batchInPlace(ctx context.Context, changes []registry.Change) []error {
	driver, _, err := p.of(changes[0].Instance)
	if batcher, is := driver.(registry.Batcher); err == nil && is {
		for i := range changes {
			_, changes[i].Instance.Service = registry.SplitPlace(p.template, changes[i].Instance.Service)
		}
		return batcher.Batch(ctx, changes)
	}
	errs := make([]error, 0, len(changes))
	for _, c := range changes {
		errs = append(errs, c.Make(ctx, p))
	}
	return errs
}

// AppEntries implements [registry.AppEntrySteerer].
func (p *Placed) AppEntries() registry.AppRegistry { return placedApps{p} }

// Close frees what all places share.
func (p *Placed) Close() error {
	if closer, is := p.base.(io.Closer); is {
		return closer.Close()
	}
	return nil
}

type placedApps struct{ all *Placed }

func (a placedApps) Register(ctx context.Context, in registry.Instance) error {
	driver, inPlace, err := a.all.of(in)
	if err != nil {
		return CallError(ctx, "putting back", in, err)
	}
	err = driver.AppEntries().Register(ctx, inPlace)
	var names []string
	for _, name := range registry.OtherNamesOf(err) {
		names = append(names, strings.TrimSuffix(in.Service, inPlace.Service)+name)
	}
	if names != nil {
		err = registry.OtherNames(err, names...)
	}
	return err
}

func (a placedApps) FailOver(ctx context.Context, in registry.Instance) error {
	driver, in, err := a.all.of(in)
	if err != nil {
		return nil //nolint:nilerr // as for Rollcall's own
	}
	return driver.AppEntries().FailOver(ctx, in)
}

func (a placedApps) Deregister(ctx context.Context, in registry.Instance) error {
	driver, in, err := a.all.of(in)
	if err != nil {
		return nil //nolint:nilerr // as for Rollcall's own
	}
	return driver.AppEntries().Deregister(ctx, in)
}

func (a placedApps) Get(ctx context.Context, in registry.Instance) (registry.State, error) {
	driver, in, err := a.all.of(in)
	if err != nil {
		return registry.Absent, nil //nolint:nilerr // as for Rollcall's own
	}
	return driver.AppEntries().Get(ctx, in)
}

// MayBeOne implements [registry.EntryMatcher]. Two places have no entry in common.
func (a placedApps) MayBeOne(one, other registry.Instance) bool {
	matcher, is := a.all.base.AppEntries().(registry.EntryMatcher)
	if !is {
		return one.Endpoint() == other.Endpoint() && strings.EqualFold(one.Service, other.Service)
	}
	place, name := registry.SplitPlace(a.all.template, one.Service)
	another, otherName := registry.SplitPlace(a.all.template, other.Service)
	one.Service, other.Service = name, otherName
	return place == another && matcher.MayBeOne(one, other)
}
