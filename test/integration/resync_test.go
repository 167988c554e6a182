package integration

import (
	"fmt"
	"regexp"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/account"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
)

// TestBlockedRemoval: a run of resync puts back what is missing, and more than resync.maxRemovals go only when a person has approved
// of exactly these.
func TestBlockedRemoval(t *testing.T) {
	t.Parallel()
	s := alone(t, "blocked", func(c configuration) {
		c["resync"] = map[string]any{"interval": "1s"}
	}, elect(t, "blocked-lease")...)
	pods := s.Begin(replicas(2))
	s.must(s.registry.Expire(s.Context(), s.entriesOf(pods[:1])[0].Instance))
	s.ExpectLogged("registry drift detected", `"missing":1`)
	s.ExpectSteady()
	for i := range 5 {
		s.must(s.registry.Register(s.Context(), registry.Instance{
			Service: s.ns, Address: "10.9.9.9", Port: i + 1, Cluster: clusterName, Namespace: s.ns,
			Pod: fmt.Sprintf("phantom-%d", i), UID: fmt.Sprintf("uid-of-phantom-%d", i),
		}))
	}
	s.ExpectLogged("removal blocked", "5 of 7 entries", "kubectl -n blocked-lease annotate lease rollcall --overwrite rollcall.dev/resync=")
	s.ExpectMetric(`rollcall_resync_blocked_removals{registry="default"} 5`)
	s.annotateLease("blocked-lease", "0123456789ab")
	operator := s.Kubectl("operator", env.cluster.Config())
	operator.installation = "blocked-lease"
	operator.Expect(0, "resync", "compares the registries with the cluster now")
	elsewhere := s.Kubectl("elsewhere", env.cluster.Config())
	elsewhere.installation = "default"
	elsewhere.Expect(6, "resync", "namespace default has no Lease rollcall")
	s.ExpectLogged("resync requested")
	s.Expect(len(s.registry.Entries(t, s.ns)) == 7, "what was not approved was removed")

	s.approveLast()
	s.ExpectSteady()
	s.ExpectMetric(`rollcall_resync_blocked_removals{registry="default"} 0`)
	s.ExpectNothingLeft()
	s.ExpectAlways()
}

// replacedUnseen starts a scenario of 12 pods, all of which are replaced while no manager runs: the registry has an entry of each that
// is gone, and none of the new ones. Events about the configuration are made in the pods' namespace.
func replacedUnseen(t *testing.T, name string) *scenario {
	t.Helper()
	r := startRegistry(t)
	config := defaultConfiguration(r.URL(), name)
	config["resync"] = map[string]any{"interval": "1s"}
	m := prepareManager(t, name, env.account, config, elect(t, name+"-lease")...)
	m.Env = append(m.Env, "POD_NAMESPACE="+name)
	restart(t, m)
	s := newScenario(t, m, r, labels, name)
	s.troubled = true
	before := s.Begin(replicas(12))
	s.manager.Kill()
	for _, pod := range before {
		s.DeletePod(pod)
	}
	for _, pod := range before {
		s.AwaitGone(pod)
	}
	s.AwaitPods(12)
	left := s.registry.Entries(t, s.ns)
	s.Expect(len(left) == 12, "something was removed without a manager")
	for i, e := range left { // to where no new pod is: one that is takes the entry over
		s.must(s.registry.Expire(s.Context(), e.Instance))
		e.Address = fmt.Sprintf("10.9.9.%d", i+1)
		s.must(s.registry.Register(s.Context(), e.Instance))
	}
	return s
}

// TestEntriesOfAnOutage: what a cluster left in the registry while Rollcall was down goes without a person, although that is all that
// it has there.
func TestEntriesOfAnOutage(t *testing.T) {
	t.Parallel()
	s := replacedUnseen(t, "outage")
	restart(t, s.manager)
	s.ExpectSteady()
	s.ExpectMetric(`rollcall_resync_entries_total{finding="reaped",registry="default"} 12`)
	s.ExpectMetric(`rollcall_resync_blocked_removals{registry="default"} 0`)
	s.await("an Event that says how many", func() error { return s.hasEvent(nil, corev1.EventTypeNormal, "ManyRemovals", "12 of ") })
	s.Expect(s.hasEvent(nil, corev1.EventTypeWarning, "RemovalBlocked") != nil, "a person was asked")
	s.ExpectNothingLeft()
	s.ExpectAlways()
}

// TestEntriesOfAnotherCluster: what was written for another cluster with the same name waits for a person, and that somebody is at
// work there is told of.
func TestEntriesOfAnotherCluster(t *testing.T) {
	t.Parallel()
	s := replacedUnseen(t, "namesake")
	var theirs []registry.Instance
	for _, e := range s.registry.Entries(t, s.ns) {
		s.Expect(e.ClusterUID != "", "the entry of pod %s has no UID of the cluster", e.Pod)
		e.ClusterUID = "uid-of-another-cluster"
		s.must(s.registry.Register(s.Context(), e.Instance))
		theirs = append(theirs, e.Instance)
	}
	restart(t, s.manager)
	blocked := func(words ...string) {
		t.Helper()
		s.await(fmt.Sprintf("a RemovalBlocked with %q", words), func() error {
			return s.hasEvent(nil, corev1.EventTypeWarning, "RemovalBlocked", words...)
		})
	}
	blocked("12 of ", "12 carry the UID of another cluster with the same name, such as uid-of-another-cluster")
	s.ExpectMetric(`rollcall_resync_blocked_removals{registry="default"} 12`)
	s.Expect(s.hasEvent(nil, corev1.EventTypeWarning, "ClusterNameShared") != nil, "nobody is at work there")
	s.must(s.registry.FailOver(s.Context(), theirs[0]))
	s.await("an Event that two clusters have one name", func() error {
		return s.hasEvent(nil, corev1.EventTypeWarning, "ClusterNameShared", clusterName, "uid-of-another-cluster")
	})
	s.must(s.registry.Expire(s.Context(), theirs[0]))
	blocked("11 of ", "which may be at work")
	s.Expect(len(s.registry.Entries(t, s.ns)) >= 11, "what is another cluster's was removed")
	s.approveLast()
	s.ExpectSteady()
	s.ExpectNothingLeft()
	s.ExpectAlways()
}

// approveLast approves of the removals that the manager's log told of last.
func (s *scenario) approveLast() {
	s.Helper()
	digests := regexp.MustCompile(`rollcall.dev/resync=([0-9a-f]{12})`).FindAllStringSubmatch(s.manager.Log(), -1)
	s.annotateLease(s.ns+"-lease", digests[len(digests)-1][1])
}

func (s *scenario) annotateLease(namespace, value string) {
	s.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account.Lease}}
	s.must(s.k8s.Patch(s.Context(), lease, kube.Merge(`{"metadata":{"annotations":{"rollcall.dev/resync":%q}}}`, value)))
}
