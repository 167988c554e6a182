package registrytest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rollcall-dev/rollcall/registry"
)

// getCases are about registry.Getter.
func getCases() []testCase {
	return needing([]testCase{
		{
			name: "GetSaysWhatWasAcknowledged",
			why:  "OpenKruise continues after this answer; an outdated one releases a pod that clients are sent to",
			run:  getSaysWhatWasAcknowledged,
		},
		{
			name: "GetIsNeverBehind",
			why:  "a cache or a replica is right most of the time; one wrong answer loses a pod",
			run:  getIsNeverBehind,
		},
		{
			name: "GetOfAnotherIsAbsent",
			why:  "the entry of the next pod at the address is not this pod's, nor is another cluster's",
			run:  getOfAnotherIsAbsent,
		},
		{
			name: "GetOfOddNames",
			why:  "a name that is not escaped asks for another entry, after whose absence OpenKruise would continue",
			run:  getOfOddNames,
		},
		{
			name: "GetChangesNothing",
			why:  "it is asked while the pod is on its way out, and must not bring it back",
			run:  getChangesNothing,
		},
		{
			name:  "GetAgreesWithList",
			why:   "if only one of the two reports an entry as lost, Rollcall repairs it again and again",
			needs: []Capability{isGetter, isLister},
			run:   getAgreesWithList,
		},
		{
			name: "ConcurrentGets",
			why:  "after a registry was away, many pods are asked for at the same time; none may get another's answer",
			run:  concurrentGets,
		},
		{
			name:  "GetAfterRestart",
			why:   "a restart of the registry is why outcomes are unknown; it must then return what it has kept",
			needs: []Capability{isGetter, hasRestart, Durable},
			run:   getAfterRestart,
		},
	}, isGetter)
}

func getSaysWhatWasAcknowledged(w *world) {
	d, other := w.newProcess(), w.newProcess()
	in := w.pod(1)
	in.Weight, in.Zone, in.Tags, in.Metadata = 7, "zone-b", []string{"http"}, map[string]string{"version": "v1"}
	says := func(want registry.State) {
		w.Helper()
		for _, asked := range []registry.Registry{d, other, w.newProcess()} {
			w.expectSays(asked, in, want)
		}
	}
	says(registry.Absent)
	w.register(d, in)
	says(registry.InService)
	w.failOver(d, in)
	says(registry.OutOfService)
	w.register(other, in)
	says(registry.InService)
	w.deregister(d, in)
	says(registry.Absent)
	w.register(d, in)
	w.failOver(d, in)
	w.deregister(other, in)
	says(registry.Absent)
}

// getIsNeverBehind asks one process for what another has just changed.
func getIsNeverBehind(w *world) {
	const rounds = 10
	writer, reader := w.newProcess(), w.newProcess()
	for range rounds {
		for _, op := range []operation{opRegister, opFailOver, opRegister, opDeregister} {
			w.must(op, writer, w.pod(1))
			w.expectSays(reader, w.pod(1), stateAfter(op))
		}
	}
}

func getOfAnotherIsAbsent(w *world) {
	d := w.newProcess()
	dead := w.pod(1)
	live := heir(dead)
	w.register(d, dead, live)
	w.expectSays(d, dead, registry.Absent)
	w.expectSays(d, live, registry.InService)

	for _, uid := range []string{live.UID + "0", live.UID[:len(live.UID)-1], strings.ToUpper(live.UID), "*"} {
		stranger := live
		stranger.UID = uid
		w.expectSays(d, stranger, registry.Absent)
	}
	for _, change := range []func(*registry.Instance){
		func(in *registry.Instance) { in.Port = 9090 },
		func(in *registry.Instance) { in.Service += "-admin" },
		func(in *registry.Instance) { in.Address = "10.0.99.1" },
		func(in *registry.Instance) { in.Cluster += "-other" },
	} {
		elsewhere := live
		change(&elsewhere)
		w.expectSays(d, elsewhere, registry.Absent)
	}
	w.failOver(d, live)
	w.expectSays(d, dead, registry.Absent)
	w.expectSays(d, live, registry.OutOfService)

	// An address that moved to another cluster.
	theirs := heir(live)
	theirs.Cluster += "-other"
	them := w.newProcessOf(theirs.Cluster)
	w.register(them, theirs)
	w.expectSays(d, live, registry.Absent)
	w.expectSays(them, theirs, registry.InService)
}

