package resync

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

// placed notes which places are listed.
type placed struct {
	*fakeregistry.Registry

	asked *[]string
}

func (placed) PlaceTemplate() string { return "{label:team}" }

func (p placed) ListPlaces(ctx context.Context, cluster string, places []string) ([]registry.Entry, error) {
	*p.asked = append(*p.asked, places...)
	all, err := p.List(ctx, cluster)
	return slices.DeleteFunc(all, func(e registry.Entry) bool {
		place, _ := registry.SplitPlace(p.PlaceTemplate(), e.Service)
		return !slices.Contains(places, place)
	}), err
}

// TestPlacesOfPods: only where pods are is listed, so a record chooses nothing, and what is elsewhere is not missing.
func TestPlacesOfPods(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, "a")
		var asked []string
		s.client("a", placed{s.fakes["a"], &asked})
		for _, place := range []string{"blue", "green"} {
			s.register("a", place+"-gone", func(in *registry.Instance) { in.Service = place + "/web" })
			s.gone(place + "-gone")
		}
		s.places, s.synced = []string{"blue"}, false
		s.start()
		s.expectLists("no pod is known before the cache has synced", "a", 0)
		s.set(func() { s.synced = true })
		time.Sleep(syncRecheck)
		s.expectCalls("its pod is gone", "a", "Deregister blue-gone")
		if diff := cmp.Diff([]string{"blue"}, asked); diff != "" {
			t.Errorf("places listed (-want +got):\n%s", diff)
		}
		if !s.lastListing().Partial {
			t.Error("the list says that it has everything")
		}
		s.stop()
	})
}
