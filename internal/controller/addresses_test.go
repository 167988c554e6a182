package controller

import (
	"context"
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

// reachable gives a pod every kind of address.
func reachable(pod *corev1.Pod) {
	dualStack(pod)
	portOnNode(pod)
	pod.Spec.Containers[0].Ports[0].HostPort, pod.Spec.Containers[0].Ports = 31080, pod.Spec.Containers[0].Ports[:1]
	pod.Annotations[lifecycle.AnnotationNetworks] = `[{"name": "shop/storage", "ips": ["172.16.0.1"]}]`
}

func at(a service.Address) func(*choices) {
	return func(s *choices) { s.Services.Address = a }
}

// TestAddressThatIsChosenAnew: a pod joins at the new address before it leaves the old one, in both directions, and by a new leader too.
func TestAddressThatIsChosenAnew(t *testing.T) {
	t.Parallel()
	const first = "web@10.0.0.1:8080"
	for name, place := range map[service.Address]string{
		"IPv6": "web@[fd00::1]:8080", "HostIP": "web@192.0.2.1:31080", "network/storage": "web@172.16.0.1:8080",
	} {
		t.Run(strings.ReplaceAll(string(name), "/", " "), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			pod := w.servingPod(w.cloneSet("web"), "web-1", reachable)
			w.apply(at(name))
			w.reconciles(pod, "it joins, and then leaves", "Register "+place, "Deregister "+first, writes)

			w.restart()
			w.apply(at("PodIP"))
			w.reconciles(pod, "it is still reached there", "Register "+first, "Deregister "+place, writes)

			w.apply(at(name))
			w.reconcile(pod)
			w.takeJournal()
			w.changePod(pod, unready)
			w.reconciles(pod, "", "FailOver "+place, writes)
			w.changePod(pod, ready)
			w.reconciles(pod, "", "Register "+place, writes)
			w.changePod(pod, func(p *corev1.Pod) { p.Annotations[service.AnnotationAddress] = "IPv4" })
			w.reconciles(pod, "the pod's own choice wins", "Register "+first, "Deregister "+place, writes)
		})
	}
}

// TestAddressThatThePodLacks: it stays where it is, waits with what was looked for, and leaves as every pod does.
func TestAddressThatThePodLacks(t *testing.T) {
	t.Parallel()
	w, pod := serving(t)
	w.apply(at("IPv6"))
	w.reconciles(pod, "there is no other address to go to")
	w.expectInService(pod)
	w.expectWaits("it is shown", Wait{Reason: "NoAddress", Since: w.clock.Now()})

	next := w.pod(w.cloneSet("api"), "api-1")
	w.reconcile(next)
	w.expectHooks("it is not registered", next, "inPlaceUpdate preDelete")
	w.changePod(next, func(p *corev1.Pod) { p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}, {IP: "fd00::2"}} })
	w.takeJournal()
	w.reconcile(next)
	w.expectInService(next)

	w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
	w.expectAbsent(pod)
}

// TestAddressThatCantBeRead: what can't be read is not empty, so nothing is removed because of it; a list of networks that lacks the
// pod's shows that the pod has left.
func TestAddressThatCantBeRead(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		change func(*corev1.Pod)
		want   []string
	}
	networks := func(text string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Annotations[lifecycle.AnnotationNetworks] = text }
	}
	expect.Each(t, map[string]row{
		"not JSON": {"half of a write, or a mistake of a tenant", networks(`[{"name": "shop/st`), nil},
		"missing":  {"as a pod's IP that is missing", func(p *corev1.Pod) { delete(p.Annotations, lifecycle.AnnotationNetworks) }, nil},
		"without the network": {"it can be read, and the pod is not there any more",
			networks(`[{"name": "cbr0", "ips": ["10.0.0.1"]}]`), []string{"Deregister web@172.16.0.1:8080"}},
	}, func(t *testing.T, tc row) {
		w := newWorld(t, at("network/storage"))
		pod := w.servingPod(w.cloneSet("web"), "web-1", reachable)
		w.changePod(pod, tc.change)
		w.reconciles(pod, tc.reason, tc.want...)
		w.expectWaits("it is shown either way", Wait{Reason: "NoAddress", Since: w.clock.Now()})
		w.restart()
		w.reconciles(pod, "a new leader knows no more", tc.want...)
		w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
		w.reconcile(pod)
		w.expectHooks("it leaves as every pod does", pod, "inPlaceUpdate")
		w.expectAbsent(pod)
	})
}

