package statuspage

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/internal/resync"
	"github.com/rollcall-dev/rollcall/internal/statuspage/entries"
	"github.com/rollcall-dev/rollcall/internal/tracker"
)

// shownAtMost is how many pods, and how many services, one answer shows. A filter finds the others.
const shownAtMost = 500

// Facts are what a Snapshot is built from.
type Facts struct {
	Manager
	// Drivers are those of the registries in force, by the registry's name.
	Drivers map[string]string
	Clients map[string]registryclient.Status
	Resyncs map[string]resync.Status
	// Instances are what is known of every pod, and Waits why some of them wait.
	Instances []tracker.Seen
	Waits     []metrics.Wait
	// Circumstances are those under which it was decided about each pod, for the kubectl plugin.
	Circumstances map[lifecycle.PodID]lifecycle.Circumstances
}

// Manager is the one that answers.
type Manager struct {
	// Name is this manager's pod, and Leader that of the one which leads; empty without leader election.
	Name   string `json:"name,omitempty"`
	Leader string `json:"leader,omitempty"`
	// Leads: this manager leads. Any other knows nothing of pods and registries.
	Leads  bool `json:"leads"`
	DryRun bool `json:"dryRun,omitempty"`
	// NotReady is why the manager is not ready; empty if it is.
	NotReady string `json:"notReady,omitempty"`
	// Version is that of the docs to which the page links.
	Version string `json:"-"`
	// Approve is the command by which a person approves of removals.
	Approve string `json:"-"`
}

// Snapshot is what the manager knows at one time.
type Snapshot struct {
	Manager    Manager            `json:"manager"`
	Registries []entries.Registry `json:"registries"`
	// Services are those with something out of rotation or unacknowledged first, then by name.
	Services []Service `json:"services"`
	// Pods are those that wait, the longest wait first.
	Pods []Pod `json:"pods"`
	// ServicesTotal and PodsTotal count also those that are left out.
	ServicesTotal int `json:"servicesTotal"`
	PodsTotal     int `json:"podsTotal"`
	// Withheld is why no pod and no service is shown to this reader, if it is.
	Withheld string `json:"withheld,omitempty"`
}

// Service counts the instances of a namespace under one name in one registry.
type Service struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Registry  string `json:"registry"`
	// Writer is who has written the entries: empty for Rollcall, "app" for applications.
	Writer string `json:"writer,omitempty"`
	In     int    `json:"in"`
	Out    int    `json:"out"`
	// Unacknowledged are those whose last change the registry has not acknowledged.
	Unacknowledged int `json:"unacknowledged"`
}

// Pod is one that waits.
type Pod struct {
	metrics.Wait

	Instances []entries.Entry `json:"instances,omitempty"`
}

// StateOf is what the registry is known to say of the instance.
func StateOf(i tracker.Seen) entries.State {
	switch {
	case !i.Acknowledged:
		return entries.Unacknowledged
	case i.Want == lifecycle.InService:
		return entries.In
	default:
		return entries.Out
	}
}

