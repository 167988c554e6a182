package integration

import (
	"fmt"
	"regexp"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
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
	s.ExpectNothingLeft()
	s.ExpectAlways()
}

func (s *scenario) annotateLease(namespace, key, value string) {
	s.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account.Lease}}
	s.must(s.k8s.Patch(s.Context(), lease, kube.Merge(`{"metadata":{"annotations":{%q:%q}}}`, key, value)))
}