// TestAddressThatATenantWrites: only the configuration makes what stands in an annotation an address, and never one of an entry that carries
// no mark.
func TestAddressThatATenantWrites(t *testing.T) {
	t.Parallel()
	forge := func(p *corev1.Pod) {
		reachable(p)
		p.Annotations[service.AnnotationAddress] = "network/storage"
	}
	t.Run("not in the configuration", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		pod := w.bornPod(w.cloneSet("web"), "web-1", forge)
		w.reconcile(pod)
		w.expectHooks("", pod, "inPlaceUpdate preDelete")
		w.expectEvents("", "Warning InvalidPod hook preNormal waits: annotation rollcall.dev/address: service.networks in the configuration")
		w.expectAbsent(pod)
	})
	t.Run("an application's entry there", func(t *testing.T) {
		t.Parallel()
		w := steering(t, func(s *choices) { s.Services.Networks = []string{"storage"} })
		pod := w.bornPod(w.cloneSet("web"), "web-1", forge)
		victim, own := w.appAt(pod, "172.16.0.1"), w.appAt(pod, pod.Status.PodIP)
		victim.Register()
		own.Register()
		w.reconciles(pod, "its application is looked for where the pod is", "AppRegister web@10.0.0.1:8080", writes)
		w.reconcileIn(pod, appspub.LifecycleStateNormal)
		w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
		w.expectApp("", own, registry.OutOfService)
		w.expectApp("it is not the pod's", victim, registry.InService)
	})
}

// TestEntriesAtThePodsOtherAddresses: clients reach the pod at each of its addresses, of which lifecycle has rows, wherever Rollcall registers it.
func TestEntriesAtThePodsOtherAddresses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, at("HostIP"))
	pod := w.servingPod(w.cloneSet("web"), "web-1", reachable)
	for _, other := range []registry.Instance{
		{Service: "web", Address: nodeIP, Port: 8080}, {Service: "web", Address: nodeIP, Port: 31081},
		{Service: "web", Address: "10.0.0.1", Port: 31080}, {Service: "api", Address: "10.0.0.1", Port: 8080},
		{Service: "web", Address: "10.0.0.2", Port: 8080}, {Service: "web", Address: "192.0.2.2", Port: 31080},
	} {
		w.registry.Foreign(other)
	}
	w.runsResync()
	w.expectDoubtful("none of them is this pod's: not its node's other ports, nor its own")

	gone := w.registry.Foreign(w.instance(pod, "web", 8080))
	w.runsResync()
	w.expectDoubtful("this one is", pod)
	w.reconciles(pod, "the registry holds what was written")
	w.expectEvents("a person has to turn it off", `Warning AlsoRegistersItself service "web" at `)
	w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
	w.expectHooks("clients are still sent to it", pod, "inPlaceUpdate preDelete")
	gone()
	w.runsResync()
	w.expectDoubtful("it may go on", pod)
	w.reconcile(pod)
	w.expectHooks("", pod, "inPlaceUpdate")
}

// TestCopyOfThePodsEntry: after a change of an option, such as Consul's nodePrefix, a pod has two entries with its ownership tag, of which
// Rollcall manages one.
func TestCopyOfThePodsEntry(t *testing.T) {
	t.Parallel()
	w, pod := serving(t)
	gone := w.registry.Copy(w.instance(pod, "web", 8080), "web-1 on node old-07")
	w.runsResync()
	w.expectDoubtful("it has to be told", pod)
	w.reconcile(pod)
	w.expectEvents("a person has to remove it", `Warning AlsoRegistersItself service "web" at 10.0.0.1:8080: clients are given the pod by `+
		"an entry that has Rollcall's ownership tag and is not where this configuration has it (at 10.0.0.1:8080, web-1 on node old-07)")
	w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
	w.expectHooks("clients are still sent to it", pod, "inPlaceUpdate preDelete")
	gone()
	w.runsResync()
	w.reconcile(pod)
	w.expectHooks("", pod, "inPlaceUpdate")
}

// TestCopyOfTheApplicationsEntry: it is taken out, and clients are still sent to the pod by the one with Rollcall's ownership tag.
func TestCopyOfTheApplicationsEntry(t *testing.T) {
	t.Parallel()
	w, pod, app := servingApp(t)
	w.registry.Copy(w.instance(pod, "web", 8080), "rollcall's of yesterday")
	w.runsResync()
	w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
	w.expectApp("", app, registry.OutOfService)
	w.expectHooks("", pod, "inPlaceUpdate preDelete")
}

