package statuspage

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/orders"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/internal/resync"
	"github.com/rollcall-dev/rollcall/internal/statuspage/entries"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func epoch() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// leading are the facts of a manager that leads and knows nothing yet.
func leading() Facts {
	return Facts{Manager: Manager{Name: "rollcall-1", Leader: "rollcall-1", Leads: true}}
}

// wait is of a pod that has waited for so long at the epoch.
func wait(pod, reason string, waited time.Duration) metrics.Wait {
	return metrics.Wait{
		Namespace: "shop", Pod: pod, UID: "uid-of-" + pod, Hook: "preDelete", Reason: reason, Message: "why " + pod + " waits",
		Warning: reason != "Draining", Since: epoch().Add(-waited),
	}
}

func seen(pod, service string, want lifecycle.Want, acknowledged bool) tracker.Seen {
	return tracker.Seen{
		Pod: lifecycle.PodID{NamespacedName: types.NamespacedName{Namespace: "shop", Name: pod}, UID: types.UID("uid-of-" + pod)},
		In:  lifecycle.Key{Registry: "default", Service: lifecycle.Service(service), Address: "10.0.0.1", Port: 80}, Want: want, Acknowledged: acknowledged,
	}
}

func TestBuild(t *testing.T) {
	t.Parallel()
	compared := epoch()
	type row struct {
		reason string
		facts  func(f *Facts)
		want   func(s *Snapshot)
	}
	expect.Each(t, map[string]row{
		"a manager that does not lead": {
			reason: "what it once knew of registries says nothing",
			facts: func(f *Facts) {
				f.Manager = Manager{Name: "rollcall-2", Leader: "rollcall-1"}
				f.Drivers = map[string]string{"default": "consul"}
				f.Waits = []metrics.Wait{wait("web-1", "Draining", time.Minute)}
			},
			want: func(s *Snapshot) { s.Manager = Manager{Name: "rollcall-2", Leader: "rollcall-1"} },
		},
		"registries": {
			reason: "each shows its calls and its last comparison, in the order of their names",
			facts: func(f *Facts) {
				f.Drivers = map[string]string{"old": "etcd", "default": "consul"}
				f.Clients = map[string]registryclient.Status{
					"default": {Slots: 96, InUse: 3, Queued: 7, Breaker: "open"}, "old": {Slots: 8, Breaker: "closed"},
				}
				f.Resyncs = map[string]resync.Status{
					"default": {Lists: true, Succeeded: compared, Failure: "refused", RemovalsBlocked: true}, "old": {Lists: true},
				}
			},
			want: func(s *Snapshot) {
				s.Registries = []entries.Registry{
					{
						Name: "default", Driver: "consul", Slots: 96, InUse: 3, Queued: 7, Breaker: "open",
						Lists: true, Succeeded: compared, Failure: "refused", RemovalsBlocked: true,
					},
					{Name: "old", Driver: "etcd", Slots: 8, Breaker: "closed", Lists: true},
				}
			},
		},
		"services": {
			reason: "each instance counts once, and the service comes first of which something is not in rotation",
			facts: func(f *Facts) {
				f.Instances = []tracker.Seen{
					seen("api-1", "api", lifecycle.InService, true),
					seen("web-1", "web", lifecycle.InService, true), seen("web-2", "web", lifecycle.OutOfService, true),
					seen("web-3", "web", lifecycle.Absent, false), seen("web-4", "web", lifecycle.InService, false),
				}
			},
			want: func(s *Snapshot) {
				s.Services = []Service{
					{Namespace: "shop", Name: "web", Registry: "default", In: 1, Out: 1, Unacknowledged: 2},
					{Namespace: "shop", Name: "api", Registry: "default", In: 1},
				}
				s.ServicesTotal = 2
			},
		},
		"pods": {
			reason: "the longest wait comes first, with what the registries have of the pod",
			facts: func(f *Facts) {
				f.Waits = []metrics.Wait{wait("web-1", "Draining", time.Second), wait("web-2", "RegistryUnavailable", time.Minute)}
				f.Instances = []tracker.Seen{seen("web-1", "web", lifecycle.OutOfService, true)}
			},
			want: func(s *Snapshot) {
				s.Pods = []Pod{
					{Wait: wait("web-2", "RegistryUnavailable", time.Minute)},
					{
						Wait:      wait("web-1", "Draining", time.Second),
						Instances: []entries.Entry{{Registry: "default", Service: "web", Endpoint: "10.0.0.1:80", State: entries.Out}},
					},
				}
				s.PodsTotal = 2
				s.Services = []Service{{Namespace: "shop", Name: "web", Registry: "default", Out: 1}}
				s.ServicesTotal = 1
			},
		},
	}, func(t *testing.T, tc row) {
		facts, want := leading(), Snapshot{Manager: leading().Manager, Registries: []entries.Registry{}, Services: []Service{}, Pods: []Pod{}}
		tc.facts(&facts)
		tc.want(&want)
		expect.Equal(t, want, Build(facts), "%s", tc.reason)
	})
}

