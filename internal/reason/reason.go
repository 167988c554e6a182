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

// The reasons. Their comments are also docs/reference/reasons.md (see hack/docs): what it means, and from "What to do:" on
// what a person should do.
const (
	// RegistryUnavailable: the registry could not be reached, or answered with a temporary error. Retried with a back-off of at
	// most 30 s. If the message shows an open circuit breaker, the calls of several pods failed; one call every 5 s tries the
	// registry, and all continue as soon as it answers. If the message shows that the registry has not yet listed, a new leader
	// found no record on the pod; with Eureka that takes up to 4 minutes.
	//
	// What to do: check the registry, and `endpoint` of its section in the configuration.
	RegistryUnavailable Reason = "RegistryUnavailable"
	// RegistryTimeout: a call took longer than the registry's `timeout`. Retried like RegistryUnavailable.
	//
	// What to do: check the registry, or raise `timeout` in its section of the configuration.
	RegistryTimeout Reason = "RegistryTimeout"
	// RegistryRefused: the registry refused, and will refuse again: credentials, or an instance that it does not accept. Retried
	// every 30 s, and immediately when the configuration changes.
	//
	// What to do: fix what the message shows, in the registry's own words.
	RegistryRefused Reason = "RegistryRefused"
	// NotServing: the pod was registered, and the registry does not give it to clients yet, for example because it checks the pod
	// first. Rollcall asks again with a back-off of at most 30 s.
	//
	// What to do: check in the registry what the message shows.
	NotServing Reason = "NotServing"
	// Following: the pod's condition InRotation was written, and the EndpointSlices of its Services do not show that yet: kubelet
	// and the EndpointSlice controller have to follow first. An event of the EndpointSlices brings the pod back.
	//
	// What to do: wait. If it lasts, check whether a Service selects the pod, the kubelet of its node, and kube-controller-manager.
	Following Reason = "Following"
	// RightsMissing: the registry follows the pod's condition InRotation, and the manager lacks the right to write that condition. The
	// ConfigMap with the configuration has a Warning of the same reason. The pod waits in both directions, and continues as soon as the
	// right is there.
	//
	// What to do: apply what the message shows.
	RightsMissing Reason = "RightsMissing"
	// ReadersLag: the pod was registered, and the registry's clients may not know it yet: they read from caches. OpenKruise
	// continues when `readerLag` has passed, and a pod that moves leaves its old service or registry then.
	//
	// What to do: wait. If clients are faster, set `readerLag` of the registry.
	ReadersLag Reason = "ReadersLag"
	// WarmingUp: the pod is in rotation with a part of its weight, and OpenKruise waits until it has all of it, since `warmUp.countsAs`
	// is `End`.
	//
	// What to do: wait. If rollouts take too long, set `warmUp.countsAs` to `Start`, or shorten `warmUp.duration`.
	WarmingUp Reason = "WarmingUp"
	// AwaitingOpenKruise: the pod is out of the registry and its hook is released, and OpenKruise has neither updated nor
	// deleted it yet. No client is sent to it.
	//
	// What to do: if it lasts, check what `kubectl rollcall explain` shows, the workload's `partition`, `paused` and `maxUnavailable`,
	// the events of OpenKruise and another controller's handlers on the pod. If another pod [met the partition of a
	// canary](../monitoring.md#rollcallpoddrainedfornothing), delete the pod or lower the partition. A StatefulSet needs
	// [`podManagementPolicy: Parallel`](../workloads.md#advanced-statefulset), and a pod of one whose scale-in was cancelled stays
	// so forever: delete it.
	AwaitingOpenKruise Reason = "AwaitingOpenKruise"
	// UnknownRegistry: the pod is still in a registry that the configuration no longer has.
	//
	// What to do: put the registry back into `registries` until its pods have left it.
	UnknownRegistry Reason = "UnknownRegistry"
	// InvalidPod: the pod has no port to register, or an annotation that does not parse.
	//
	// What to do: set what the message shows.
	InvalidPod Reason = "InvalidPod"
	// InvalidEnd: the annotation `rollcall.dev/ends-at` of the pod's node, or of the pod, is not a time. Rollcall ignores it, so the
	// pod stays in rotation until it is updated, deleted or evicted. All pods on such a node show the reason.
	//
	// What to do: set what the message shows.
	InvalidEnd Reason = "InvalidEnd"
	// UnknownName: an annotation or a label of the pod begins with `rollcall.dev/`, and Rollcall does not know it. Nothing waits for it.
	//
	// What to do: correct or remove it in the workload's template.
	UnknownName Reason = "UnknownName"
	// IPv6Missing: the pod has an IPv4 and an IPv6 address, and applications that register themselves under the same name have the
	// metadata `IPv6`, which the pod's entry lacks, or has without brackets. Clients of Spring Cloud Alibaba that have an IPv6 address drop
	// the pod, or can't reach it. Nothing waits for it.
	//
	// What to do: set `IPv6: "[{podIPv6}]"` in service.metadata, before you move applications over.
	IPv6Missing Reason = "IPv6Missing"
	// ServiceClaimed: another namespace has the service name: pods of it are registered under the name, or were until
	// five minutes ago, or it was created first among those whose workloads use the name.
	//
	// What to do: take another name, put `{namespace}` into `service.name`, or set
	// in `service.allowed` whose the name is, or `shared: true` if it is of both namespaces.
	ServiceClaimed Reason = "ServiceClaimed"
	// ServiceNotAllowed: `service.allowed` in the configuration does not give the service name to the pod's namespace. A pod that is
	// registered under the name already stays in rotation, and shows the reason all the same.
	//
	// What to do: take another name, or add an entry to `service.allowed`.
	ServiceNotAllowed Reason = "ServiceNotAllowed"
	// HandlerRefused: a handler that Rollcall owns can't be used: its key is in the workload's selector, its value is empty, two
	// hooks want it at different values, it is a newly-created mark too, or the workload has more than 50 handlers. What it blocks
	// stays blocked.
	//
	// What to do: change in the workload what the message shows.
	HandlerRefused Reason = "HandlerRefused"
	// HandlerInTemplate: only an Event. The workload's template sets a handler of the hook inPlaceUpdate, and the pod is
	// being updated in place, or has just been. OpenKruise writes what an update adds to the template's labels and
	// finalizers in the same step in which it begins the update: the hook is then asserted before the registry has
	// acknowledged, and OpenKruise counts the pod as available although no client finds it. If the image changes, Rollcall
	// clears the handler in time; if only metadata changes, it is too late.
	//
	// What to do: remove the handler from `spec.template`. Rollcall sets it on each pod.
	HandlerInTemplate Reason = "HandlerInTemplate"
	// InjectedPort: the port that clients are given is that of a container which a webhook, such as a service mesh's, has put before the
	// application's: the workload's template lacks that container. Nothing waits for it.
	//
	// What to do: set `rollcall.dev/services`, or the annotation that the message shows, in `spec.template`.
	InjectedPort Reason = "InjectedPort"
	// UnreadyTarget: the pod has the readiness gate of a cloud load balancer, and `rollcall.dev/InRotation`. The balancer keeps the pod as a
	// target while it is out of rotation, so an update in place loses requests. Nothing waits for it.
	//
	// What to do: see [Cloud load balancers](../pod-condition.md#cloud-load-balancers).
	UnreadyTarget Reason = "UnreadyTarget"
	// VirtualNodeIP: the pod is registered at `HostIP`, and its node's address is one of vCluster's own, at which no pod answers. Nothing
	// waits for it.
	//
	// What to do: see [Virtual clusters](../virtual-clusters.md).
	VirtualNodeIP Reason = "VirtualNodeIP"
	// PatchRefused: the API server refuses Rollcall's change of the pod: by its access control, an admission webhook, a policy or
	// its validation. Or each try has failed for a minute, for example because a webhook with `failurePolicy: Fail` does not answer.
	// Retried with a back-off of at most 30 s.
	//
	// What to do: allow what the message shows, in the API server's own words, or repair the webhook that it identifies.
	PatchRefused Reason = "PatchRefused"
	// ReadFailed: for a minute, each try has failed to read what a decision about the pod rests on, such as the pod's workload. Rollcall
	// does nothing with the pod, since what it can't read could forbid it. Retried every 30 s. If the same fails for many pods, they
	// show the reason in the metric, on the status page and in the plugin, and get their Events little by little.
	//
	// What to do: check what the message shows, in the API server's own words. If it refuses, grant the right; otherwise check the API
	// server's log.
	ReadFailed Reason = "ReadFailed"
	// CacheBehind: for a minute the manager's cache has not shown the manager's own last change of the pod, and the API server is
	// ahead of the cache: the manager's watch of pods hangs. The pod waits, since no hook is released or set on an old view. Checked
	// again every 30 s.
	//
	// What to do: restart the manager. If the reason comes back, check the API server and the network between the two.
	CacheBehind Reason = "CacheBehind"
	// UnsupportedWorkload: the pod has a finalizer or a newly-created mark that Rollcall owns, and belongs to a workload
	// that Rollcall does not drive.
	//
	// What to do: take it out of the template, or the key out of `hooks.owned`.
	UnsupportedWorkload Reason = "UnsupportedWorkload"
	// UnknownState: a lifecycle state that this version does not know. The registry is left as it is.
	//
	// What to do: use a supported OpenKruise.
	UnknownState Reason = "UnknownState"
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
	// Detached: somebody changed the pod's labels, the selector of its CloneSet no longer matches, and OpenKruise has detached the pod and
	// makes another in its place. The pod leaves the rotation, whatever the panic threshold, and stays out for as long as it belongs to no
	// workload, even if the CloneSet is deleted.
	//
	// What to do: delete the pod when you are done with it. To put it back into rotation without a workload, set its annotation
	// `rollcall.dev/keep-detached: "true"`, also before you change the labels.
	Detached Reason = "Detached"
	// HeldOut: a person holds the pod out of rotation, with `kubectl rollcall hold` or the annotation `rollcall.dev/hold`, until the time that
	// the message shows. Or its CloneSet's annotation `rollcall.dev/traffic` gives [the pod's revision](../traffic.md#by-revision) no share.
	// It counts for no panic threshold. Hooks pass as for any pod that is out; one that waits for the pod to be in rotation waits until
	// the hold ends, or the revision gets a share.
	//
	// What to do: nothing. `kubectl rollcall hold POD --undo` puts it back earlier.
	HeldOut Reason = "HeldOut"
	// Orphaned: the pod belongs to no workload, and its labels are not the cause. Its CloneSet was deleted with `--cascade=orphan`, or came
	// back after the pod, for example from a backup. Or the pod has had the labels of its CloneSet for 10 minutes, but no owner reference. The
	// pod stays in rotation as long as it is ready, and leaves when it is deleted. Nothing waits for it.
	//
	// What to do: delete the pod; a CloneSet adopts none. To accept it, set its annotation
	// `rollcall.dev/keep-detached: "true"`.
	Orphaned Reason = "Orphaned"
	// Draining: out of rotation; the drain has not passed. [Until idle](../traffic.md#drain-until-idle), the message shows what the pod last
	// answered.
	//
	// What to do: wait. If a pod counts as busy because it can't be asked, set what the message shows.
	Draining Reason = "Draining"
	// Settling: an earlier call timed out, or a gateway or a connection lost it in the middle. It may still be carried out.
	//
	// What to do: wait, at most twice the registry's `timeout`.
	Settling Reason = "Settling"
	// NotConfirmed: a call failed or timed out, a later one was acknowledged, but the registry still shows something else for the
	// pod. Rollcall makes the call again with a back-off of at most 30 s.
	//
	// What to do: find out who else writes the pod's entry in the registry.
	NotConfirmed Reason = "NotConfirmed"
	// AlsoRegistersItself: clients are given one of the pod's addresses by an entry that this configuration does not manage. Most likely the
	// application registers itself. If the entry has Rollcall's own ownership tag, from before an option was changed, the message shows that.
	// The registry's acknowledgement does not cover that entry, so both directions wait. Checked again every 30 s.
	//
	// What to do: turn off the application's own registration, or let Rollcall steer its entry: [the application registers
	// itself](../self-registration.md). Remove [an entry with Rollcall's tag](../self-registration.md#an-entry-with-rollcalls-own-tag).
	AlsoRegistersItself Reason = "AlsoRegistersItself"
	// AppNotRegistered: the application registers itself (`registeredBy: App`), and the registry has no entry of it at the
	// pod's service, addresses and port. The pod waits, also before it is deleted or updated in place if it was ever ready and
	// no entry was ever found: clients may reach it at an address that Rollcall does not know. Checked again every 5 s at least.
	//
	// What to do: compare what Rollcall looked for, as the message shows it, with what the application registers: the service name,
	// the address and the port. To skip the hook of a pod that waits to be deleted or updated, use `kubectl rollcall skip` or `proceedAfter`.
	// See [the application registers itself](../self-registration.md).
	AppNotRegistered Reason = "AppNotRegistered"
	// AppStarting: as AppNotRegistered, of a pod that became ready within the last 30 s.
	//
	// What to do: wait.
	AppStarting Reason = "AppStarting"
	// AppOtherName: as AppNotRegistered, and the registry has the pod's address and port under other service names, which the
	// message lists.
	//
	// What to do: put one of these names into `rollcall.dev/services`, or into `service.name`, or let the application register
	// under the name that Rollcall looks for.
	AppOtherName Reason = "AppOtherName"
	// AppSeveralEntries: only an Event, once for a pod; the pod does not wait. Applications have several entries at the pod's
	// service, address and port. Rollcall takes all of them out and puts all of them back. Or the application has one at
	// another of the pod's addresses, as the message shows: Rollcall does not take that one out.
	//
	// What to do: find out who wrote which. One that a killed container left behind goes by itself; with an instance ID that
	// stays the same, none is left behind. If the entries are at two addresses, let the application register at one.
	AppSeveralEntries Reason = "AppSeveralEntries"
	// AgentUnavailable: the registry has the application's entry, and the agent that owns the entry could not be reached, or
	// answered with a temporary error. With the driver `pod`, that is the application in the pod, which may still be in rotation.
	// The pod waits. Retried with a back-off of at most 30 s.
	//
	// What to do: check the agent on the node in the message, and `agentEndpoint` in the driver's options. With the driver `pod`,
	// check that a NetworkPolicy lets Rollcall reach the URL in the message, and that the application answers there.
	AgentUnavailable Reason = "AgentUnavailable"
	// AgentRefused: as AgentUnavailable, and the agent refuses the token, or `agentEndpoint` or a certificate is wrong, or, with the
	// driver `pod`, a path: the message identifies the field. Retried every 30 s, and immediately when the configuration changes.
	//
	// What to do: correct that field, or the agent's certificate. If it is the token, give it the right to write the service.
	AgentRefused Reason = "AgentRefused"
	// AppCameBack: only an Event. The application's own entry came back into rotation while the pod had to be out of it, and
	// Rollcall took it out again. There is one Event for as long as the pod is out.
	//
	// What to do: find out what else writes the entry: the application itself, an agent, or a person.
	AppCameBack Reason = "AppCameBack"
	// AppEntryRemains: the pod is gone, and the entry that its application wrote is still in the registry, out of rotation. Once the
	// entry is gone, Rollcall makes the registry forget that it was out. After 3 minutes it stops looking: the entry stays out, for as
	// long as the registry has it.
	//
	// What to do: wait. If the entry is there after 3 minutes, check whether its application still runs, and stop it.
	AppEntryRemains Reason = "AppEntryRemains"
	// Queued: all slots of the registry are taken, or seven eighths of them by the same service, and half while another service
	// waits. The pod continues when it is its turn.
	//
	// What to do: wait. If it lasts, check how long the registry's calls take.
	Queued Reason = "Queued"
	// NotPermitted: this manager may make no call now, so the registry was not asked: its lease was not renewed in
	// time, or the configuration has just changed. Retried with a back-off.
	//
	// What to do: if it lasts, check the API server, which answers too slowly.
	NotPermitted Reason = "NotPermitted"
	// NotReady: the pod is not ready, so it is out of rotation, or a registry may have it out although the pod is kept. The message is
	// what keeps it from being ready: a container, a readiness gate or the scheduler.
	//
	// What to do: if it lasts, fix what the message shows.
	NotReady Reason = "NotReady"
	// NoAddress: the pod has no IP yet, or lacks the address that service.address or rollcall.dev/address chooses, or its network-status
	// can't be read. The message is what was looked for and what the pod has.
	//
	// What to do: wait. If it lasts, check the pod's node and its network, or choose an address that the pod has.
	NoAddress Reason = "NoAddress"
	// Updating: OpenKruise updates the pod in place, so it is out of rotation. The message is what keeps the update from being
	// finished.
	//
	// What to do: if it lasts, fix what the message shows. If it is the image, correct it in the workload.
	Updating Reason = "Updating"
	// Stopping: the manager was asked to stop and makes no further calls.
	//
	// What to do: nothing; the next manager continues.
	Stopping Reason = "Stopping"
	// Proceeded: only an Event. Rollcall released a hook although a registry had not acknowledged, because `proceedAfter` had
	// passed. Rollcall still makes the call, as soon as the registry answers. If the API server accepts the release and its answer
	// is lost, neither this Event nor the metric shows it.
	//
	// What to do: check the registry; clients may have been sent to a pod that was not there.
	Proceeded Reason = "Proceeded"
	// Skipped: only an Event. Rollcall released a hook without waiting for the registry and the drain, because a person wrote the
	// annotation `rollcall.dev/skip`. Rollcall still makes the call, as soon as the registry answers. If the API server accepts
	// the release and its answer is lost, neither this Event nor the metric shows it; the annotation is gone all the same.
	//
	// What to do: nothing, if it was you.
	Skipped Reason = "Skipped"
	// DrainTimeout: only an Event. A drain [until idle](../traffic.md#drain-until-idle) has ended by `max`: the pod was still busy, or could
	// not be asked, as the message shows. Its hook was released, so the requests that were left may have been cut off.
	//
	// What to do: raise `max` in `drain`, or have the application end long requests by itself. If the pod could not be asked, set what the
	// message shows.
	DrainTimeout Reason = "DrainTimeout"
	// SkipRefused: only an Event. The annotation `rollcall.dev/skip` asks for what can't be done, or comes from the workload's
	// template; in that case Rollcall removed it from the pod.
	//
	// What to do: set what the message shows.
	SkipRefused Reason = "SkipRefused"
	// RolloutWaits: only an Event, on the workload. OpenKruise has waited for a minute or longer for one of its pods, and not
	// because of a drain; for ten minutes or longer if the pod is not ready. One Event covers all of its pods that wait, and is
	// repeated every half hour.
	//
	// What to do: check the pod in the message.
	RolloutWaits Reason = "RolloutWaits"
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
	// EvictionHooked: only an Event, of the [eviction webhook](../evictions.md). The pod's first eviction became a hooked
	// deletion.
	//
	// What to do: wait until the pod is gone.
	EvictionHooked Reason = "EvictionHooked"
	// EvictionLetThrough: only an Event, of the [eviction webhook](../evictions.md). The webhook let an eviction through
	// before the hooked deletion had ended, because of the limit or because the pod's node shuts down.
	//
	// What to do: check what the pod has waited for. If it had not left the rotation before, which the Event Ending shows, clients
	// may have been sent to a pod that was not there.
	EvictionLetThrough Reason = "EvictionLetThrough"
	// NotEnrolled: only an Event, on a CloneSet of a namespace that is to be [enrolled](../enrolment.md), or no longer. It has hooks of
	// someone else or is written as a whole by its owner or Karmada, Rollcall could not register its pods, or the API server
	// refused the change: somebody else manages a handler, or a policy denies the change.
	//
	// What to do: set what the message shows, or label the CloneSet `rollcall.dev/enroll: "false"`.
	NotEnrolled Reason = "NotEnrolled"
	// HooksRemoved: only an Event, on the workload. Its `spec.lifecycle` lost Rollcall's handlers of a hook, so OpenKruise updates or deletes
	// pods without waiting for a registry. If the same write changed the template, the first pods of that rollout are updated like this.
	// Rollcall restores the hooks of CloneSets that it enrolled by the namespace's label, unless the label is gone.
	//
	// What to do: nothing, if it was you. Otherwise find out who wrote last, with `kubectl get cloneset NAME -o yaml
	// --show-managed-fields`, and see [what takes hooks away](../gitops.md#what-takes-hooks-away).
	HooksRemoved Reason = "HooksRemoved"
	// Acknowledgement: what the kubectl plugin shows if it can't ask the manager, and neither the manager's last Event nor the pod shows
	// more. The registry has not acknowledged yet, `readerLag` has not passed since, or the manager has yet to release the hook.
	//
	// What to do: wait. If it lasts, check [who sees the status page](../status-page.md#who-sees-what), or the manager's log.
	Acknowledgement Reason = "Acknowledgement"
	// NotWatched: what the kubectl plugin shows of a pod whose namespace is not in `namespaces` of the configuration: the manager
	// leaves the pod alone, and neither sets nor clears the handlers of its hooks.
	//
	// What to do: if another installation watches the namespace, pass that installation's namespace with
	// `--rollcall-namespace`. Otherwise add it and restart the managers, or label it so that the selector matches.
	NotWatched Reason = "NotWatched"
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
