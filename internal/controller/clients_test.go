package controller

import (
	"maps"
	"time"

	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/registry"
)

// driver is what a client is made of in a test. It has the capabilities that are not nil.
type driver struct {
	registry.Registry

	getter  registry.Getter
	prober  registry.Prober
	lister  registry.Lister
	options registryclient.Options
}

// client returns a client that has the driver for its server, unless the options say otherwise.
func (d driver) client() *registryclient.Client {
	o := d.options
	o.Timeout = testTimeout
	if o.MaxInFlight == 0 {
		o.MaxInFlight = 100
	}
	if o.Server == nil {
		o.Server = &d
	}
	var made registry.Registry
	switch {
	case d.getter != nil && d.lister != nil:
		made = struct {
			registry.Registry
			registry.Getter
			registry.Lister
		}{d.Registry, d.getter, d.lister}
	case d.getter != nil:
		made = struct {
			registry.Registry
			registry.Getter
		}{d.Registry, d.getter}
	case d.prober != nil:
		made = struct {
			registry.Registry
			registry.Prober
		}{d.Registry, d.prober}
	case d.lister != nil:
		made = struct {
			registry.Registry
			registry.Lister
		}{d.Registry, d.lister}
	default:
		made = struct{ registry.Registry }{d.Registry}
	}
	return registryclient.New(made, o)
}

// use makes reg the only registry.
func (s *Settings) use(reg registry.Registry) {
	s.Registries = map[string]*registryclient.Client{"default": driver{Registry: reg}.client()}
}

// with returns the clients with another one, or one that is new.
func (s *Settings) with(name string, d driver) map[string]*registryclient.Client {
	all := maps.Clone(s.Registries)
	all[name] = d.client()
	return all
}

// remake changes what a client is made of, as another registry.
func (s *Settings) remake(name string, change func(*driver)) {
	d := *s.Registries[name].Server().(*driver)
	change(&d)
	s.Registries = s.with(name, d)
}

func probedBy(prober registry.Prober) func(*Settings) {
	return func(s *Settings) { s.remake("default", func(d *driver) { d.prober = prober }) }
}

// listable makes the registry one that lists what it holds.
func listable(s *Settings) {
	s.remake("default", func(d *driver) { d.lister, _ = d.Registry.(registry.Lister) })
}

// lists has every registry list.
func lists(s *Settings) {
	for name := range s.Registries {
		s.remake(name, func(d *driver) { d.lister, _ = d.Registry.(registry.Lister) })
	}
}

func inFlight(n int) func(*Settings) {
	return func(s *Settings) { s.remake("default", func(d *driver) { d.options.MaxInFlight = n }) }
}

// fence refuses every call while there is an error.
type fence struct{ refuses error }

func (f *fence) Permit(time.Duration) error { return f.refuses }
func (f *fence) MayLand(time.Time)          {}

func fencedBy(f *fence) func(*Settings) {
	return func(s *Settings) { s.remake("default", func(d *driver) { d.options.Fence = f }) }
}
