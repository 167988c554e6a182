package visit

import (
	"context"
	"slices"

	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/internal/waiting"
)

// unsteered holds a pod whose application may have registered it under a name that it may not use. Once taken out, it could not be put
// back.
func (v *visit) unsteered(context.Context) waiting.Blocker {
	if !v.Unsteered || !v.decision.Releases {
		return waiting.Blocker{}
	}
	return v.Problem
}

// unlisted holds a pod of which neither this process nor a record knows where it was in service, until each registry was listed, or the
// pod's place in it. Its annotations may have changed since the last leader registered it.
func (v *visit) unlisted(context.Context) waiting.Blocker {
	known := v.Tracked.Known()
	if v.input.Record.WasInService() || known.Born() || !v.decision.Releases {
		return waiting.Blocker{}
	}
	for _, s := range v.Sources {
		if name := s.Registry; v.Settings.Registries[name].Lists() && !v.listed(name, known) {
			return waiting.NotYetListed(name, v.backOff())
		}
	}
	return waiting.Blocker{}
}

func (v *visit) listed(registry string, known tracker.Known) bool {
	return known.Listed(registry) && !slices.ContainsFunc(v.targets, func(t tracker.Target) bool {
		return t.Registry == registry && !t.Key().ByApp() && !known.Shown(t.Key())
	})
}
