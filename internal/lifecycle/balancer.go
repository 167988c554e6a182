package lifecycle

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// balancerGates begin the readiness gates of cloud load balancers that keep a pod as a target although it is not Ready:
//
//	AWS, ip targets    while its containers are ready (aws-load-balancer-controller's pkg/backend/endpoint_resolver.go, at 043f39b9)
//	Alibaba CLB, NLB   the same, for pods with its gate (cloud-provider-alibaba-cloud); ALB has a gate of its own
//	GKE NEG            until it terminates (ingress-gce's pkg/neg/syncers/utils.go, shouldPodBeInNeg, at 011cb28c)
//	Lattice            the same (aws-application-networking-k8s' pkg/gateway/model_build_targets.go, at 015b8972)
func balancerGates() [5]string {
	return [...]string{
		"target-health.elbv2.k8s.aws", "service.readiness.alibabacloud.com/", "target-health.alb.k8s.alicloud",
		"cloud.google.com/load-balancer-neg-ready", "application-networking.k8s.aws/",
	}
}

// KeptAsTarget returns the gate of a load balancer that does not follow [ConditionInRotation], although these gates have it.
func KeptAsTarget(gates []corev1.PodReadinessGate) corev1.PodConditionType {
	if !slices.Contains(gates, corev1.PodReadinessGate{ConditionType: ConditionInRotation}) {
		return ""
	}
	for _, gate := range gates {
		for _, prefix := range balancerGates() {
			if strings.HasPrefix(string(gate.ConditionType), prefix) {
				return gate.ConditionType
			}
		}
	}
	return ""
}

// BalancerRemedy is for a gate of [KeptAsTarget].
const BalancerRemedy = "by which a cloud load balancer registers the pod. That balancer does not follow readiness gate " +
	"rollcall.dev/InRotation: it sends requests to a pod that is out of rotation, until the pod's containers are unready or it terminates. " +
	"Make the application unready itself, for example with the driver pod"
