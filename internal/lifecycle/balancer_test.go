package lifecycle

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestKeptAsTarget(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		gates  []corev1.PodConditionType
		want   corev1.PodConditionType
	}
	const ours = ConditionInRotation
	expect.Each(t, map[string]row{
		"no gate":          {reason: "no balancer"},
		"Rollcall's alone": {reason: "Services follow it", gates: []corev1.PodConditionType{ours}},
		"a balancer's alone": {
			reason: "nobody counts on Ready to take the pod out", gates: []corev1.PodConditionType{"cloud.google.com/load-balancer-neg-ready"},
		},
		"AWS":          {"ip targets", []corev1.PodConditionType{"target-health.elbv2.k8s.aws/k8s-prod-web-1", ours}, "target-health.elbv2.k8s.aws/k8s-prod-web-1"},
		"GKE":          {"a NEG", []corev1.PodConditionType{ours, "cloud.google.com/load-balancer-neg-ready"}, "cloud.google.com/load-balancer-neg-ready"},
		"Lattice":      {"a gate of its controller", []corev1.PodConditionType{ours, "application-networking.k8s.aws/pod-readiness-gate"}, "application-networking.k8s.aws/pod-readiness-gate"},
		"Alibaba":      {"CLB or NLB", []corev1.PodConditionType{ours, "service.readiness.alibabacloud.com/web"}, "service.readiness.alibabacloud.com/web"},
		"Alibaba, ALB": {"its own prefix", []corev1.PodConditionType{ours, "target-health.alb.k8s.alicloud/web"}, "target-health.alb.k8s.alicloud/web"},
		"another's":    {"it may follow Ready", []corev1.PodConditionType{ours, "example.com/warm"}, ""},
	}, func(t *testing.T, c row) {
		var gates []corev1.PodReadinessGate
		for _, one := range c.gates {
			gates = append(gates, corev1.PodReadinessGate{ConditionType: one})
		}
		expect.Equal(t, c.want, KeptAsTarget(gates), "%s", c.reason)
	})
}
