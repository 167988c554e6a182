package resync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

// placed notes which places are listed, and fails or hangs in some.
type placed struct {
	fakeregistry.Placed

	*placesAsked
}

type placesAsked struct {
	mu    sync.Mutex
	asked []string
	fails map[string]error
	hangs map[string]bool
}

func (p placed) ListPlace(ctx context.Context, cluster, place string) ([]registry.Entry, error) {
	p.mu.Lock()
	p.asked = append(p.asked, place)
	err, hangs := p.fails[place], p.hangs[place]
	p.mu.Unlock()
	if hangs {
		<-ctx.Done()
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	return p.Placed.ListPlace(ctx, cluster, place)
}

// take returns the places asked since.
func (p *placesAsked) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked := p.asked
	p.asked = nil
	return asked
}

func (p *placesAsked) set(fails map[string]error, hangs ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fails, p.hangs = fails, map[string]bool{}
	for _, place := range hangs {
		p.hangs[place] = true
	}
}

// inPlaces is a scene whose registry a has places, with pods in these.
func inPlaces(t *testing.T, places ...string) (*scene, *placesAsked) {
	t.Helper()
	s, asked := newScene(t, "a"), &placesAsked{}
	s.client("a", placed{fakeregistry.Placed{Backend: s.fakes["a"], Template: "{label:team}"}, asked})
	s.places = places
	return s, asked
}

func in(place string) func(*registry.Instance) {
	return func(in *registry.Instance) { in.Service = place + "/web" }
}

// TestPlacesOfPods: what is elsewhere is not missing.
func TestPlacesOfPods(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, asked := inPlaces(t, "blue")
		for _, place := range []string{"blue", "green"} {
			s.register("a", place+"-gone", in(place))
			s.gone(place + "-gone")
		}
		s.synced = false
		s.start()
		s.expectLists("no pod is known before the cache has synced", "a", 0)
		s.set(func() { s.synced = true })
		time.Sleep(syncRecheck)
		s.expectCalls("its pod is gone", "a", "Deregister blue-gone")
		expect.Equal(t, []string{"blue"}, asked.take(), "places listed")
		if covers := s.lastListing().Coverage; !covers.Has("blue/web") || covers.Has("green/web") {
			t.Errorf("the list covers %+v, want blue alone", covers)
		}
		s.set(func() { s.places, s.placesErr = []string{"green"}, errors.New("refused") })
		time.Sleep(2 * time.Minute)
		s.expectStatus("listing: refused", false)
		s.set(func() { s.placesErr = nil })
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		s.stop()
		expect.Equal(t, []string{"green"}, slices.Collect(maps.Keys(s.resync.keepers["a"].places.asked)), "places whose lists are remembered")
	})
}

