// Package reason lists the reasons in Rollcall's Events on pods and CloneSets, in its metric of waiting pods and in the kubectl
// plugin. It imports no other package of the project.
package reason

import (
	"regexp"
	"strings"
)

// released matches the version of a release. That of a commit after one, from git describe, has more behind it.
var released = regexp.MustCompile(`^v\d+\.\d+\.\d+$`)

// Reason is why a pod waits: a label of the metrics, and the reason of the Event if a person should act. Some are only the
// reason of an Event.
type Reason string

// The reasons, in groups by who has to act. Their comments are also docs/reference/reasons.md (see hack/docs): of a block the title of
// the group and what its reasons have in common; of a reason what it means, and from "What to do:" on what a person should do.

// Just wait: part of any rollout. Act only if it lasts.
const (
	// Draining: out of rotation; the drain has not passed. [Until idle](../traffic.md#drain-until-idle), the message shows what the pod last
	// answered.
	//
	// What to do: wait. If a pod counts as busy because it can't be asked, set what the message shows.
	Draining Reason = "Draining"
	// Queued: all slots of the registry are taken, or seven eighths of them by the same service, and half while another service
	// waits. The pod continues when it is its turn.
	//
	// What to do: wait. If it lasts, check how long the registry's calls take.
	Queued Reason = "Queued"
	// Settling: an earlier call timed out, or a gateway or a connection lost it in the middle. It may still be carried out.
	//
	// What to do: wait, at most twice the registry's `timeout`.
	Settling Reason = "Settling"
	// WarmingUp: the pod is in rotation with a part of its weight, and OpenKruise waits until it has all of it, since `warmUp.countsAs`
	// is `End`.
	//
	// What to do: wait. If rollouts take too long, set `warmUp.countsAs` to `Start`, or shorten `warmUp.duration`.
	WarmingUp Reason = "WarmingUp"
	// NotEffective: Rollcall's change is acknowledged, and does not reach clients yet. The registry checks the pod before it gives it to
	// clients, or clients read from caches until `readerLag` has passed. Or the EndpointSlices of the pod's Services do not show its
	// condition InRotation yet: kubelet and the EndpointSlice controller have to follow first. Rollcall asks again with a back-off of at
	// most 30 s. The Event about EndpointSlices comes after 10 minutes; caches have none.
	//
	// What to do: wait. If it lasts, check in the registry what the message shows. For EndpointSlices, check whether a Service selects
	// the pod, the kubelet of its node, and kube-controller-manager.
	NotEffective Reason = "NotEffective"
	// AwaitingOpenKruise: the pod is out of the registry and its hook is released, and OpenKruise has neither updated nor
	// deleted it yet. No client is sent to it.
	//
	// What to do: if it lasts, check what `kubectl rollcall explain` shows, the workload's `partition`, `paused` and `maxUnavailable`,
	// the events of OpenKruise and another controller's handlers on the pod. If another pod [met the partition of a
	// canary](../monitoring.md#rollcallpoddrainedfornothing), delete the pod or lower the partition. A StatefulSet needs
	// [`podManagementPolicy: Parallel`](../workloads.md#advanced-statefulset), and a pod of one whose scale-in was cancelled stays
	// so forever: delete it.
	AwaitingOpenKruise Reason = "AwaitingOpenKruise"
	// ManagerNotReady: the manager can't act on the pod now, and has asked no registry. Its lease was not renewed in time, the
	// configuration has just changed, its cache lacks the pod's namespace, or it was asked to stop, and the next manager continues. Or
	// its cache has not shown its own last change of the pod for a minute: its watch of pods hangs, and no hook is released or set on an
	// old view. Only that has an Event.
	//
	// What to do: wait. If it lasts, check the API server and the network between the two. If the message shows that the cache hangs,
	// restart the manager.
	ManagerNotReady Reason = "ManagerNotReady"
	// Acknowledgement: what the kubectl plugin shows if it can't ask the manager, and neither the manager's last Event nor the pod shows
	// more. The registry has not acknowledged yet, `readerLag` has not passed since, or the manager has yet to release the hook.
	//
	// What to do: wait. If it lasts, check [who sees the status page](../status-page.md#who-sees-what), or the manager's log.
	Acknowledgement Reason = "Acknowledgement"
)

