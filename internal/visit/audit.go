package visit

import (
	"context"
	"time"

	"github.com/rollcall-dev/rollcall/internal/audit"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/receipt"
	"github.com/rollcall-dev/rollcall/registry"
)

// auditFlip logs which handlers a patch changed, with the state in the API server's answer, which may be newer than what was decided on.
func (v *visit) auditFlip(before, after *lifecycle.Pod, asked time.Time) {
	if v.Audit == nil {
		return
	}
	in := v.input
	in.Pod = after
	line := v.facts.Line(in, v.targets)
	line.Kind, line.Asked, line.Excuse, line.Hooks = receipt.Flip, asked, v.excuse, receipt.Hooks{}
	line.Seconds = v.facts.Drain.Min.Seconds() // the pod may have been idle from then on
	for hook, handlers := range map[string][]lifecycle.Handler{
		receipt.PreNormal: v.input.Hooks.PreNormal, receipt.InPlaceUpdate: v.input.Hooks.InPlaceUpdate,
		receipt.PreDelete: v.input.Hooks.PreDelete,
	} {
		for _, h := range handlers {
			line.Hooks[hook] = append(line.Hooks[hook], h.String())
			switch was, is := h.SetOn(before), h.SetOn(after); {
			case is && !was:
				line.Set = append(line.Set, h.String())
			case was && !is:
				line.Cleared = append(line.Cleared, h.String())
			}
		}
	}
	if len(line.Set)+len(line.Cleared) > 0 {
		v.Audit.Write(line)
	}
}

// about attaches the facts to the context, for the log lines of calls.
func (v *visit) about(ctx context.Context) context.Context {
	if v.Audit == nil {
		return ctx
	}
	line := v.facts.Line(v.input, v.targets)
	return audit.About(ctx, &line)
}

func (e *entry) told(state registry.State, asked time.Time) {
	e.facts.AuditTold(e.Audit, e.input, e.Target, state, asked)
}
