package registrytest

import (
	"context"
	"fmt"

	"github.com/rollcall-dev/rollcall/registry"
)

// listCases are about registry.Lister.
func listCases() []testCase {
	return needing([]testCase{
		{
			name: "ListIsOnlyThisClusters",
			why:  "two clusters can share a registry; Rollcall may remove what it lists and does not know",
			run:  listIsOnlyThisClusters,
		},
		{
			name: "ListOfUnknownCluster",
			why:  "a cluster's first Rollcall finds nothing of its own, which is not an error",
			run: func(w *world) {
				w.expectListed(w.newProcess(), w.cluster+"-unheard-of")
			},
		},
		{
			name: "ListsOursAmongAThousand",
			why:  "a page that is not fetched, or a filter that is too wide, shows only in a large registry",
			run:  listsOursAmongAThousand,
		},
		{
			name: "ListIsACopy",
			why:  "a caller that changes its list must change neither the registry nor another caller's list",
			run: func(w *world) {
				d := w.registered(w.pod(1), w.pod(2))
				in := w.pod(3)
				in.Metadata = map[string]string{"version": "v1"}
				w.register(d, in)
				want := []registry.Entry{inService(w.pod(1)), inService(w.pod(2)), inService(in)}
				got := w.expectListed(d, w.cluster, want...)
				for i := range got {
					got[i].State = registry.OutOfService
					got[i].UID = "scribble"
					for key := range got[i].Metadata {
						got[i].Metadata[key] = "scribble"
					}
				}
				w.expectListed(d, w.cluster, want...)
			},
		},
	}, isLister)
}

func listIsOnlyThisClusters(w *world) {
	clusters := []string{
		w.cluster, w.cluster + "-2", w.cluster + "&cluster=" + w.cluster, "x/" + w.cluster, w.cluster + " ü%",
	}
	for i, cluster := range clusters {
		in := w.pod(i)
		in.Cluster = cluster
		w.register(w.newProcessOf(cluster), in)
	}
	for i, cluster := range clusters {
		in := w.pod(i)
		in.Cluster = cluster
		w.expectListed(w.newProcess(), cluster, inService(in))
	}
}

// listsOursAmongAThousand has another cluster's Rollcall register a thousand instances of our service and of others,
// while ours come and go.
func listsOursAmongAThousand(w *world) {
	const (
		others   = 1000
		atOnce   = 100
		services = 10
		ours     = 20
	)
	their := w.cluster + "-large"
	stranger := func(i int) registry.Instance {
		in := w.pod(ours + i)
		in.Cluster = their
		in.UID += "-of-another"
		if i%services > 0 {
			in.Service = fmt.Sprintf("%s-%d", in.Service, i%services)
		}
		return in
	}
	d, theirs := w.newProcess(), w.newProcessOf(their)
	w.register(d, w.pods(ours/2)...)
	// So many calls can be too much for a server, which is not what the case is about.
	ctx, cancel := context.WithTimeout(w.Context(), callTimeout)
	defer cancel()
	w.some(others, atOnce, func(i int) error { return w.registerWhile(ctx, theirs, stranger(i)) })
	w.register(d, w.pods(ours)...)
	w.expectListed(w.newProcess(), w.cluster, allInService(w.pods(ours))...)

	w.failOver(d, w.pod(0))
	w.deregister(d, w.pods(ours)[1:]...)
	w.expectListed(d, w.cluster, outOfService(w.pod(0)))
	var all []registry.Entry
	for i := range others {
		all = append(all, inService(stranger(i)))
	}
	w.expectListed(theirs, their, all...)
}

// expectListed returns what was listed. It waits for a list that may lag.
func (w *world) expectListed(d registry.Registry, cluster string, want ...registry.Entry) []registry.Entry {
	w.Helper()
	want = w.h.possible(want)
	var got []registry.Entry
	diff := w.until(staleness(d), func() string {
		got = w.read(d.(registry.Lister).List, cluster)
		return difference(got, want)
	})
	if diff != "" {
		w.Fatalf("List of %q is wrong\n%s", cluster, diff)
	}
	return got
}