// entriesOf returns those of the pods that are asked for, by the pod and in one order.
func entriesOf(instances []tracker.Seen, asked func(lifecycle.PodID) bool) map[types.UID][]entries.Entry {
	byUID := map[types.UID][]entries.Entry{}
	for _, i := range instances {
		if asked(i.Pod) {
			byUID[i.Pod.UID] = append(byUID[i.Pod.UID], entries.Entry{
				Registry: i.In.Registry, Writer: string(i.In.Writer), Service: string(i.In.Service),
				Endpoint: net.JoinHostPort(i.In.Address, strconv.Itoa(i.In.Port)), State: StateOf(i),
			})
		}
	}
	for _, own := range byUID {
		slices.SortFunc(own, func(a, b entries.Entry) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
	return byUID
}

func waitsOf(pods []Pod, asked func(namespace string) bool) map[types.UID]entries.Wait {
	waits := map[types.UID]entries.Wait{}
	for _, p := range pods {
		if asked(p.Namespace) {
			waits[types.UID(p.UID)] = entries.Wait{Hook: p.Hook, Reason: p.Reason, Message: p.Message, Warning: p.Warning}
		}
	}
	return waits
}

// Build makes the snapshot of the facts, whole.
func Build(f Facts) Snapshot {
	s := Snapshot{Manager: f.Manager, Registries: []entries.Registry{}, Services: []Service{}, Pods: []Pod{}}
	if !f.Leads {
		return s
	}
	for name, driver := range f.Drivers {
		calls, compared := f.Clients[name], f.Resyncs[name]
		s.Registries = append(s.Registries, entries.Registry{
			Name: name, Driver: driver, Breaker: calls.Breaker, Slots: calls.Slots, InUse: calls.InUse, Queued: calls.Queued,
			Lists: compared.Lists, Succeeded: compared.Succeeded, Failure: compared.Failure,
			RemovalsBlocked: compared.RemovalsBlocked, Held: compared.Held,
		})
	}
	slices.SortFunc(s.Registries, func(a, b entries.Registry) int { return cmp.Compare(a.Name, b.Name) })
	s.Services = servicesOf(f.Instances)
	s.Pods = podsOf(f.Waits, f.Instances)
	return s.counted()
}

func servicesOf(instances []tracker.Seen) []Service {
	counts := map[Service]*Service{}
	for _, i := range instances {
		key := Service{Namespace: i.Pod.Namespace, Name: string(i.In.Service), Registry: i.In.Registry, Writer: string(i.In.Writer)}
		one := counts[key]
		if one == nil {
			one = &key
			counts[key] = one
		}
		switch StateOf(i) {
		case entries.In:
			one.In++
		case entries.Out:
			one.Out++
		case entries.Unacknowledged:
			one.Unacknowledged++
		}
	}
	services := make([]Service, 0, len(counts))
	for _, one := range counts {
		services = append(services, *one)
	}
	order := func(s Service) int {
		if s.Out+s.Unacknowledged > 0 {
			return 0
		}
		return 1 // it is simply in rotation
	}
	slices.SortFunc(services, func(a, b Service) int {
		return cmp.Or(cmp.Compare(order(a), order(b)),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Registry, b.Registry), cmp.Compare(a.Writer, b.Writer))
	})
	return services
}

func podsOf(waits []metrics.Wait, instances []tracker.Seen) []Pod {
	waiting := make(map[types.UID]bool, len(waits))
	for _, w := range waits {
		waiting[types.UID(w.UID)] = true
	}
	byUID := entriesOf(instances, func(pod lifecycle.PodID) bool { return waiting[pod.UID] })
	pods := make([]Pod, 0, len(waits))
	for _, w := range waits {
		pods = append(pods, Pod{w, byUID[types.UID(w.UID)]})
	}
	slices.SortFunc(pods, func(a, b Pod) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod))
	})
	return pods
}

// Filter is which pods and services a person wants to see; the zero Filter means all.
type Filter struct {
	// Namespace is a name, and Text a part of what is shown, in capital or small letters.
	Namespace, Text string
}

// Filter returns what the filter lets through, bounded so that a page stays readable. Registries are always shown.
func (s Snapshot) Filter(f Filter) Snapshot {
	s.Pods = keep(s.Pods, func(p Pod) bool {
		shown := []string{p.Namespace + "/" + p.Pod, p.Hook, p.Reason, p.Message}
		for _, i := range p.Instances {
			shown = append(shown, i.Registry, i.Service, i.Endpoint)
		}
		return f.passes(p.Namespace, shown...)
	})
	s.Services = keep(s.Services, func(one Service) bool {
		return f.passes(one.Namespace, one.Namespace+"/"+one.Name, one.Registry)
	})
	s = s.counted()
	s.Pods, s.Services = s.Pods[:min(len(s.Pods), shownAtMost)], s.Services[:min(len(s.Services), shownAtMost)]
	return s
}

// withoutOthers leaves out what the registries' parts show of namespaces that a reader may have no right to.
func (s Snapshot) withoutOthers() Snapshot {
	s.Registries = slices.Clone(s.Registries)
	for i := range s.Registries {
		one := &s.Registries[i]
		if one.Held = nil; one.Failure != "" {
			one.Failure = "only readers who may list pods in all namespaces are shown why"
		}
	}
	return s
}

// withheld shows that there are pods and services, and none of them.
func (s Snapshot) withheld(why string) Snapshot {
	s.Pods, s.Services, s.Withheld = []Pod{}, []Service{}, why
	return s
}

func (f Filter) passes(namespace string, shown ...string) bool {
	text := strings.ToLower(f.Text)
	return (f.Namespace == "" || f.Namespace == namespace) &&
		slices.ContainsFunc(shown, func(s string) bool { return strings.Contains(strings.ToLower(s), text) })
}

// keep returns a new slice, since the snapshot is shared.
func keep[T any](all []T, passes func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(one T) bool { return !passes(one) })
}

func (s Snapshot) counted() Snapshot {
	s.PodsTotal, s.ServicesTotal = len(s.Pods), len(s.Services)
	return s
}
