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
func (j *Journal) checkBrought(p *podLog, now Sighting) {
	began := p.broughtSince()
	if now.State != string(appspub.LifecycleStateNormal) || now.Gap || now.At.Sub(began) < clearsWithin || !j.leads(began, now.At) {
		return
	}
	if why := j.absentFrom(p, now.Keys, now.At); why != "" {
		j.violate(p, now.At, fmt.Sprintf("I2: Kruise took the pod for back from its update by handlers that this had brought %s before, %s",
			now.At.Sub(began).Round(time.Millisecond), why))
	}
}

// broughtSince returns since when the pod, before its last sighting, has carried every handler of inPlaceUpdate in Updating: since the
// write that released hook let Kruise make. Else a visit that was under way may have held a manager up, and it counts as brought just now.
func (p *podLog) broughtSince() (since time.Time) {
	since = p.last().At
	for _, s := range slices.Backward(p.sightings[:len(p.sightings)-1]) {
		missing := func(h string) bool { return !s.Set[h] }
		switch {
		case s.State == string(appspub.LifecycleStatePreparingUpdate):
			return since
		case s.State != string(appspub.LifecycleStateUpdating), s.Gap, slices.ContainsFunc(p.hooks[InPlaceUpdate], missing):
			return p.last().At
		}
		since = s.At
	}
	return p.last().At
}

// leads reports whether one manager alone led from well before a time until another, and saw the pods: by what it wrote. The caller holds
// the lock.
func (j *Journal) leads(from, by time.Time) bool {
	manager := ""
	var first, last time.Time
	for _, w := range j.patches {
		if w.Status != http.StatusOK || w.Received.Before(from.Add(-wroteWithin)) {
			continue
		}
		switch manager {
		case "":
			manager, first = w.manager, w.Received
		case w.manager:
		default:
			return false
		}
		last = w.Received
	}
	return !j.blind(by) && first.Before(from.Add(-leadsFor)) && last.After(from.Add(clearsWithin/2))
}
