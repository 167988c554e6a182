package integration

import (
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
)

// definition is one scenario of those that one manager serves together.
type definition struct {
	name   string
	styles []style
	run    func(*scenario)
}

func definitions() []definition {
	return []definition{
		{"create", allStyles, create},
		{"in-place-update", allStyles, inPlaceUpdate},
	}
}

func namespaceOf(name string, s style) string { return name + "-" + string(s) }

func sharedNamespaces() []string {
	var namespaces []string
	for _, d := range definitions() {
		for _, s := range d.styles {
			namespaces = append(namespaces, namespaceOf(d.name, s))
		}
	}
	return namespaces
}

func TestScenarios(t *testing.T) {
	t.Parallel()
	for _, d := range definitions() {
		for _, style := range d.styles {
			t.Run(d.name+"/"+string(style), func(t *testing.T) {
				t.Parallel()
				s := newScenario(t, env.shared, env.registry, style, namespaceOf(d.name, style))
				if style == mixed {
					s.Play("other.example.org/update-gate", "shut")
				}
				d.run(s)
				s.ExpectNothingLeft()
				s.ExpectAlways()
			})
		}
	}
}

func create(s *scenario) {
	s.Create()
	s.ExpectSteady()
}

func inPlaceUpdate(s *scenario) {
	s.Create(inPlace)
	s.ExpectSteady()
	before := s.Pods()

	s.UpdateImage("nginx:2")
	s.ExpectSteady()
	s.ExpectImage("nginx:2", before)
	for _, pod := range before {
		if s.style != preNormal {
			s.ExpectSeen(pod, appspub.LifecycleStatePreparingUpdate)
		}
		s.ExpectSeen(pod, appspub.LifecycleStateUpdating)
	}
}
