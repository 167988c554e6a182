package resync

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/registry"
)

// placesNotListed is the reason of an Event.
const placesNotListed = "PlacesNotListed"

const (
	// mostPlaces bounds a run: whoever can label pods may choose places.
	mostPlaces = 1000
	// placesAtOnce are listed at the same time.
	placesAtOnce = 8
)

// places is what became of the places of a registry when last listed.
type places struct {
	asked map[string]attempt
	// warned is when the last Event was sent.
	warned time.Time
}

type attempt struct {
	at     time.Time
	failed bool
}

// listPlaces lists the places of pods. It fails if none answers.
func (k *keeper) listPlaces(ctx context.Context, template string, r *run) ([]registry.Entry, error) {
	wanted, err := k.resync.Pods.Places(ctx, k.name, template)
	if err != nil {
		return nil, err
	}
	r.coverage = lifecycle.Coverage{Template: template, Places: map[string]bool{}}
	for _, ofOne := range wanted {
		for place := range ofOne {
			r.coverage.Places[place] = false
		}
	}
	maps.DeleteFunc(k.places.asked, func(place string, _ attempt) bool {
		_, isWanted := r.coverage.Places[place]
		return !isWanted
	})
	chosen := k.places.choose(wanted, mostPlaces)
	found, errs := k.listEach(ctx, chosen)
	var entries []registry.Entry
	var failed error
	for i, place := range chosen {
		if errs[i] != nil {
			failed = cmp.Or(failed, errs[i])
			continue
		}
		r.coverage.Places[place] = true
		entries = append(entries, found[i]...)
	}
	r.unlisted = k.unlisted(r.coverage, failed)
	if !slices.Contains(slices.Collect(maps.Values(r.coverage.Places)), true) { // without a place, no error
		return nil, r.unlisted
	}
	k.tellOfUnlisted(ctx, r.unlisted)
	return entries, nil
}

// listEach lists places, all within the time of one list: places for which the time is not enough fail.
func (k *keeper) listEach(ctx context.Context, chosen []string) (found [][]registry.Entry, errs []error) {
	ctx, cancel := context.WithTimeout(ctx, k.client.ListTimeout())
	defer cancel()
	found, errs = make([][]registry.Entry, len(chosen)), make([]error, len(chosen))
	attempts := make([]attempt, len(chosen))
	var group errgroup.Group
	group.SetLimit(placesAtOnce)
	for i, place := range chosen {
		group.Go(func() error {
			if errs[i] = ctx.Err(); errs[i] != nil {
				attempts[i] = k.places.asked[place]
				return nil //nolint:nilerr // it is the place's
			}
			attempts[i].at = time.Now()
			found[i], errs[i] = k.client.ListPlace(ctx, k.resync.Cluster, place)
			attempts[i].failed = errs[i] != nil
			return nil
		})
	}
	_ = group.Wait() // each error is a place's
	for i, place := range chosen {
		k.places.asked[place] = attempts[i]
	}
	return found, errs
}

// choose returns the places to list, in their order, from those of each namespace. Those that failed come last, so that places that hang
// hold up no others. If there are more than most, the namespaces take turns, and each begins with the place that was asked longest ago: one
// that chooses a thousand places leaves those of others listed.
func (p *places) choose(wanted map[string]map[string]bool, most int) []string {
	turns := map[string]int{}
	for _, ofOne := range wanted {
		oldest := slices.SortedFunc(maps.Keys(ofOne), p.compare)
		for turn, place := range oldest {
			if before, has := turns[place]; !has || turn < before {
				turns[place] = turn
			}
		}
	}
	chosen := slices.SortedFunc(maps.Keys(turns), func(a, b string) int {
		return cmp.Or(cmp.Compare(turns[a], turns[b]), p.compare(a, b))
	})
	chosen = chosen[:min(most, len(chosen))]
	slices.SortStableFunc(chosen, func(a, b string) int {
		return cmp.Compare(failures(p.asked[a]), failures(p.asked[b]))
	})
	return chosen
}

func (p *places) compare(a, b string) int {
	return cmp.Or(p.asked[a].at.Compare(p.asked[b].at), strings.Compare(a, b))
}

func failures(a attempt) int {
	if a.failed {
		return 1
	}
	return 0
}

// unlisted is nil if all places were listed.
func (k *keeper) unlisted(c lifecycle.Coverage, failed error) error {
	var missing []string
	for place, listed := range c.Places {
		if !listed {
			missing = append(missing, place)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	if failed == nil {
		failed = fmt.Errorf("a run lists %d", mostPlaces)
	}
	return fmt.Errorf("%d of %d places were not listed, such as %s: %w", len(missing), len(c.Places),
		strings.Join(missing[:min(examples, len(missing))], ", "), failed)
}

// tellOfUnlisted sends an Event while places are missing, not too often: they may come and go.
func (k *keeper) tellOfUnlisted(ctx context.Context, unlisted error) {
	if unlisted == nil || time.Since(k.places.warned) < reason.EventRepeat {
		return
	}
	k.places.warned = time.Now()
	k.resync.Tell(ctx, corev1.EventTypeWarning, placesNotListed, fmt.Sprintf("Registry %q: %s. Rollcall leaves the entries there as they "+
		"are, and notices no change of them. Let it read these places, or correct the labels of the pods and namespaces that choose them",
		k.name, registry.Excerpt(unlisted.Error())))
}
