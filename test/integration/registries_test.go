package integration

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

const registriesKey = "rollcall.dev/registries"

// The two registries of the managers that have several.
const (
	oldRegistry = "old"
	newRegistry = "new"
)

// defaultRegistries are those of the pods that name none, from a moment on.
type defaultRegistries struct {
	since time.Time
	names []string
}

// defaultsTo notes which registries the pods are in from now on that name none.
func (s *scenario) defaultsTo(names ...string) {
	s.defaults = append(s.defaults, defaultRegistries{since: time.Now(), names: names})
}

// registriesOf returns those that this version of a pod was to be in at a time.
func (s *scenario) registriesOf(pod *corev1.Pod, at time.Time) []*registryServer {
	var names []string
	for _, d := range s.defaults {
		if d.since.Before(at) {
			names = d.names
		}
	}
	if written, found := pod.Annotations[registriesKey]; found {
		names = strings.FieldsFunc(written, func(c rune) bool { return c == ',' || c == ' ' })
	}
	return slices.DeleteFunc(slices.Clone(s.registries), func(r *registryServer) bool { return !slices.Contains(names, r.name) })
}

// podsOf picks the pods that should be in a registry now.
func (s *scenario) podsOf(r *registryServer, pods []*corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool {
		return !slices.Contains(s.registriesOf(pod, time.Now()), r)
	})
}

func startPair(t *testing.T) (older, newer *registryServer) {
	t.Helper()
	return startRegistry(t, oldRegistry, registryOptions{}), startRegistry(t, newRegistry, registryOptions{})
}

// withRegistries has the manager use these instead of a single one.
func (c configuration) withRegistries(defaults []string, servers ...*registryServer) configuration {
	sections := map[string]any{}
	for _, r := range servers {
		sections[r.name] = section(r)
	}
	delete(c, "registry")
	c["registries"], c["defaultRegistries"] = sections, defaults
	return c
}

func section(r *registryServer) map[string]any {
	return map[string]any{"driver": "http", "endpoint": r.URL(), "timeout": callTimeout.String()}
}

// over has the scenario look at these registries.
func (s *scenario) over(defaults []string, servers ...*registryServer) *scenario {
	s.registry, s.registries, s.defaults = servers[0], servers, nil
	s.defaultsTo(defaults...)
	return s
}

func (s *scenario) named(name string) *registryServer {
	s.Helper()
	for _, r := range s.registries {
		if r.name == name {
			return r
		}
	}
	s.Fatalf("there is no registry %s", name)
	return nil
}

// change is a moment at which a registry began to give a pod to clients, or may have ceased to.
type change struct {
	at       time.Time
	registry *registryServer
	pod      string
	in       bool
}

// changes are those of all pods in these registries. A pod is in from the acknowledgement on, and not longer than until the
// next call that takes it out arrives.
func (s *scenario) changes(servers []*registryServer) []change {
	var all []change
	for _, r := range servers {
		for _, a := range r.Answers(s.ns, "") {
			switch {
			case a.Op != fakeregistry.OpRegister:
				all = append(all, change{at: a.Started, registry: r, pod: a.Instance.UID})
			case a.Acknowledged():
				all = append(all, change{at: a.Answered, registry: r, pod: a.Instance.UID, in: true})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b change) int { return a.at.Compare(b.at) })
	return all
}

// ExpectServed expects that clients who read all these registries found n pods or more at every moment between the two.
func (s *scenario) ExpectServed(n int, since, until time.Time, servers ...*registryServer) {
	s.Helper()
	where := map[string]map[*registryServer]bool{}
	found := func() int {
		pods := 0
		for _, in := range where {
			pods += min(len(in), 1)
		}
		return pods
	}
	checked := false
	check := func(at time.Time) {
		checked = true
		s.Expect(found() >= n, "at %s clients found %d pods, not %d", at.Format("05.000000"), found(), n)
	}
	for _, c := range s.changes(servers) {
		if c.at.After(until) {
			break
		}
		if !checked && c.at.After(since) {
			check(since)
		}
		if where[c.pod] == nil {
			where[c.pod] = map[*registryServer]bool{}
		}
		if c.in {
			where[c.pod][c.registry] = true
		} else {
			delete(where[c.pod], c.registry)
		}
		if checked {
			check(c.at)
		}
	}
	check(until)
}

// ExpectMoved expects that each pod was registered in the one before it was taken out of the other, once each.
func (s *scenario) ExpectMoved(from, to *registryServer, pods []*corev1.Pod) {
	s.Helper()
	for _, pod := range pods {
		came := slices.DeleteFunc(to.Answers(s.ns, string(pod.UID)), func(a fakeregistry.Call) bool { return a.Op != fakeregistry.OpRegister || !a.Acknowledged() })
		left := slices.DeleteFunc(from.Answers(s.ns, string(pod.UID)), func(a fakeregistry.Call) bool { return a.Op != fakeregistry.OpDeregister })
		s.Expect(len(came) > 0 && len(left) == 1, "pod %s was registered in %s %d times, and taken out of %s %d times", pod.Name, to.name,
			len(came), from.name, len(left))
		if len(came) > 0 && len(left) > 0 {
			s.Expect(came[0].Answered.Before(left[0].Started), "pod %s was taken out of %s before it was registered in %s", pod.Name,
				from.name, to.name)
		}
	}
}
