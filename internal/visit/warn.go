package visit

import (
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
)

// warnOfBrought records once that an update brought a handler with it.
func (v *visit) warnOfBrought() {
	why, moved := v.input.Brought(), lifecycle.StampOf(v.pod()).Timestamp
	if why != "" && moved != v.facts.Memory.Brought {
		v.facts.Memory.Brought = moved
		v.event(reason.HandlerInTemplate, why)
	}
}

// refuseSkip records once why the skip annotation is not followed.
func (v *visit) refuseSkip() {
	why := v.facts.Skip.RefusedIn(v.decision)
	if why != "" && why != v.facts.Memory.SkipRefused {
		v.event(reason.SkipRefused, why)
	}
	v.facts.Memory.SkipRefused = why
}
