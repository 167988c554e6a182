package registrytest

import (
	"context"

	"github.com/rollcall-dev/rollcall/registry"
)

// listCases are about registry.Lister.
func listCases() []Case {
	needs := []Capability{Listing}
	return []Case{
		{
			Name:  "ListIsOnlyThisClusters",
			Why:   "two clusters may share a registry; what one lists and does not know, it may remove",
			Needs: needs,
			run:   listIsOnlyThisClusters,
		},
		{
			Name:  "ListOfUnknownCluster",
			Why:   "a cluster's first Rollcall finds nothing of its own, which is no error",
			Needs: needs,
			run: func(w *world) {
				w.expectListed(w.newProcess(), w.cluster+"-unheard-of")
			},
		},
		{
			Name:  "ListIsACopy",
			Why:   "who works on a list must not change what the registry holds, nor a list that another got",
			Needs: needs,
			run: func(w *world) {
				d := w.newProcess()
				w.register(d, w.pod(1), w.pod(2))
				got := w.list(d, w.cluster)
				for i := range got {
					got[i].State = registry.OutOfService
					got[i].UID = "scribble"
				}
				w.expectListed(d, w.cluster, inService(w.pod(1)), inService(w.pod(2)))
			},
		},
	}
}

func listIsOnlyThisClusters(w *world) {
	d := w.newProcess()
	clusters := []string{
		w.cluster, w.cluster + "-2", w.cluster + "&cluster=" + w.cluster, "x/" + w.cluster, w.cluster + " ü%",
	}
	for i, cluster := range clusters {
		in := w.pod(i)
		in.Cluster = cluster
		w.register(d, in)
	}
	for i, cluster := range clusters {
		in := w.pod(i)
		in.Cluster = cluster
		w.expectListed(w.newProcess(), cluster, inService(in))
	}
}

func (w *world) list(d registry.Registry, cluster string) []registry.Entry {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), callTimeout)
	defer cancel()
	entries, err := d.(registry.Lister).List(ctx, cluster)
	if err != nil {
		w.Fatalf("List of %q: got error %q, want success\nwhy: %s", cluster, err, w.why)
	}
	return entries
}

func (w *world) expectListed(d registry.Registry, cluster string, want ...registry.Entry) {
	w.Helper()
	if diff := difference(w.list(d, cluster), want); diff != "" {
		w.Fatalf("List of %q is wrong\n%swhy: %s", cluster, diff, w.why)
	}
}
