package waiting

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/internal/drain"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/shorten"
	"github.com/rollcall-dev/rollcall/registry"
)

// The sentences that people read of a pod, each made from values in one place. An entry is described as plan.Row prints it. After is when
// to look again without an event, if nothing else asks for it.

// Draining holds OpenKruise until clients had time to notice and, if the pod is asked, is idle.
func Draining(since time.Time, policy drain.Policy, s drain.State, last drain.Answer, now time.Time) Blocker {
	b := Blocker{Reason: reason.Draining, After: s.Again(now)}
	switch most := s.Most.Format(time.RFC3339); {
	case !policy.Asks():
		b.Message = fmt.Sprintf("out of rotation since %s, drains for %s", since.Format(time.RFC3339), policy.Max)
	case !s.Ask:
		b.Message = fmt.Sprintf("out of rotation since %s, drains until the pod is idle, from %s to %s",
			since.Format(time.RFC3339), s.Least.Format(time.RFC3339), most)
	default:
		b.Message, b.After = fmt.Sprintf("out of rotation since %s, drains until the pod is idle, at most until %s: %s",
			since.Format(time.RFC3339), most, last), min(b.After, askedAgain)
	}
	return b
}

// askedAgain is when to check a pod that is asked, if no answer has brought it back.
const askedAgain = 30 * time.Second

// DrainTimeout is about a pod that was not idle in time.
func DrainTimeout(hook lifecycle.Hook, longest time.Duration, last drain.Answer) string {
	return fmt.Sprintf("hook %s is released after a drain of %s, the longest that drain.max allows, and the pod was not idle: %s",
		hook, longest, last)
}

// ReadersLag is about clients that read from caches until then.
func ReadersLag(entry fmt.Stringer, until time.Time, left time.Duration) Blocker {
	return Blocker{Reason: reason.NotEffective, Calm: true, After: left,
		Message: fmt.Sprintf("%s is registered; its clients may not know it before %s", entry, until.Format(time.RFC3339))}
}

// WarmingUp is about a pod that counts only with all of its weight.
func WarmingUp(left time.Duration) Blocker {
	return Blocker{Reason: reason.WarmingUp, After: left, Message: "its weight grows, and warmUp.countsAs is End"}
}

// NotServing is about an entry that clients are not given yet.
func NotServing(entry fmt.Stringer, err error, after time.Duration) Blocker {
	return Blocker{Reason: reason.NotEffective, After: after,
		Message: fmt.Sprintf("%s is registered, but not given to clients yet: %v", entry, err)}
}

// Settling is about a call that failed and can still be carried out.
func Settling(entry fmt.Stringer, after time.Duration) Blocker {
	return Blocker{Reason: reason.Settling, After: after, Message: entry.String() + ": an earlier call failed, and may still be carried out"}
}

// NotConfirmed is about a registry that acknowledged one thing and shows another.
func NotConfirmed(entry fmt.Stringer, want lifecycle.Want, shows registry.State, after time.Duration) Blocker {
	return Blocker{Reason: reason.NotConfirmed, After: after,
		Message: fmt.Sprintf("%s: the registry has acknowledged that it is %s, but shows %s", entry, want, shows)}
}

// NotYetListed is about a registry whose entries a new leader does not know yet.
func NotYetListed(name string) Blocker {
	return Blocker{Reason: reason.RegistryUnavailable, BacksOff: true, Message: fmt.Sprintf(
		"registry %q has not yet listed what the previous manager registered, and no record shows where the pod was in rotation", name)}
}

// UnknownRegistry is about a registry that the configuration lost.
func UnknownRegistry(entry fmt.Stringer) Blocker {
	return Blocker{Reason: reason.UnknownRegistry, Message: fmt.Sprintf(
		"%s: the configuration no longer has this registry: put it back until its pods have left it", entry)}
}

// Failed is about a call's error. The one place that classifies errors sets the Reason, if it is another.
func Failed(entry fmt.Stringer, err error) Blocker {
	return Blocker{Reason: reason.RegistryUnavailable, Message: shorten.Message(fmt.Sprintf("%s: %v", entry, err))}
}

// NoCondition completes what [Failed] reports of a registry that follows the pod's condition.
func (b Blocker) NoCondition(why string) Blocker {
	b.Late = false
	b.Reason, b.Message = reason.RightsMissing, fmt.Sprintf("%s: Rollcall can't write the condition: %s", b.Message, why)
	return b
}

// Stopping is about the end of this process.
func Stopping() Blocker {
	return Blocker{Reason: reason.ManagerNotReady, Calm: true, Unasked: true, Message: "the manager stops, and the next one continues"}
}

// Unheard is about entries that only the pod's record shows.
func Unheard(left int) Blocker {
	return Blocker{Reason: reason.Queued, Unasked: true, After: time.Second, Message: fmt.Sprintf(
		"%d more entries that only the pod's annotation %s shows are still to be taken out, a few each second", left, lifecycle.AnnotationRecord)}
}

