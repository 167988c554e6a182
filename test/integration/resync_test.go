package integration

import (
	"fmt"
	"regexp"
	"slices"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/account"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

// resynced is a scenario whose registry is compared with the cluster every second.
func resynced(t *testing.T, name string, style style, flags ...string) *scenario {
	t.Helper()
	return alone(t, name, style, func(c configuration) { c["resync"] = map[string]any{"interval": "1s"} }, flags...)
}

// TestResync: whatever somebody does to the registry, it is put right, and what others wrote is left.
func TestResync(t *testing.T) {
	t.Parallel()
	for _, style := range updateHooked {
		t.Run(string(style), func(t *testing.T) {
			t.Parallel()
			s := resynced(t, "resync-"+string(style), style)
			s.Begin(replicas(4))
			others := s.registerOthers()

			s.must(s.registry.Expire(s.Context(), s.instance(s.Pods()[0]), s.instance(s.Pods()[1])))
			s.ExpectSteady()
			s.must(s.registry.FailOver(s.Context(), s.instance(s.Pods()[2])))
			s.ExpectSteady()
			moved := s.instance(s.Pods()[3])
			moved.Service = "elsewhere"
			s.must(s.registry.Register(s.Context(), moved))
			s.ExpectSteady()
			left := s.instance(s.Pods()[3])
			left.Address, left.Pod, left.UID = "10.9.9.9", "long-gone", "uid-of-long-gone"
			s.must(s.registry.Register(s.Context(), left))
			s.ExpectSteady()

			s.ExpectUntouched(others)
			scenarios{s}.finish()
		})
	}
}

// TestBlockedRemoval: more than resync.maxRemovals go only when a person has approved of exactly these.
func TestBlockedRemoval(t *testing.T) {
	t.Parallel()
	s := resynced(t, "blocked", labels, elect(t, "blocked-lease")...)
	s.Begin(replicas(2))
	for i := range 5 {
		s.must(s.registry.Register(s.Context(), registry.Instance{
			Service: s.ns, Address: "10.9.9.9", Port: i + 1, Cluster: clusterName, Namespace: s.ns,
			Pod: fmt.Sprintf("phantom-%d", i), UID: fmt.Sprintf("uid-of-phantom-%d", i),
		}))
	}
	s.ExpectLogged("removal blocked", "5 of 7 entries", "rollcall.dev/approve-removals")
	s.ExpectMetric(`rollcall_resync_blocked_removals{registry="default"} 5`)
	s.annotateLease("blocked-lease", "rollcall.dev/approve-removals", "0123456789ab")
	operator := s.Kubectl("operator", env.cluster.Config())
	operator.installation = "blocked-lease"
	operator.Expect(0, "resync", "compares the registries with the cluster now")
	operator.Expect(6, "resync --leader-election-id other", "namespace blocked-lease has no Lease other")
	s.ExpectLogged("resync requested")
	s.Expect(len(s.registry.Entries(t, s.ns)) == 7, "what was not approved was removed")

	digests := regexp.MustCompile(`approve-removals=([0-9a-f]{12})`).FindAllStringSubmatch(s.manager.Log(), -1)
	s.annotateLease("blocked-lease", "rollcall.dev/approve-removals", digests[len(digests)-1][1])
	s.ExpectSteady()
	s.ExpectMetric(`rollcall_resync_blocked_removals{registry="default"} 0`)
	scenarios{s}.finish()
}

// instance is the pod's only one.
func (s *scenario) instance(pod *corev1.Pod) registry.Instance {
	s.Helper()
	return s.entriesOf([]*corev1.Pod{pod})[0].Instance
}

// registerOthers registers what is another cluster's, and what is of a namespace that another manager looks after.
func (s *scenario) registerOthers() []registry.Instance {
	s.Helper()
	foreign := registry.Instance{
		Service: s.ns, Address: "10.8.8.8", Port: 80, Cluster: "another", Namespace: s.ns, Pod: "theirs", UID: "uid-of-theirs",
	}
	elsewhere := foreign
	elsewhere.Port, elsewhere.Cluster, elsewhere.Namespace = 81, clusterName, "another-namespace"
	s.must(s.registry.Register(s.Context(), foreign))
	s.must(s.registry.Register(s.Context(), elsewhere))
	return []registry.Instance{foreign, elsewhere}
}

func (s *scenario) ExpectUntouched(all []registry.Instance) {
	s.Helper()
	for _, in := range all {
		entries, err := s.registry.Truth(s.Context(), in.Cluster)
		s.must(err)
		s.Expect(slices.ContainsFunc(entries, func(e registry.Entry) bool { return e.Equal(in) }),
			"the entry of %s/%s in cluster %s is gone", in.Namespace, in.Pod, in.Cluster)
		for _, c := range s.registry.Calls(fakeregistry.Match{UID: in.UID}) {
			s.Expect(c.Op == fakeregistry.OpRegister, "%s was called for an entry of %s", c.Op, in.Cluster)
		}
	}
}

func (s *scenario) annotateLease(namespace, key, value string) {
	s.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account.Lease}}
	s.must(s.k8s.Patch(s.Context(), lease, mergePatch(fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value))))
}