// getOfOddNames has instances that differ in little more than in how their names are escaped. It removes every other one,
// and takes out the rest.
func getOfOddNames(w *world) {
	d := w.newProcess()
	var all []registry.Instance
	for i, odd := range oddStrings() {
		in := w.pod(i)
		in.Namespace, in.Pod, in.UID = "ns-"+odd, "pod-"+odd, "uid-"+odd
		if !w.h.lacks(AnyServiceName) {
			in = w.pod(1)
			in.Service, in.UID = odd+w.service, "uid-"+odd
		}
		all = append(all, in)
	}
	six := w.pod(len(all))
	six.Address = "fd00:10:244::1"
	all = append(all, six)

	w.register(d, all...)
	for _, in := range all {
		w.expectSays(d, in, registry.InService)
	}
	for i, op := range slices.Repeat([]operation{opDeregister, opFailOver}, len(all)/2) {
		w.must(op, d, all[i])
	}
	for i, in := range all[:len(all)/2*2] {
		w.expectSays(w.newProcess(), in, stateAfter([]operation{opDeregister, opFailOver}[i%2]))
	}
}

func getChangesNothing(w *world) {
	d := w.registered(w.pod(1), w.pod(2))
	w.failOver(d, w.pod(2))
	for i := range 4 {
		for _, in := range []registry.Instance{w.pod(i), heir(w.pod(i))} {
			_ = w.stateOf(d, in)
			_ = w.stateOf(w.newProcess(), in)
		}
	}
	w.expect(inService(w.pod(1)), outOfService(w.pod(2)))
}

func getAgreesWithList(w *world) {
	d := w.newProcess()
	plain, rich := w.pod(1), w.pod(3)
	rich.Weight, rich.Zone, rich.Tags, rich.Metadata = 3, "b", []string{"http"}, map[string]string{"version": "v1"}
	w.register(d, plain, w.pod(2), rich)
	w.failOver(d, w.pod(2))
	entries := w.expectListed(d, w.cluster, inService(plain), outOfService(w.pod(2)), inService(rich))
	for _, e := range entries {
		w.expectSays(d, e.Instance, e.State)
	}
}

func concurrentGets(w *world) {
	const pods = 60
	drivers := []registry.Registry{w.newProcess(), w.newProcess()}
	w.atOnce(pods, func(i int) error {
		d, in := drivers[i%len(drivers)], w.pod(i)
		for _, op := range []operation{opRegister, opFailOver, opDeregister}[:1+i%3] {
			if err := w.callErr(op, d, in); err != nil {
				return err
			}
			if err := w.saysErr(d, in, stateAfter(op)); err != nil {
				return err
			}
		}
		return nil
	})
}

func getAfterRestart(w *world) {
	d := w.registered(w.pod(1), w.pod(2), w.pod(3))
	w.failOver(d, w.pod(2))
	w.deregister(d, w.pod(3))
	w.restart()
	w.answersAgain()
	for _, asked := range []registry.Registry{d, w.newProcess()} {
		w.again(opGet, asked, w.pod(1))
		w.expectSays(asked, w.pod(1), registry.InService)
		w.expectSays(asked, w.pod(2), registry.OutOfService)
		w.expectSays(asked, w.pod(3), registry.Absent)
	}
}

// stateOf asks for an instance.
func (w *world) stateOf(d registry.Registry, in registry.Instance) registry.State {
	w.Helper()
	state, err := w.get(d, in)
	if err != nil {
		w.Fatalf("%v", err)
	}
	return state
}

// expectSays asks for an instance. If the registry has no out-of-service state, it expects Absent instead.
func (w *world) expectSays(d registry.Registry, in registry.Instance, want registry.State) {
	w.Helper()
	wrong := w.until(w.loading(0), func() string {
		if err := w.saysErr(d, in, want); err != nil {
			return err.Error()
		}
		return ""
	})
	if wrong != "" {
		w.Fatalf("%s", wrong)
	}
}

// saysErr is expectSays for goroutines other than the case's own.
func (w *world) saysErr(d registry.Registry, in registry.Instance, want registry.State) error {
	if want == registry.OutOfService && w.h.lacks(OutOfServiceState) {
		want = registry.Absent
	}
	got, err := w.get(d, in)
	if err == nil && got != want {
		err = fmt.Errorf("%s of %s: got %q, want %q", opGet, show(in), got, want)
	}
	return err
}

// get asks for an instance, with a generous deadline. It may be used from any goroutine.
func (w *world) get(d registry.Registry, in registry.Instance) (registry.State, error) {
	state, err := ask(w.Context(), w, func(ctx context.Context) (registry.State, error) { return d.(registry.Getter).Get(ctx, in) })
	if err != nil {
		return "", fmt.Errorf("%s of %s: got error %w, want success", opGet, show(in), err)
	}
	return state, nil
}
