package registrytest

import (
	"context"

	"github.com/rollcall-dev/rollcall/registry"
)

// Placed is a driver that is configured to choose places.
type Placed interface {
	registry.Registry
	registry.PlaceLister
}

// placeCases are about registry.PlaceLister.
func placeCases() []testCase {
	return append(needing([]testCase{
		{
			name: "PlacesAreApart",
			why:  "a change in one place must not show in another, where the service is another team's",
			run:  placesAreApart,
		},
		{
			name: "PlaceOfAName",
			why:  "a slash in a name must not be read as part of the place",
			run: func(w *world) {
				d, places := w.placed()
				in := w.pod(1)
				in.Place, in.Service = places[0], in.Service+"/v1"
				w.register(d, in)
				w.expectPlace(d, places[0], inService(in))
				w.deregister(d, in)
				w.expectPlace(d, places[0])
			},
		},
		{
			name: "NoPlaceIsRefused",
			why:  "the place of a driver without one is a default, in which clients of other teams would be given the pod",
			run: func(w *world) {
				d, _ := w.placed()
				w.expectError(opRegister, d, true)
				w.deregister(d, w.pod(1)) // whatever an earlier configuration left to do is done
			},
		},
	}, hasPlaced), testCase{
		name:  "RefusedPlaceIsNotEmpty",
		why:   "what an empty place lacks counts as gone: its pods would leave the rotation because of a permission",
		needs: []Capability{hasRefusedPlace},
		run: func(w *world) {
			d, place := w.h.RefusedPlace(w.TB, w.cluster)
			w.Cleanup(func() { w.closeDriver(d) })
			ctx, cancel := context.WithTimeout(w.Context(), callTimeout)
			defer cancel()
			if entries, err := d.ListPlace(ctx, w.cluster, place); err == nil || len(entries) > 0 {
				w.Fatalf("ListPlace of %q, which the registry refuses: got %d entries and error %v, want an error alone", place, len(entries), err)
			}
		},
	})
}

// placed returns a new driver, which removes at the end what the case wrote.
func (w *world) placed() (Placed, [2]string) {
	w.Helper()
	d, places := w.h.Placed(w.TB, w.cluster)
	w.Cleanup(func() {
		w.cleanUp(d, w.cluster)
		w.closeDriver(d)
	})
	if registry.TraitsOf(d).PlaceTemplate == "" {
		w.Fatalf("harness: the driver that Placed returns has an empty PlaceTemplate")
	}
	return d, places
}

func placesAreApart(w *world) {
	d, places := w.placed()
	var here, there registry.Instance
	for i, in := range []*registry.Instance{&here, &there} {
		*in = w.pod(1)
		in.Place = places[i]
		w.register(d, *in)
	}
	w.expectPlace(d, places[0], inService(here))
	w.expectPlace(d, places[1], inService(there))
	w.failOver(d, here)
	w.expectPlace(d, places[0], outOfService(here))
	w.expectPlace(d, places[1], inService(there))
	if _, gets := d.(registry.Getter); gets {
		w.expectSays(d, here, registry.OutOfService)
		w.expectSays(d, there, registry.InService)
	}
	w.deregister(d, here)
	w.expectPlace(d, places[0])
	w.expectPlace(d, places[1], inService(there))
	w.deregister(d, there)
	w.expectPlace(d, places[1])
}

func (w *world) expectPlace(d Placed, place string, want ...registry.Entry) {
	w.Helper()
	want = w.h.possible(want)
	list := func(ctx context.Context, cluster string) ([]registry.Entry, error) {
		return d.ListPlace(ctx, cluster, place)
	}
	if diff := w.until(staleness(d), func() string { return difference(w.read(list, w.cluster), want) }); diff != "" {
		w.Fatalf("ListPlace of %q is wrong\n%s", place, diff)
	}
}