// TestLateRemovalAtASharedEndpoint: the next pod at a node's port is not counted on while a removal of the one before may still be carried
// out. Not every registry can tell the two apart in the moment in which it deletes.
func TestLateRemovalAtASharedEndpoint(t *testing.T) {
	t.Parallel()
	w := newWorld(t, at("HostIP"))
	web := w.cloneSet("web")
	before := w.servingPod(web, "web-1", reachable)
	other := w.servingPod(web, "web-3", reachable, func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].HostPort = 31081 })
	w.registry.FailNext(fakeregistry.Match{Op: fakeregistry.OpDeregister}, context.DeadlineExceeded)
	w.reconcileIn(before, appspub.LifecycleStatePreparingDelete)
	w.sleep(time.Second)
	w.reconcile(before)
	w.expectHooks("it is out, by a second call", before, "inPlaceUpdate")
	w.takeJournal()

	next := w.bornPod(web, "web-2", reachable)
	w.reconciles(next, "", "Register web@192.0.2.1:31080")
	w.expectHooks("the first call may still be on its way, and hit its entry", next, "inPlaceUpdate preDelete")
	w.sleep(time.Hour)
	w.reconciles(next, "the call is over, and is made good", "Register web@192.0.2.1:31080", "write web-2")
	w.expectHooks("", next, "preNormal inPlaceUpdate preDelete")
	w.reconciles(other, "it is at another port")
}

// TestLateRemovalByResyncAtASharedEndpoint: what resync has tried to remove can hit the next pod too.
func TestLateRemovalByResyncAtASharedEndpoint(t *testing.T) {
	t.Parallel()
	w := newWorld(t, at("HostIP"))
	web := w.cloneSet("web")
	next := w.bornPod(web, "web-2", reachable)
	entry := w.instance(next, "web", 31080)
	entry.Address, entry.Pod, entry.UID = nodeIP, "web-1", "uid-of-web-1"
	w.r.Tracker.RemovalMayLand(tracker.Target{Registry: "default", Instance: entry}, w.clock.Now(), w.clock.Now().Add(10*time.Second))
	w.reconciles(next, "", "Register web@192.0.2.1:31080")
	w.expectHooks("the removal may still be on its way, and hit its entry", next, "inPlaceUpdate preDelete")
	w.expectWaits("", Wait{Hook: "preNormal", Reason: "Settling", Since: w.clock.Now()})
	w.sleep(10 * time.Second)
	w.reconciles(next, "the removal is over, and is made good", "Register web@192.0.2.1:31080", "write web-2")
	w.expectHooks("", next, "preNormal inPlaceUpdate preDelete")
}

// TestIPv6MetadataThatClientsMiss: what applications registered themselves has it, and a pod that was moved over has not.
func TestIPv6MetadataThatClientsMiss(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := w.servingPod(w.cloneSet("web"), "web-1", dualStack)
	list := func(metadata map[string]string) {
		other := registry.Instance{Service: "web", Address: "10.0.0.99", Port: 8080, Metadata: metadata}
		w.r.Tracker.Compare(tracker.Listing{Registry: "default", Asked: w.clock.Now(), Staleness: time.Hour, Foreign: []registry.Entry{
			{Instance: other, State: registry.Foreign},
		}})
	}
	list(nil)
	w.reconciles(pod, "no client tells the families apart by metadata")
	w.expectEvents("")
	list(map[string]string{registry.MetaIPv6: "fd00::99"})
	_, doubtful := w.r.Tracker.TakeDoubted()
	expect.Equal(t, []lifecycle.PodID{lifecycle.PodIDOf(lifecycle.PodOf(pod))}, doubtful, "the pods that are looked at because of the list")
	w.reconciles(pod, "it stays where it is")
	w.expectEvents("", `Warning InvalidPod service "web" at 10.0.0.1:8080: applications' own entries of the service have metadata IPv6`)
	w.expectWaits("nothing waits", Wait{Reason: "InvalidPod", Since: w.clock.Now()})

	single := w.servingPod(w.cloneSet("api"), "api-1")
	w.changePod(single, annotated(service.AnnotationServices, "web=8080"))
	w.reconcile(single)
	w.expectEvents("it has no second address to tell of")

	set := func(value service.ValueTemplate) {
		w.apply(func(s *choices) { s.Services.Metadata = map[string]service.ValueTemplate{registry.MetaIPv6: value} })
		w.reconcile(pod)
	}
	set("{podIPv6}")
	w.expectEvents("clients can't make a URL of it")
	set("[{podIPv6}]")
	w.expectEvents("it is corrected", "Normal Resolved InvalidPod ")
}