// AlsoRegistersItself is about other entries by which clients are given a pod that is at the endpoint, or one that the registry told of.
func AlsoRegistersItself(entry fmt.Stringer, endpoint, said string, others []lifecycle.Foreign) Blocker {
	const untagged = "clients are given %s by an entry that Rollcall has not written (%s): turn off the application's own registration, " +
		"or let Rollcall steer that entry"
	text := fmt.Sprintf(untagged, "this address", said)
	for _, one := range others {
		at := net.JoinHostPort(one.Endpoint.Address, strconv.Itoa(one.Endpoint.Port))
		switch {
		case one.Tagged != "":
			text = fmt.Sprintf("clients are given the pod by an entry that has Rollcall's ownership tag and is not where this configuration "+
				"has it (at %s, %s), such as from before an option of the registry was changed: remove it from the registry", at, one.Tagged)
		case at != endpoint:
			text = fmt.Sprintf(untagged, "the pod", "at "+at)
		}
	}
	return Blocker{Reason: reason.AlsoRegistersItself, After: Longest, Message: entry.String() + ": " + text}
}

// AppMissing is about an application's entry that the registry lacks, by its own answer if err is one.
func AppMissing(entry fmt.Stringer, err error) Blocker {
	text := "the registry has none"
	if err != nil {
		text = err.Error()
	}
	return Blocker{Reason: reason.AppNotRegistered, Message: shorten.Message(entry.String() + ": " + text)}
}

// AppUnseen is about an application's entry of which its absence proves nothing.
func AppUnseen(entry fmt.Stringer) Blocker {
	return Blocker{Reason: reason.AppNotRegistered, Message: entry.String() + ": the registry has no such entry and never showed one, so " +
		"clients may be given the pod by an entry at another address"}
}

// LookedForAt adds where else it was looked for.
func (b Blocker) LookedForAt(addresses []string) Blocker {
	b.Message += "; it was looked for at " + strings.Join(addresses, ", ")
	return b
}

// Under adds the names under which the registry has the endpoint.
func (b Blocker) Under(endpoint string, names []string, annotation, want string) Blocker {
	b.Case = OtherName
	b.Message += fmt.Sprintf("; the registry has %s under %q: set that in the annotation %s or in service.name, or have the "+
		"application register as %q", endpoint, names, annotation, want)
	return b
}

// WillHold adds what follows for a pod that waits for nothing yet.
func (b Blocker) WillHold() Blocker {
	b.Message += "; until it is found, OpenKruise will wait before it deletes the pod or updates it in place"
	return b
}

// AppEntryRemains is about the entry that an application leaves behind.
func AppEntryRemains(entry fmt.Stringer, after time.Duration) Blocker {
	return Blocker{Reason: reason.AppEntryRemains, After: after,
		Message: entry.String() + ": the pod is gone, and its application's entry is not yet; it is out of rotation"}
}

// UnreadOther is about an address that another pod may have.
func UnreadOther(entry fmt.Stringer, err error, after time.Duration) Blocker {
	return Blocker{Reason: reason.APIServerFailed, Case: Unread, After: after, Message: fmt.Sprintf("%s: %v", entry, err)}
}

// ReadFailed is about what a decision needs and can't have.
func ReadFailed(err error, forbidden bool) Blocker {
	remedy := "check the API server, and the webhooks and the etcd that it asks"
	if forbidden {
		remedy = "grant the manager the right, as its ClusterRole has it in the version's manifests"
	}
	return Blocker{Reason: reason.APIServerFailed, Case: Unread, After: Longest, Message: fmt.Sprintf(
		"%s; the pod stays as it is until that can be read: %s", registry.Excerpt(err.Error()), remedy)}
}

// PatchRefused is about a write of the pod.
func PatchRefused(err error, after time.Duration) Blocker {
	return Blocker{Reason: reason.APIServerFailed, After: after, Message: registry.Excerpt(err.Error())}
}

// CacheBehind is about a cache that hangs.
func CacheBehind(lasts time.Duration) Blocker {
	return Blocker{Reason: reason.ManagerNotReady, After: Longest, Message: fmt.Sprintf(
		"the manager's cache has not shown the manager's own last change of the pod for %s, and the API server is ahead of it: if this "+
			"stays, restart the manager", lasts.Round(time.Second))}
}

// UnsupportedWorkload is about a pod of another kind of workload.
func UnsupportedWorkload(kind string) Blocker {
	return Blocker{Reason: reason.HandlerRefused, Message: fmt.Sprintf(
		"the pod has a finalizer or newly-created mark that Rollcall owns, and belongs to a %s; Rollcall drives only "+
			"OpenKruise's CloneSets, StatefulSets and DaemonSets: take it out of the template, or the key out of the configuration", kind)}
}

