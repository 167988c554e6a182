package main

import (
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"

	"github.com/rollcall-dev/rollcall/registry"
)

// TestUnprovoked is about pods that are taken out for no reason.
func TestUnprovoked(t *testing.T) {
	t.Parallel()
	checkAll(t, map[string]happening{
		"taken out for no reason": {
			reason: "a pod that is Normal, ready and has not moved stays in service",
			happen: func(s *story) { s.inService(); s.wait(reasonLasts); s.call(opFailOver); s.call(opRegister) },
			want:   "I9: call #2 took web at " + testAddress + ":8080 in registry default out",
		},
		"taken out for a reason of before": {
			reason: "the manager's cache may lag, and the call was on its way",
			happen: func(s *story) {
				s.updateAsked()
				s.normal()
				s.wait(reasonLasts - time.Second)
				s.call(opFailOver)
			},
		},
		"taken out for a reason that is seen later": {
			reason: "our watch may lag behind the manager's, and Kruise stamps its move",
			happen: func(s *story) {
				s.inService()
				s.wait(reasonLasts)
				moved := s.now
				s.call(opFailOver)
				s.wait(watchLags + time.Second)
				s.pod.state, s.pod.stamp = string(appspub.LifecycleStatePreparingUpdate), moved.UTC().Format(time.RFC3339)
				s.show(traffic, updateGate, deleteGate)
			},
		},
		"taken out, not ready": {
			reason: "that is what readiness is for",
			happen: func(s *story) {
				s.inService()
				s.wait(reasonLasts)
				s.call(opFailOver)
				s.wait(watchLags / 2)
				s.pod.ready = false
				s.show(traffic, updateGate, deleteGate)
			},
		},
		"taken out, not ready much later": {
			reason: "no manager can have known",
			happen: func(s *story) {
				s.inService()
				s.wait(reasonLasts)
				s.call(opFailOver)
				s.wait(2 * watchLags)
				s.pod.ready = false
				s.show(traffic, updateGate, deleteGate)
			},
			want: "I9: call #2",
		},
		"taken out at an address that it has left": {
			reason: "what is wrong goes",
			happen: func(s *story) {
				s.inService()
				s.wait(reasonLasts)
				c := s.callReceived("m1", defaultRegistry, opDeregister, registry.Instance{
					Service: "web", Address: "127.100.0.99", Port: 8080, UID: testUID, Cluster: clusterName,
				}, "", s.tick())
				s.callApplied(c, s.tick())
				s.callAnswered(c, 204, s.tick())
			},
		},
		"taken out by a manager that was blind": {
			reason: "the API server was away since the pod came back",
			happen: func(s *story) {
				s.updateAsked()
				sight := s.blind(s.tick())
				s.normal()
				s.wait(2 * reasonLasts)
				s.call(opFailOver)
				sight(s.tick())
			},
		},
		"taken out by a manager that was blind, and had no reason before": {
			reason: "a pod that was steady all along gives no one a reason",
			happen: func(s *story) {
				s.inService()
				s.wait(2 * reasonLasts)
				sight := s.blind(s.tick())
				s.wait(2 * reasonLasts)
				s.call(opFailOver)
				sight(s.tick())
			},
			want: "I9: call #2",
		},
		"taken out long after a manager was blind": {
			reason: "it has caught up",
			happen: func(s *story) {
				s.updateAsked()
				sight := s.blind(s.tick())
				s.normal()
				sight(s.tick())
				s.wait(blindAfter)
				s.call(opFailOver)
			},
			want: "I9: call #2",
		},
	})
}