// The registry: the registry, or an agent of it, holds the pod: whoever runs it acts.
const (
	// RegistryUnavailable: the registry could not be reached, took longer than its `timeout`, or answered with a temporary error.
	// Retried with a back-off of at most 30 s. If the message shows an open circuit breaker, the calls of several pods failed; one call
	// every 5 s tries the registry, and all continue as soon as it answers. If the message shows that the registry has not yet listed, a
	// new leader found no record on the pod; with Eureka that takes up to 4 minutes. If it shows a node's agent, the registry has the
	// application's entry, and the agent that owns the entry failed; with the driver `pod`, that is the application in the pod, which may
	// still be in rotation.
	//
	// What to do: check the registry, or the agent or the pod that failed, and `endpoint`, `agentEndpoint` and `timeout` in the
	// configuration. With the driver `pod`, check that a NetworkPolicy lets Rollcall reach the URL in the message.
	RegistryUnavailable Reason = "RegistryUnavailable"
	// RegistryRefused: the registry, or the agent or the pod that has the application's entry, refused, and will refuse again:
	// credentials, a certificate, a field of the configuration, or an instance that it does not accept. Retried every 30 s, and
	// immediately when the configuration changes.
	//
	// What to do: fix what the message shows, in the words of the server that refused.
	RegistryRefused Reason = "RegistryRefused"
	// UnknownRegistry: the pod is still in a registry that the configuration no longer has.
	//
	// What to do: put the registry back into `registries` until its pods have left it.
	UnknownRegistry Reason = "UnknownRegistry"
	// NotConfirmed: a call failed or timed out, a later one was acknowledged, but the registry still shows something else for the
	// pod. Rollcall makes the call again with a back-off of at most 30 s.
	//
	// What to do: find out who else writes the pod's entry in the registry.
	NotConfirmed Reason = "NotConfirmed"
)

// The application: the application in the pod holds it, or what the application writes into the registry.
const (
	// NotReady: the pod is not ready, or OpenKruise updates it in place, so it is out of rotation. Or a registry may have it out although
	// the pod is kept. The message is what keeps it from being ready, or the update from being finished: a container, its image, a
	// readiness gate or the scheduler.
	//
	// What to do: if it lasts, fix what the message shows. If it is the image, correct it in the workload.
	NotReady Reason = "NotReady"
	// AppNotRegistered: the application registers itself (`registeredBy: App`), and the registry has no entry of it at the pod's
	// service, addresses and port. If it has the pod's address and port under other service names, the message lists the names. The pod
	// waits, also before it is deleted or updated in place if it was ever ready and no entry was ever found: clients may reach it at an
	// address that Rollcall does not know. Checked again every 5 s at least. A pod that became ready within the last 30 s has no Event
	// yet.
	//
	// What to do: compare what Rollcall looked for, as the message shows it, with what the application registers: the service name, the
	// address and the port. If the message lists a name, put it into `rollcall.dev/services` or `service.name`. To skip the hook of a
	// pod that waits to be deleted or updated, use `kubectl rollcall skip` or `proceedAfter`. See [the application registers
	// itself](../self-registration.md).
	AppNotRegistered Reason = "AppNotRegistered"
	// AppEntryRemains: the pod is gone, and the entry that its application wrote is still in the registry, out of rotation. Once the
	// entry is gone, Rollcall makes the registry forget that it was out. After 3 minutes it stops looking: the entry stays out, for as
	// long as the registry has it.
	//
	// What to do: wait. If the entry is there after 3 minutes, check whether its application still runs, and stop it.
	AppEntryRemains Reason = "AppEntryRemains"
	// AlsoRegistersItself: clients are given one of the pod's addresses by an entry that this configuration does not manage. Most likely the
	// application registers itself. If the entry has Rollcall's own ownership tag, from before an option was changed, the message shows that.
	// The registry's acknowledgement does not cover that entry, so both directions wait. Checked again every 30 s.
	//
	// What to do: as the message shows, turn off the application's own registration, or let Rollcall steer its entry: [the application
	// registers itself](../self-registration.md). Remove [an entry with Rollcall's
	// tag](../self-registration.md#an-entry-with-rollcalls-own-tag).
	AlsoRegistersItself Reason = "AlsoRegistersItself"
	// OtherWriter: only an Event; the pod does not wait. Somebody else writes the application's entry. It came back into rotation while
	// the pod had to be out of it, and Rollcall took it out again; there is one Event for as long as the pod is out. Or there are
	// several entries at the pod's service, address and port, which Rollcall takes out and puts back together, or one at another of the
	// pod's addresses, which it does not take out, as the message shows.
	//
	// What to do: find out what else writes the entry: the application itself, an agent, or a person. One that a killed container left
	// behind goes by itself; with an instance ID that stays the same, none is left behind. If the entries are at two addresses, let the
	// application register at one.
	OtherWriter Reason = "OtherWriter"
	// DrainTimeout: only an Event. A drain [until idle](../traffic.md#drain-until-idle) has ended by `max`: the pod was still busy, or could
	// not be asked, as the message shows. Its hook was released, so the requests that were left may have been cut off.
	//
	// What to do: raise `max` in `drain`, or have the application end long requests by itself. If the pod could not be asked, set what the
	// message shows.
	DrainTimeout Reason = "DrainTimeout"
)

