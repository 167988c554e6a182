package controller

import (
	"context"
	"fmt"
	"slices"

	"github.com/rollcall-dev/rollcall/internal/calls"
	"github.com/rollcall-dev/rollcall/internal/gate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
)

// probed returns why clients are not given the pod yet although it was registered everywhere. It is asked only where a
// hook hangs on it, or where the pod is to leave what clients are given it by now.
func (r *PodReconciler) probed(ctx context.Context, seen *observation, d lifecycle.Decision, left []step) wait {
	if d.Want != lifecycle.InService || len(d.Then.Set) == 0 && !slices.ContainsFunc(left, seen.unsaid) {
		return wait{}
	}
	for _, t := range seen.targets {
		reg := seen.settings.Registries[t.registry]
		if reg.Prober == nil {
			continue
		}
		leave, refused := r.enter(seen, t)
		if refused.reason != "" {
			return refused
		}
		err := probe(ctx, reg, t, leave)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return stopping()
		default:
			return r.notServing(seen, t, err)
		}
	}
	return wait{}
}

// unsaid reports whether a step is still to be taken.
func (o *observation) unsaid(s step) bool { return !o.page.calls[s.key()].said(s) }

func probe(ctx context.Context, reg Registry, t target, leave func(error)) error {
	bounded, cancel := context.WithTimeout(ctx, reg.Timeout)
	defer cancel()
	err := gate.ErrUnfinished
	defer func() {
		if !calls.TimedOut(bounded, err) {
			err = gate.Inconclusive(err) // "not yet" is an error too
		}
		leave(err)
	}()
	err = reg.Prober.Probe(bounded, t.instance)
	return err
}

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
