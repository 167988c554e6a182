// Package integration runs Rollcall against a real control plane with OpenKruise, scenario by scenario.
//
// One cluster serves the whole run. The manager is a process of its own (this test binary started again), so it can be
// killed and restarted as in life. It talks to the API server through a proxy that writes down each of its writes, and
// can hold one back, and to a registry over real sockets that writes down each answer. A watch sees every version of every
// pod. What must always hold is checked after each scenario from these three journals:
//
//   - the registry holds exactly the pods that can serve, and nothing once they are gone;
//   - every pod is where Kruise wants it, with its hooks armed again;
//   - no hook was flipped before the registry had acknowledged;
//   - no transition cost more calls and writes than it may.
//
// One scenario alone: go test ./test/integration -v -run 'TestScenarios/cancel-late/mixed'. With
// ROLLCALL_INTEGRATION_KEEP=1 the logs of all servers and managers stay in /tmp/rollcall-integration-*.
package integration