// UnknownState is about a state of a newer OpenKruise.
func UnknownState(state string) Blocker {
	return Blocker{Reason: reason.UnknownState, Message: fmt.Sprintf(
		"lifecycle state %q is not one that Rollcall knows: the registry is left as it is; see the supported OpenKruise versions", state)}
}

// HeldNotReady is about OpenKruise's markPodNotReady.
func HeldNotReady() Blocker {
	return Blocker{Reason: reason.HeldNotReady, Message: "OpenKruise holds the pod not ready (markPodNotReady) and releases it " +
		"only after an in-place update, which was rolled back: delete the pod, or update it in place"}
}

// Ending is about a pod that is out before it ends.
func Ending(why string) Blocker {
	return Blocker{Reason: reason.Ending, Message: "the pod is out of rotation before it ends: " + why}
}

// OutDetached is about a pod that its CloneSet has lost, in the words of [lifecycle.Input.Detach].
func OutDetached(why string) Blocker {
	return Blocker{Reason: reason.Orphaned, Case: Detached, Message: why}
}

// HeldOut is about a pod that a person keeps out, in the words of [lifecycle.Input.HoldOut].
func HeldOut(why string) Blocker { return Blocker{Reason: reason.HeldOut, Message: why} }

// Orphaned is about a pod whose workload has gone without it.
func Orphaned() Blocker {
	return Blocker{Reason: reason.Orphaned, Message: "the pod belongs to no workload, so nothing updates or replaces it; it stays in " +
		"rotation: delete it, or accept this with annotation " + lifecycle.AnnotationKeepDetached + `: "true"`}
}

// NotReady is about a pod that serves nobody; why may be empty.
func NotReady(why string) Blocker {
	return Blocker{Reason: reason.NotReady, Message: cmp.Or(why, "its node is not Ready")}
}

// AwaitingOpenKruise is about a pod whose hook is released.
func AwaitingOpenKruise() Blocker {
	return Blocker{Reason: reason.AwaitingOpenKruise, Message: "the pod is out of the registry and its hook is released; " +
		"OpenKruise has neither updated nor deleted it yet"}
}

// UnreadableEnd is about an end that was announced and can't be read.
func UnreadableEnd(why string) Blocker {
	return Blocker{Reason: reason.InvalidPod, Case: MissedEnd, Message: why}
}

// InjectedPort is about a container that a webhook has put before the application's.
func InjectedPort(why string) Blocker {
	return Blocker{Reason: reason.InvalidPod, Case: OfInjected, Message: why}
}

// UnknownName is about a misspelt annotation.
func UnknownName(name string) Blocker {
	return Blocker{Reason: reason.InvalidPod, Case: Misspelled, Message: "the pod has " + name}
}

// IPv6Missing is about clients of Spring Cloud Alibaba.
func IPv6Missing(entry string) Blocker {
	return Blocker{Reason: reason.InvalidPod, Case: WithoutIP6, Message: entry +
		`: applications' own entries of the service have metadata IPv6, ` +
		`and the pod's has none in brackets, so clients of Spring Cloud Alibaba with an IPv6 address drop it or can't reach it: ` +
		`set IPv6: "[{podIPv6}]" in service.metadata`}
}

// UnreadyTarget is about a cloud load balancer.
func UnreadyTarget(gate string) Blocker {
	return Blocker{Reason: reason.InvalidPod, Case: OfBalancer, Message: fmt.Sprintf(
		"the pod has readiness gate %s, %s", gate, lifecycle.BalancerRemedy)}
}

// VirtualNodeIP is about a node of a vCluster.
func VirtualNodeIP(address, node string) Blocker {
	return Blocker{Reason: reason.InvalidPod, Case: OfVirtual, Message: fmt.Sprintf(
		"clients are given the address %s as that of node %s, and it is "+
			"vCluster's own: upgrade vCluster to 0.28.1 or newer, or set networking.advanced.proxyKubelets.byIP to false in vcluster.yaml",
		address, node)}
}

// Described is about the description of a pod, in words that its rule has found.
func Described(as reason.Reason, why string) Blocker { return Blocker{Reason: as, Message: why} }

// SkippedNote is for the Event of a hook that a person has skipped. Left is what is left of a drain that was not missing already.
func SkippedNote(hook lifecycle.Hook, because, missing string, left time.Duration) string {
	if left > 0 {
		missing += fmt.Sprintf("; nor for the drain, of which %s are left", left.Round(time.Second))
	}
	return fmt.Sprintf("hook %s was released by annotation %s: %q; not waited for: %s", hook, lifecycle.AnnotationSkip, because, missing)
}

// ProceededNote is for the Event of a hook that has waited for long enough, or for longer, if a drain had to end.
func ProceededNote(hook lifecycle.Hook, waited, after time.Duration, drained bool, missing string) string {
	passed := "has passed"
	if drained {
		passed = "and the drain have passed"
	}
	return fmt.Sprintf("hook %s was released after %s: proceedAfter.%s (%s) %s; not waited for: %s",
		hook, waited.Round(time.Second), hook, after, passed, missing)
}