// The manifest: change the workload, its pods, or what the configuration has about them.
const (
	// InvalidPod: the pod has no port to register, or an annotation that does not parse. Or nothing waits for the pod, and something is
	// wrong all the same. An annotation has no effect: Rollcall does not know a name that begins with `rollcall.dev/`, or
	// `rollcall.dev/ends-at` of the pod or of its node is not a time; all pods on such a node show the reason. Clients likely don't reach
	// the application: the entry's port is that of a container which a [mesh](../meshes.md) or another webhook has put first, its
	// address is one of [vCluster's](../virtual-clusters.md) own, or it lacks the metadata `IPv6` in brackets that applications under the
	// same name have. Or a [cloud load balancer](../pod-condition.md#cloud-load-balancers) keeps the pod as a target while it is out of
	// rotation, so that an update in place loses requests.
	//
	// What to do: set what the message shows, in the workload's template, on the node or in the configuration.
	InvalidPod Reason = "InvalidPod"
	// ServiceNotAllowed: the pod's namespace may not use the service name: `service.allowed` in the configuration does not give it the
	// name. Or another namespace has it: pods of it are registered under the name, or were until five minutes ago, or it was created
	// first among those whose workloads use the name. A pod that is registered under a name that is not allowed stays in rotation, and
	// shows the reason all the same.
	//
	// What to do: take another name, put `{namespace}` into `service.name`, or set in `service.allowed` whose the name is, or `shared:
	// true` if it is of both namespaces.
	ServiceNotAllowed Reason = "ServiceNotAllowed"
	// HandlerRefused: a handler that Rollcall owns can't be used: its key is in the workload's selector, its value is empty, two hooks
	// want it at different values, it is a newly-created mark too, or the workload has more than 50 handlers. What it blocks stays
	// blocked. Or the pod has one that Rollcall owns, and belongs to a workload that Rollcall does not drive.
	//
	// What to do: change in the workload what the message shows, or take the key out of `hooks.owned`.
	HandlerRefused Reason = "HandlerRefused"
	// HandlerInTemplate: only an Event. The workload's template sets a handler of the hook inPlaceUpdate, and the pod is
	// being updated in place, or has just been. OpenKruise writes what an update adds to the template's labels and
	// finalizers in the same step in which it begins the update: the hook is then asserted before the registry has
	// acknowledged, and OpenKruise counts the pod as available although no client finds it. If the image changes, Rollcall
	// clears the handler in time; if only metadata changes, it is too late.
	//
	// What to do: remove the handler from `spec.template`. Rollcall sets it on each pod.
	HandlerInTemplate Reason = "HandlerInTemplate"
	// HooksRemoved: only an Event, on the workload. Its `spec.lifecycle` lost Rollcall's handlers of a hook, so OpenKruise updates or deletes
	// pods without waiting for a registry. If the same write changed the template, the first pods of that rollout are updated like this.
	// Rollcall restores the hooks of CloneSets that it enrolled by the namespace's label, unless the label is gone.
	//
	// What to do: nothing, if it was you. Otherwise find out who wrote last, with `kubectl get cloneset NAME -o yaml
	// --show-managed-fields`, and see [what takes hooks away](../gitops.md#what-takes-hooks-away).
	HooksRemoved Reason = "HooksRemoved"
	// NotEnrolled: only an Event, on a CloneSet of a namespace that is to be [enrolled](../enrollment.md), or no longer. It has hooks of
	// someone else or is written as a whole by its owner or Karmada, Rollcall could not register its pods, or the API server
	// refused the change: somebody else manages a handler, or a policy denies the change.
	//
	// What to do: set what the message shows, or label the CloneSet `rollcall.dev/enroll: "false"`.
	NotEnrolled Reason = "NotEnrolled"
	// SkipRefused: only an Event. The annotation `rollcall.dev/skip` asks for what can't be done, or comes from the workload's
	// template; in that case Rollcall removed it from the pod.
	//
	// What to do: set what the message shows.
	SkipRefused Reason = "SkipRefused"
	// NotWatched: what the kubectl plugin shows of a pod whose namespace is not in `namespaces` of the configuration: the manager
	// leaves the pod alone, and neither sets nor clears the handlers of its hooks.
	//
	// What to do: if another installation watches the namespace, pass that installation's namespace with
	// `--rollcall-namespace`. Otherwise add it and restart the managers, or label it so that the selector matches.
	NotWatched Reason = "NotWatched"
)