// TestPlaceThatDoesNotAnswer: others are compared, what it has is not known, and a person sees that.
func TestPlaceThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	refused := registry.Terminal(errors.New("403 for namespace red"))
	var hanging []string
	for i := range 2 * placesAtOnce {
		hanging = append(hanging, fmt.Sprintf("a%02d", i))
	}
	type row struct {
		reason string
		places []string
		fails  map[string]error
		hangs  []string
		// err is what the status shows; failed that nothing was compared.
		err    string
		failed bool
	}
	expect.Each(t, map[string]row{
		"all answer":      {"nothing is amiss", []string{"blue", "red"}, nil, nil, "", false},
		"no pod anywhere": {"there is nothing to list", nil, nil, nil, "", false},
		"one is refused": {
			"it may be anybody's label", []string{"blue", "red"}, map[string]error{"red": refused}, nil,
			"1 of 2 places were not listed, such as red: 403", false,
		},
		"one is away": {
			"others are there", []string{"blue", "red"}, map[string]error{"red": errors.New("connection refused")}, nil,
			"such as red: connection refused", false,
		},
		"all are refused": {
			"it is not a matter of the place", []string{"blue", "red"}, map[string]error{"red": refused, "blue": refused}, nil,
			"2 of 2 places were not listed, such as blue, red: 403", true,
		},
		"the only one is": {"the same", []string{"red"}, map[string]error{"red": refused}, nil, "1 of 1 places", true},
		"many hang": {
			"they are listed last once they have hung", []string{"a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "blue"}, nil,
			[]string{"a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8"}, "8 of 9 places were not listed, such as a1, a2, a3: ", false,
		},
		"more hang than there is time for": {
			"what had no turn has the first in the next run", append(hanging, "blue"), nil, hanging, "16 of 17 places were not listed", false,
		},
	}, func(t *testing.T, tc row) {
		synctest.Test(t, func(t *testing.T) {
			s, asked := inPlaces(t, tc.places...)
			s.register("a", "blue-gone", in("blue"))
			s.gone("blue-gone")
			asked.set(tc.fails, tc.hangs...)
			s.start()
			time.Sleep(4 * 6 * timeout)
			synctest.Wait()
			s.expectMetric("rollcall_resync_unlisted_places", "", float64(len(tc.fails)+len(tc.hangs)))
			got := s.resync.Status()["a"]
			if got.Succeeded.IsZero() != tc.failed || (got.Failure == "") != (tc.err == "") || !strings.Contains(got.Failure, tc.err) {
				t.Errorf("the status is %+v, want the failure %q and failed %t: %s", got, tc.err, tc.failed, tc.reason)
			}
			if removed := len(s.calls("a")) == 1; removed == (tc.failed || len(tc.places) == 0) {
				t.Errorf("the entry of the place that answers was removed, or not: %t: %s", removed, tc.reason)
			}
			events := s.told(placesNotListed)
			if want := tc.err != "" && !tc.failed; want != (len(events) == 1) || want && !strings.Contains(events[0], tc.err) {
				t.Errorf("got events %q, want one of the places: %t", events, want)
			}
			asked.set(nil)
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			s.expectStatus("", false)
			s.expectMetric("rollcall_resync_unlisted_places", "", 0)
			s.stop()
		})
	})
}

// TestPlaceThatFailsIsRemembered: it is listed last in the next run.
func TestPlaceThatFailsIsRemembered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, asked := inPlaces(t, "blue", "red")
		asked.set(map[string]error{"red": errors.New("refused")})
		s.start()
		s.stop()
		if got := s.resync.keepers["a"].places.asked; got["blue"].failed || !got["red"].failed {
			t.Errorf("got %+v, want that red failed", got)
		}
	})
}

// TestRefusedPlacesDoNotGetMoreRemoved: of entries that may be another cluster's, many are removed only if a person approves.
func TestRefusedPlacesDoNotGetMoreRemoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, asked := inPlaces(t, "blue", "red")
		s.maxRemovals = "3"
		for i := range 6 {
			pod := fmt.Sprintf("gone-%d", i)
			s.register("a", pod, in([]string{"blue", "red"}[i%2]))
			s.gone(pod)
		}
		s.start()
		s.expectCalls("6 are more than 3", "a")
		digest := s.digest(s.warnings[0])
		asked.set(map[string]error{"red": registry.Terminal(errors.New("403"))})
		time.Sleep(2 * time.Minute)
		s.expectCalls("the other 3 are there still, as far as is known", "a")
		s.expectMetric("rollcall_resync_blocked_removals", "", 6)
		asked.set(nil)
		s.resync.Approve([]string{digest})
		synctest.Wait()
		s.expectCalls("the approval is for all", "a", "Deregister gone-0", "Deregister gone-1", "Deregister gone-2", "Deregister gone-3",
			"Deregister gone-4", "Deregister gone-5")
		s.stop()
	})
}

// TestPlaceThatAnswersAgainIsNoOtherCluster: its entries were there while nobody saw them.
func TestPlaceThatAnswersAgainIsNoOtherCluster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, asked := inPlaces(t, "blue", "red")
		s.identified()
		theirs := func(in *registry.Instance) { in.ClusterUID = otherUID }
		s.register("a", "web-1", in("red"), theirs)
		asked.set(map[string]error{"red": registry.Terminal(errors.New("403"))})
		s.start()
		asked.set(nil)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := s.told(clusterNameShared); len(got) > 0 {
			t.Errorf("got events %q, want none: no entry was written", got)
		}
		s.register("a", "web-2", in("red"), theirs)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := s.told(clusterNameShared); len(got) != 1 {
			t.Errorf("got events %q, want one: an entry was written", got)
		}
		s.stop()
	})
}

