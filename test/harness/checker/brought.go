package checker

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
)

const (
	// clearsWithin is how long a manager that leads may take to clear a handler that Kruise has brought: it waits for no registry.
	clearsWithin = 3 * time.Second
	// leadsFor is how long a manager has led, at least, before it is held to that, and wroteWithin how long before that it has written.
	leadsFor, wroteWithin = 5 * time.Second, 15 * time.Second
)

// checkBrought finds a pod that Kruise took for back since it carried every handler of inPlaceUpdate, which the update had brought along
// and no manager cleared. Where the container took no time, no manager can be sooner. The caller holds the lock.
func (j *Journal) checkBrought(p *podLog, before, now Sighting) {
	if now.State != string(appspub.LifecycleStateNormal) || before.State != string(appspub.LifecycleStateUpdating) {
		return
	}
	began, found := p.broughtSince()
	if !found || now.Gap || now.At.Sub(began) < clearsWithin || !j.leads(began, now.At) {
		return
	}
	if why := j.absentFrom(p, now.Keys, now.At); why != "" {
		j.violate(p, now.At, fmt.Sprintf("I2: Kruise took the pod for back from its update by handlers that this had brought %s before, %s",
			now.At.Sub(began).Round(time.Millisecond), why))
	}
}

// broughtSince returns since when the pod, but for its last sighting, has carried every handler of inPlaceUpdate in Updating: since the
// write that released hook let Kruise make. Else a visit that was under way may have held a manager up.
func (p *podLog) broughtSince() (since time.Time, found bool) {
	for _, s := range slices.Backward(p.sightings[:len(p.sightings)-1]) {
		missing := func(h string) bool { return !s.Set[h] }
		switch handlers := p.hooks[InPlaceUpdate]; {
		case s.State == string(appspub.LifecycleStatePreparingUpdate):
			return since, !since.IsZero()
		case s.State != string(appspub.LifecycleStateUpdating), s.Gap, len(handlers) == 0, slices.ContainsFunc(handlers, missing):
			return time.Time{}, false
		}
		since = s.At
	}
	return time.Time{}, false
}

// leads reports whether one manager alone led from well before a time until another, and saw the pods: by what it wrote. The caller holds
// the lock.
func (j *Journal) leads(from, by time.Time) bool {
	var first, last *Patch
	for _, w := range j.patches {
		if w.Status != http.StatusOK || w.Received.Before(from.Add(-wroteWithin)) || w.Received.After(by) {
			continue
		}
		if last != nil && w.manager != last.manager {
			return false
		}
		if last = w; first == nil {
			first = w
		}
	}
	return !j.blind(by) && first != nil && first.Received.Before(from.Add(-leadsFor)) && last.Received.After(from.Add(clearsWithin/2))
}