// The pod or the cluster: check the pod, its node, OpenKruise or the API server.
const (
	// NoAddress: the pod has no IP yet, or lacks the address that service.address or rollcall.dev/address chooses, or its network-status
	// can't be read. The message is what was looked for and what the pod has.
	//
	// What to do: wait. If it lasts, check the pod's node and its network, or choose an address that the pod has.
	NoAddress Reason = "NoAddress"
	// HeldNotReady: an in-place update with `markPodNotReady` was rolled back, and OpenKruise keeps the pod not ready forever.
	//
	// What to do: delete the pod, or update it in place.
	HeldNotReady Reason = "HeldNotReady"
	// PanicThreshold: more than `panicThreshold` of a service's pods are not ready at the same time, which looks like a fault of a
	// node or the network. The pod stays in rotation although it is not ready; the last pod of a service always does, unless
	// `panicThreshold` is `100%`.
	//
	// What to do: check the pods, their nodes and the network.
	PanicThreshold Reason = "PanicThreshold"
	// Ending: the pod ends for certain, as the message shows, and is out of rotation before it does. Its node is shutting down or is off,
	// the node's end was announced and leaves no more than the drain, or an eviction of the pod is let through after the drain. No
	// panic threshold holds such a pod, even if it is the last one of its service.
	//
	// What to do: wait for the pods that replace it. If the pod is still there 5 minutes after an announced end, Rollcall puts it back.
	Ending Reason = "Ending"
	// Orphaned: the pod belongs to no workload. If somebody changed its labels, the selector of its CloneSet no longer matches, and
	// OpenKruise has detached the pod and makes another in its place. Such a pod leaves the rotation, whatever the panic threshold, and
	// stays out for as long as it belongs to no workload. The pod stays in rotation as long as it is ready if its CloneSet was deleted
	// with `--cascade=orphan` or came back after the pod, for example from a backup. So does a pod that has had the labels of its
	// CloneSet for 10 minutes, but no owner reference. Nothing waits for it.
	//
	// What to do: delete the pod; a CloneSet adopts none. To have it in rotation without a workload, set its annotation
	// `rollcall.dev/keep-detached: "true"`, also before you change its labels.
	Orphaned Reason = "Orphaned"
	// UnknownState: a lifecycle state that this version does not know. The registry is left as it is.
	//
	// What to do: use a supported OpenKruise.
	UnknownState Reason = "UnknownState"
	// APIServerFailed: the API server refuses Rollcall's change of the pod, by its access control, an admission webhook, a policy or its
	// validation. Or each try has failed for a minute: to change the pod, for example because a webhook with `failurePolicy: Fail` does not
	// answer; or to read what a decision about the pod rests on, such as its workload. Rollcall then does nothing with the pod, since
	// what it can't read could forbid it. Retried every 30 s at least. If the same fails for many pods, they show the reason in the
	// metric, on the status page and in the plugin, and get their Events little by little.
	//
	// What to do: allow what the message shows, in the API server's own words. If it did not refuse, repair the webhook in the message, or
	// check the API server's log.
	APIServerFailed Reason = "APIServerFailed"
	// RightsMissing: the registry follows the pod's condition InRotation, and the manager lacks the right to write that condition. The
	// ConfigMap with the configuration has a Warning of the same reason. The pod waits in both directions, and continues as soon as the
	// right is there.
	//
	// What to do: apply what the message shows.
	RightsMissing Reason = "RightsMissing"
	// RolloutWaits: only an Event, on the workload. OpenKruise has waited for a minute or longer for one of its pods, and not
	// because of a drain; for ten minutes or longer if the pod is not ready. One Event covers all of its pods that wait, and is
	// repeated every half hour.
	//
	// What to do: check the pod in the message.
	RolloutWaits Reason = "RolloutWaits"
)

