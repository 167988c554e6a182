// Command chaos plays a random plan of rollouts and faults on a real control plane with real OpenKruise and real managers,
// and holds what the registry acknowledged against what happened to the pods. It is run by `make chaos`:
//
//	make chaos CHAOS=5m            # as long as this; 15m if left out
//	make chaos SEED=42             # the plan of an earlier run again
//	make chaos-mutants             # the test of this test: managers that are broken on purpose must fail
//	make soak                      # rollouts alone for half an hour, and what the managers hold meanwhile
//
// A round is a storm, in which pods are updated, scaled and deleted while faults come and go, and a calm after it, in
// which every fault has stopped and the registry must equal the cluster within one resync period.
//
// # What it sees
//
// The registry is a server in this process that speaks the http driver's protocol. It journals every call: when it came,
// when its work was done, when and how it was answered. Managers reach it through a network that fails
// on purpose. They reach the API server
// through a proxy in this process, which journals every patch of a pod. So one clock orders a call, the patch that rests
// on it, and the watch event that shows what the patch changed.
//
// # What it checks, all the time
//
//   - A hook is released only when every instance of the pod that was ever put in service was taken out by a call that
//     was acknowledged, and the drain has passed since (I1). Nothing puts it in again after, be it on its way when the
//     release came or sent later, until the pod is back where it should be in.
//   - A hook is asserted only when every instance that the pod has was put in service by a call that was acknowledged,
//     and nothing took it out since (I2). Nothing that was on its way then takes it out after.
//   - A hook is flipped only in the lifecycle state that it belongs to, and by a patch of a manager (I3).
//   - Kruise takes no pod for back from its update by a handler that the update has brought, and that a manager had time to clear (I2).
//   - A pod that is Normal and ready and has not moved is not taken out, and one that has moved not before it has joined (I9).
//   - A pod is registered only where it belongs, with its own metadata, and with no more of its weight than it has earned.
//   - Only a manager that has the lease changes anything.
//
// The rules are the checker's own, and so is what an entry must have: it follows from the pod and from what chaos has configured.
//
// The moment that counts is when the patch reached the proxy: what the manager rests on happened before.
//
// # What it assumes
//
// What the design does: a call that timed out is carried out within twice its timeout or never. And what OpenKruise does: an update in
// place changes the image, or Kruise is done with it before a manager can see it.
package main
