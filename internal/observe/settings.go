package observe

import (
	"errors"
	"fmt"
	"time"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/drain"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/registry"
)

// Settings are what a reconcile takes from the configuration, from its first line to its last.
type Settings struct {
	// Rules apply to all pods together.
	clusterstate.Rules

	// Cluster is in every mark, and never changes.
	Cluster    string
	Registries registryclient.Registries
	// RegisteredByApp is, by registry, who writes entries unless the pod's annotation differs.
	RegisteredByApp map[string]bool
	// Weightless registries are those that know no weights.
	Weightless map[string]bool
	// ReaderLags are, by registry, how late its clients know.
	ReaderLags map[string]time.Duration
	// DefaultRegistries are for pods that name none.
	DefaultRegistries []string
	// DefaultsFor are for those of some namespaces, by registry.
	DefaultsFor map[string]service.Allowance
	// UnreadyAfter is how long a pod in rotation may be not ready.
	UnreadyAfter time.Duration
	// Drain is for pods without the annotation.
	Drain        drain.Policy
	ProceedAfter lifecycle.FailurePolicy
	// Guard: pods get the guard's finalizer.
	Guard bool

	everywhere []lifecycle.Source
}

// Completed returns the settings, ready for use.
func (s *Settings) Completed() *Settings {
	completed := *s
	completed.everywhere, completed.RegisteredByApp = s.allSources(), make(map[string]bool, len(s.Registries))
	for name := range s.Registries {
		completed.RegisteredByApp[name] = s.RegisteredByApp[name]
	}
	return &completed
}

// Everywhere is all sources of the configuration.
func (s *Settings) Everywhere() []lifecycle.Source { return s.everywhere }

// Has implements [plan.Configuration].
func (s *Settings) Has(registry string) bool { return s.Registries[registry] != nil }

// CallsPods implements [plan.Configuration].
func (s *Settings) CallsPods(registry string) bool { return s.Registries[registry].CallsPods() }

// Lists implements [plan.Configuration].
func (s *Settings) Lists(registry string) bool { return s.Registries[registry].Lists() }

// ReaderLag implements [plan.Configuration].
func (s *Settings) ReaderLag(registry string) time.Duration { return s.ReaderLags[registry] }

// MayBeOne implements [plan.Configuration].
func (s *Settings) MayBeOne(a, b lifecycle.Key) bool {
	if !a.ByApp() || !b.ByApp() {
		return false // Rollcall's entries are identified by their key, and by the registry's name in their mark
	}
	return s.Registries[a.Registry].MayBeOne(instanceAt(a), s.Registries[b.Registry], instanceAt(b))
}

func instanceAt(in lifecycle.Key) registry.Instance {
	return registry.Instance{Service: string(in.Service), Address: in.Address, Port: in.Port}
}

// Client is nil if the configuration lacks the registry.
func (s *Settings) Client(of lifecycle.Source) *registryclient.Client {
	if of.ByApp() {
		return s.Registries[of.Registry].AppEntries()
	}
	return s.Registries[of.Registry]
}

// allSources are Rollcall's own, and then the applications' where a driver can steer them.
func (s *Settings) allSources() (all []lifecycle.Source) {
	for _, writer := range []lifecycle.Writer{lifecycle.Rollcall, lifecycle.Application} {
		for _, name := range s.Registries.Names() {
			if of := (lifecycle.Source{Registry: name, Writer: writer}); s.Client(of) != nil {
				all = append(all, of)
			}
		}
	}
	return all
}

// SourcesOf returns the registries of a pod, and who writes there.
func (s *Settings) SourcesOf(of service.Subject) ([]lifecycle.Source, error) {
	annotations, defaults := of.Annotations, service.DefaultsOf(s.DefaultRegistries, s.DefaultsFor, of.Namespace, of.NamespaceLabels)
	registries, err := service.RegistriesOf(annotations, defaults, s.RegisteredByApp)
	sources := make([]lifecycle.Source, len(registries))
	for i, r := range registries {
		sources[i].Registry = r.Registry
		switch {
		case !r.ByApp && s.CallsPods(r.Registry):
			err = errors.Join(err, fmt.Errorf("annotation %s: registry %q has no entries but those of applications: set %s=app",
				service.AnnotationRegistries, r.Registry, r.Registry))
		case !r.ByApp && annotations[service.AnnotationWarmUp] != "" && s.Weightless[r.Registry]:
			err = errors.Join(err, fmt.Errorf("annotation %s: registry %q has no weights: remove the annotation, or choose other registries",
				service.AnnotationWarmUp, r.Registry))
		case !r.ByApp:
		case s.Registries[r.Registry].AppEntries() != nil:
			sources[i].Writer = lifecycle.Application
		default:
			err = errors.Join(err, fmt.Errorf("annotation %s: the driver of registry %q can't take an entry out of rotation that an "+
				"application wrote: remove =app, and turn off the application's own registration",
				service.AnnotationRegistries, r.Registry))
		}
	}
	return sources, err
}

// steers reports whether applications' entries can be steered anywhere.
func (s *Settings) steers() bool { return len(s.everywhere) > len(s.Registries) }