// Information: it has happened, or somebody wants it so.
const (
	// HeldOut: a person holds the pod out of rotation, with `kubectl rollcall hold` or the annotation `rollcall.dev/hold`, until the time that
	// the message shows. Or its CloneSet's annotation `rollcall.dev/traffic` gives [the pod's revision](../traffic.md#by-revision) no share.
	// It counts for no panic threshold. Hooks pass as for any pod that is out; one that waits for the pod to be in rotation waits until
	// the hold ends, or the revision gets a share.
	//
	// What to do: nothing. `kubectl rollcall hold POD --undo` puts it back earlier.
	HeldOut Reason = "HeldOut"
	// ReleasedUnacknowledged: only an Event. OpenKruise continued with the pod without the registry's acknowledgement, as the message
	// shows. `proceedAfter` had passed, or a person wrote the annotation `rollcall.dev/skip`, which skips the drain too. Or the
	// [eviction webhook](../evictions.md) let an eviction through, because of its limit or because the pod's node shuts down. After a
	// hook, Rollcall still makes the call, as soon as the registry answers. If the API server accepts the release of a hook and its
	// answer is lost, neither this Event nor the metric shows it.
	//
	// What to do: nothing, if you skipped it. Otherwise check the registry, and what the pod has waited for: clients may have been sent
	// to a pod that was not there.
	ReleasedUnacknowledged Reason = "ReleasedUnacknowledged"
	// EvictionHooked: only an Event, of the [eviction webhook](../evictions.md). The pod's first eviction became a hooked
	// deletion.
	//
	// What to do: wait until the pod is gone.
	EvictionHooked Reason = "EvictionHooked"
	// RolloutProgress: only an Event, on the CloneSet. The first pod of an update is in rotation, or as many as are to be updated: with a
	// partition, fewer than all. A new leader makes it for what it sees happen.
	//
	// What to do: nothing.
	RolloutProgress Reason = "RolloutProgress"
	// DryRun: the manager runs with `--dry-run` and has shown what it would do.
	//
	// What to do: nothing.
	DryRun Reason = "DryRun"
	// Resolved: only an Event. The reason of an earlier Warning no longer applies.
	//
	// What to do: nothing.
	Resolved Reason = "Resolved"
)

// Page is where a person reads about the reason, as it is in a version.
func (r Reason) Page(version string) string {
	return Docs(version, "docs/reference/reasons.md#"+strings.ToLower(string(r)))
}

// Docs is the address of a file of the repository as it is in a version: that of the version's tag for a release, and of main for
// what was built between two.
func Docs(version, path string) string {
	if !released.MatchString(version) {
		version = "main"
	}
	return "https://github.com/rollcall-dev/rollcall/blob/" + version + "/" + path
}