func TestFilter(t *testing.T) {
	t.Parallel()
	facts := leading()
	facts.Waits = []metrics.Wait{wait("web-1", "Draining", time.Minute), wait("api-1", "RegistryUnavailable", time.Second)}
	facts.Waits[1].Namespace = "bank"
	facts.Instances = []tracker.Seen{seen("web-1", "storefront", lifecycle.OutOfService, true)}
	all := Build(facts)
	type row struct {
		filter Filter
		want   string
	}
	expect.Each(t, map[string]row{
		"nothing asked":           {Filter{}, "web-1 api-1, storefront"},
		"a namespace":             {Filter{Namespace: "bank"}, "api-1"},
		"part of a namespace":     {Filter{Namespace: "ban"}, ""},
		"a reason in any letters": {Filter{Text: "DRAIN"}, "web-1"},
		"a pod by its service":    {Filter{Text: "front"}, "web-1, storefront"},
		"a message":               {Filter{Text: "why api"}, "api-1"},
		"both":                    {Filter{Namespace: "bank", Text: "web"}, ""},
	}, func(t *testing.T, tc row) {
		got := all.Filter(tc.filter)
		names := ""
		for i, p := range got.Pods {
			names += map[bool]string{true: " "}[i > 0] + p.Pod
		}
		for _, s := range got.Services {
			names += ", " + s.Name
		}
		if names != tc.want || got.PodsTotal != len(got.Pods) || got.ServicesTotal != len(got.Services) {
			t.Errorf("%+v shows %q, want %q: %+v", tc.filter, names, tc.want, got)
		}
	})
	if len(all.Pods) != 2 || all.Pods[0].Pod != "web-1" {
		t.Errorf("a filter changed the snapshot that others read: %+v", all.Pods)
	}
}

func TestFilterShowsTheLongestWaitsOfThousands(t *testing.T) {
	t.Parallel()
	got := Build(thousands(5000)).Filter(Filter{})
	if len(got.Pods) != shownAtMost || got.PodsTotal != 5000 || got.Pods[0].Pod != "web-4999" {
		t.Errorf("shows %d of %d pods, the first is %s; want %d of 5000, and web-4999", len(got.Pods), got.PodsTotal, got.Pods[0].Pod, shownAtMost)
	}
	if len(got.Services) != shownAtMost || got.ServicesTotal != 5000 {
		t.Errorf("shows %d of %d services, want %d of 5000", len(got.Services), got.ServicesTotal, shownAtMost)
	}
}

// thousands are the facts of so many pods, each of which waits and has a service of its own.
func thousands(n int) Facts {
	f := leading()
	for i := range n {
		name := fmt.Sprintf("web-%04d", i)
		f.Waits = append(f.Waits, wait(name, "RegistryUnavailable", time.Duration(i)*time.Second))
		f.Instances = append(f.Instances, seen(name, name, lifecycle.InService, false))
	}
	return f
}

func TestOthersReadTheSnapshotByTheseNames(t *testing.T) {
	t.Parallel()

	got, err := json.Marshal(Snapshot{
		Manager: leading().Manager,
		Registries: []entries.Registry{{
			Name: "default", Driver: "consul", Slots: 96, InUse: 3, Queued: 7, Breaker: "open",
			Lists: true, Succeeded: epoch(), Failure: "refused", RemovalsBlocked: true,
			Held: &orders.Held{Digest: "abc", Total: 1, Entries: []string{"web at 10.0.0.1:80 of pod shop/web-1"}},
		}, {Name: "old", Driver: "etcd"}},
		Pods: []Pod{{wait("web-1", "Draining", time.Second), []entries.Entry{{}}}, {}},
	})
	want := `{"manager":{"name":"rollcall-1","leader":"rollcall-1","leads":true},"registries":[` +
		`{"name":"default","driver":"consul","breaker":"open","slots":96,"inUse":3,"queued":7,"lists":true,` +
		`"resynced":"2026-01-02T03:04:05Z","resyncFailure":"refused","removalsBlocked":true,` +
		`"heldRemovals":{"digest":"abc","total":1,"entries":["web at 10.0.0.1:80 of pod shop/web-1"]}},` +
		`{"name":"old","driver":"etcd","breaker":"","slots":0,"inUse":0,"queued":0,"lists":false}],"services":null,"pods":[` +
		`{"namespace":"shop","name":"web-1","hook":"preDelete","reason":"Draining","message":"why web-1 waits",` +
		`"since":"2026-01-02T03:04:04Z","warning":false,"instances":[{"registry":"","service":"","endpoint":"","state":""}]},` +
		`{"namespace":"","name":"","reason":"","since":"0001-01-01T00:00:00Z","warning":false}],"servicesTotal":0,"podsTotal":0}`
	if err != nil || string(got) != want {
		t.Errorf("it is written as\n%s, err %v; want\n%s", got, err, want)
	}
}