// TestChoose: whoever can label pods must not keep the places of others from being listed.
func TestChoose(t *testing.T) {
	t.Parallel()
	at := func(seconds int, failed bool) attempt { return attempt{time.Unix(int64(seconds), 0), failed} }
	set := func(places ...string) map[string]bool {
		all := map[string]bool{}
		for _, place := range places {
			all[place] = true
		}
		return all
	}
	type row struct {
		reason string
		asked  map[string]attempt
		wanted map[string]map[string]bool
		most   int
		want   []string
	}
	expect.Each(t, map[string]row{
		"all":         {"there is room", nil, map[string]map[string]bool{"x": set("b", "a"), "y": set("a", "c")}, 9, []string{"a", "b", "c"}},
		"a flood":     {"each namespace has its turn", nil, map[string]map[string]bool{"x": set("a", "b", "c"), "y": set("z")}, 2, []string{"a", "z"}},
		"of two":      {"it has the better turn", nil, map[string]map[string]bool{"x": set("a", "b", "c"), "y": set("c")}, 2, []string{"a", "c"}},
		"next":        {"those that had none", map[string]attempt{"a": at(1, false), "z": at(1, false)}, map[string]map[string]bool{"x": set("a", "b", "c"), "y": set("z")}, 2, []string{"b", "z"}},
		"failed":      {"it may hang again", map[string]attempt{"a": at(1, true), "b": at(1, false)}, map[string]map[string]bool{"x": set("a", "b")}, 2, []string{"b", "a"}},
		"failed long": {"it has its turn all the same", map[string]attempt{"a": at(1, true), "b": at(2, false)}, map[string]map[string]bool{"x": set("a", "b")}, 1, []string{"a"}},
	}, func(t *testing.T, tc row) {
		p := places{asked: tc.asked}
		for range 20 { // the namespaces come in any order
			expect.Equal(t, tc.want, p.choose(tc.wanted, tc.most), "places: %s", tc.reason)
		}
	})
}

// TestFloodOfPlaces: a run lists a thousand, and the others in the next.
func TestFloodOfPlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, asked := inPlaces(t, "blue")
		for i := range 3 * mostPlaces {
			s.places = append(s.places, fmt.Sprintf("hostile-%d", i))
		}
		s.start()
		all := map[string]bool{}
		for run := range 4 {
			got := asked.take()
			for _, place := range got {
				all[place] = true
			}
			if len(got) != mostPlaces || !slices.Contains(got, "blue") || !s.lastListing().Coverage.Has("blue/web") {
				t.Errorf("run %d listed %d places, want %d with blue", run, len(got), mostPlaces)
			}
			s.expectStatus("a run lists 1000", false)
			s.resync.Run()
			synctest.Wait()
		}
		expect.Equal(t, 3*mostPlaces+1, len(all), "places listed in four runs")
		s.stop()
	})
}

// TestPlacesOfACluster are also those that pods have left, or that a record shows: heartbeats keep their entries.
func TestPlacesOfACluster(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "1", Labels: map[string]string{"team": "new"}}}
	cache := clusterstate.CacheThrough(clientOf(pod))
	c := &Cluster{
		Cache: cache, Pods: clusterstate.PodsThrough(cache), Synced: func() bool { return true }, Tracker: tracker.New(),
		Claims: clusterstate.New(cache, clusterstate.PodsThrough(cache), nil).Claims,
		Clock:  clocktesting.NewFakePassiveClock(time.Now()),
	}
	registered := registry.Instance{Service: "old/web", Address: "10.0.0.1", Port: 80, Namespace: "shop", Pod: "web-1", UID: "1"}
	elsewhere := registered
	elsewhere.Service = "web"
	for _, told := range []registry.Instance{registered, elsewhere} {
		target := tracker.Target{Registry: "default", Instance: told}
		c.Open(lifecycle.PodIDOf(lifecycle.PodOf(pod))).Begin(target.Key(), lifecycle.InService, told, c.Clock.Now())
	}
	left := registered
	left.Namespace, left.Pod, left.UID = "left", "web-2", "2"
	target := tracker.Target{Registry: "default", Instance: left}
	c.Open(target.Pod()).Begin(target.Key(), lifecycle.InService, left, c.Clock.Now())
	got, err := c.Places(t.Context(), "default", "{label:team}")
	expect.NoError(t, err)
	expect.Equal(t, map[string]map[string]bool{"shop": {"new": true, "old": true}, "left": {"old": true}}, got, "places")
}
