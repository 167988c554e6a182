package observe

import (
	"errors"
	"fmt"
	"time"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/internal/service"
)

// Settings is what the reconciler takes from the configuration. They are applied whole: a reconcile works with one
// Settings from its first line to its last.
type Settings struct {
	// Rules apply to all pods together.
	clusterstate.Rules

	// Cluster is the owner in every mark. It never changes while the process lives.
	Cluster    string
	Registries registryclient.Registries
	// RegisteredByApp holds, by name, whether the applications register themselves there, unless a pod says otherwise.
	RegisteredByApp map[string]bool
	// ReaderLag holds, by name, how long clients of the registry may not know yet what it has acknowledged.
	ReaderLag map[string]time.Duration
	// DefaultRegistries are those of a pod that names none.
	DefaultRegistries []string
	// Drain is how long a pod stays up after it was taken out of rotation; the pod's annotation wins.
	Drain time.Duration
	// OnRegistryFailure says which hooks go on without a registry that does not answer.
	OnRegistryFailure lifecycle.FailurePolicy
	// Guard says whether pods get a finalizer that keeps them until they were taken out.
	Guard bool

	// everywhere is where a pod may have an entry, once the settings are applied.
	everywhere []lifecycle.Source
}

// Completed returns the settings as they are applied.
func (s *Settings) Completed() *Settings {
	completed := *s
	completed.everywhere = s.allSources()
	return &completed
}

// Everywhere is where a pod may have an entry.
func (s *Settings) Everywhere() []lifecycle.Source { return s.everywhere }

// Has implements [plan.Configuration].
func (s *Settings) Has(registry string) bool { return s.Registries[registry] != nil }

// Client is that of a writer's entries in a registry; nil where the configuration has none.
func (s *Settings) Client(of lifecycle.Source) *registryclient.Client {
	if of.ByApp() {
		return s.Registries[of.Registry].AppEntries()
	}
	return s.Registries[of.Registry]
}

// allSources are those of Rollcall's own entries and, after these, of the applications' where they can be steered.
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

// sourcesOf returns where the entries of the pod with these annotations are, and who writes them.
func (s *Settings) sourcesOf(annotations map[string]string) ([]lifecycle.Source, error) {
	names, err := service.RegistriesOf(annotations, s.DefaultRegistries, s.Registries.Names())
	problems, sources := []error{err}, make([]lifecycle.Source, len(names))
	for i, name := range names {
		sources[i].Registry = name
		byApp, err := service.RegisteredByApp(annotations, s.RegisteredByApp[name])
		switch {
		case !byApp:
		case s.Registries[name].AppEntries() != nil:
			sources[i].Writer = lifecycle.Application
		default:
			err = fmt.Errorf("annotation %s: the driver of registry %q can't take an entry out of rotation that an application wrote: "+
				"remove the annotation, and turn off the application's own registration as docs/self-registration.md says",
				service.AnnotationRegisteredBy, name)
		}
		problems = append(problems, err)
	}
	return sources, errors.Join(problems...)
}

// steers reports whether there is a registry in which applications' entries can be steered.
func (s *Settings) steers() bool { return len(s.everywhere) > len(s.Registries) }
