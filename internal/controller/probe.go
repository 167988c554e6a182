package controller

import (
	"context"
	"fmt"
	"slices"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/registry"
)

// probed returns why clients are not given the pod yet although it was registered everywhere. It is asked only where a
// hook hangs on it, or where the pod is to leave what clients are given it by now.
func (r *PodReconciler) probed(ctx context.Context, seen *observation, d lifecycle.Decision, left []step) wait {
	if d.Want != lifecycle.InService || len(d.Then.Set) == 0 && !slices.ContainsFunc(left, seen.unsaid) {
		return wait{}
	}
	for _, t := range seen.targets {
		client := seen.settings.Registries[t.registry]
		if !client.Probes() {
			continue
		}
		err := client.Probe(ctx, r.caller(seen, nil), t.instance)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return stopping()
		case !registryclient.Classify(err).Asked():
			return r.failed(seen.pod().UID, t, err)
		default:
			return r.notServing(seen, t, err)
		}
	}
	return wait{}
}

// unsaid reports whether a step is still to be taken.
func (o *observation) unsaid(s step) bool { return !o.page.calls[s.key()].said(s) }

func (r *PodReconciler) notServing(seen *observation, t target, err error) wait {
	w := wait{reason: ReasonNotServing, message: fmt.Sprintf("%s is registered and not given to clients yet: %v", t, err)}
	after, told := registry.RetryAfterOf(err)
	switch {
	case registry.IsTerminal(err):
		w.after = backoffCap
	case told:
		w.after = max(after, r.backoff.When(seen.pod().UID))
	default:
		w.after = r.backoff.When(seen.pod().UID)
	}
	return w
}
