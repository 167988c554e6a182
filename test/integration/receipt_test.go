package integration

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/test/harness/kube"
	"github.com/rollcall-dev/rollcall/test/harness/manager"
)

// TestReceipt: after a rollout a person asks the manager for the receipt, through the API server, and then holds copies of its log
// against it that somebody has altered.
func TestReceipt(t *testing.T) {
	t.Parallel()
	host := addressOfMachine(t)
	const installation = "receipt-manager"
	log := filepath.Join(t.TempDir(), "audit.jsonl")
	s := alone(t, "receipt", func(c configuration) {
		c["drain"], c["statusPage"], c["audit"] = "1s", true, map[string]any{"path": log}
	}, append(elect(t, installation), "--metrics-bind-address="+host+":0")...)
	pods := s.Begin(inPlace, replicas(3))
	person := s.Kubectl("admin", env.cluster.Config())
	person.installation = installation
	person.Expect(6, "receipt "+s.key.Name, "no manager in namespace "+installation+" serves an audit log")

	s.UpdateInPlace("nginx:2", pods)
	page, err := s.manager.URL(manager.MetricsServer, "")
	s.must(err)
	s.managersPod(installation, page)
	person.Expect(0, "receipt "+s.key.Name, "rev 1→2: 3 pods, ", "0 before acknowledgement, in rotation at least 2 of 3", ": PASS", "From ")
	person.Expect(3, "receipt other", "no rollout of CloneSet other")

	managers, err := kube.Pods(s.Context(), s.k8s, installation)
	s.must(err)
	away := managers[0].DeepCopy()
	away.ObjectMeta = metav1.ObjectMeta{Namespace: installation, Name: "away", Labels: away.Labels}
	away.Spec.Containers[0].Ports[0].ContainerPort = 1
	status := away.Status
	s.must(s.k8s.Create(s.Context(), away))
	away.Status = status
	s.must(s.k8s.Status().Update(s.Context(), away))
	person.Expect(8, "receipt "+s.key.Name, "The receipt is incomplete: asking the manager away", ": PASS", "not every manager's log")

	whole, err := os.ReadFile(log)
	s.must(err)
	copied := filepath.Join(t.TempDir(), "copy.jsonl")
	lines := bytes.SplitAfter(whole, []byte("\n"))
	for _, c := range []struct {
		what, says string
		log        []byte
		status     int
	}{
		{"as it is", ": PASS", whole, 0},
		{"cut off", "is cut off", whole[:len(whole)-20], 8},
		{"altered", "line 4 was altered", bytes.Replace(whole, lines[3], bytes.Replace(lines[3], []byte(`"at":"20`), []byte(`"at":"19`), 1), 1), 8},
		{"another file", "no line of an audit log", []byte("cluster: a\n"), 8},
		{"without a line", "line 4: line 3 of chain", bytes.Replace(whole, lines[3], nil, 1), 8},
	} {
		s.must(os.WriteFile(copied, c.log, 0o600))
		person.Expect(c.status, "receipt "+s.key.Name+" --file "+copied, c.says)
	}
}
