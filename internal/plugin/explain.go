package plugin

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	appspub "github.com/openkruise/kruise-api/apps/pub"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
)

// explain says in sentences why a pod is in rotation or not, what has to happen next, whose each handler is, and what a
// person can do.
func (o *options) explain(p Pod, unknown error) {
	on := terminalOf(o.Out)
	var paragraphs []string
	said := slices.Concat([]string{p.facts.leaderless, rotationSentence(p)}, registrySentences(p, unknown),
		[]string{stateSentence(p), waitSentence(p), nextSentence(p)})
	for _, lines := range [][]string{said, handlerLines(p), o.remedies(p)} {
		lines = slices.DeleteFunc(lines, func(line string) bool { return line == "" })
		for i, line := range lines {
			look := plain
			switch line {
			case p.facts.leaderless:
				look = bad
			case waitSentence(p):
				look = p.tone()
			}
			lines[i] = on.paint(on.wrap(printable(line)), look)
		}
		if len(lines) > 0 {
			paragraphs = append(paragraphs, strings.Join(lines, "\n")+"\n")
		}
	}
	fmt.Fprint(o.Out, strings.Join(paragraphs, "\n"))
}

func rotationSentence(p Pod) string {
	name := p.Namespace + "/" + p.Name
	switch p.Rotation {
	case In:
		return fmt.Sprintf("%s is in rotation: %s.", name, instances(p))
	case Out:
		return fmt.Sprintf("%s is out of rotation: %s.", name, instances(p))
	case Unknown:
	}
	return fmt.Sprintf("%s is not in rotation: no registry has acknowledged it yet.", name)
}

func instances(p Pod) string {
	if len(p.Instances) == 0 {
		return "no registry has an instance of it"
	}
	said := map[Rotation]string{In: "acknowledged", Out: "acknowledged that it does not send clients to"}[p.Rotation]
	var all []string
	for _, in := range p.Instances {
		all = append(all, fmt.Sprintf("registry %s %s %s at %s",
			in.Registry, said, in.Service, net.JoinHostPort(in.Address, strconv.Itoa(in.Port))))
	}
	return strings.Join(all, ", ")
}

func stateSentence(p Pod) string {
	since := ""
	if p.Since != nil {
		since = " for " + p.age()
	}
	switch p.State {
	case terminating:
		return "The pod is being deleted."
	case "":
		return "OpenKruise has given the pod no lifecycle state."
	}
	meaning := cmp.Or(map[appspub.LifecycleStateType]string{
		appspub.LifecycleStatePreparingNormal: "it is new or back, and does not count as available yet",
		appspub.LifecycleStateNormal:          "it counts as available once it is ready",
		appspub.LifecycleStatePreparingUpdate: "OpenKruise wants to update it in place",
		appspub.LifecycleStateUpdating:        "its containers restart",
		appspub.LifecycleStateUpdated:         "it was updated in place",
		appspub.LifecycleStatePreparingDelete: "OpenKruise wants to delete it",
	}[appspub.LifecycleStateType(p.State)], "a state that this version does not know")
	ready := "not ready"
	if p.Ready {
		ready = "ready"
	}
	return fmt.Sprintf("It has been %s%s: %s. It is %s.", p.State, since, meaning, ready)
}

func waitSentence(p Pod) string {
	switch {
	case p.Reason == "" && p.Hook == "":
		return "Nothing waits for Rollcall."
	case p.Reason == reason.AwaitingOpenKruise:
		return fmt.Sprintf("Nothing waits for Rollcall: %s.", p.Message)
	case p.Reason == reason.NotWatched && p.Hook == "":
		return fmt.Sprintf("No hook waits. The manager does not see the pod: %s.", p.Message)
	case p.Hook == "":
		return fmt.Sprintf("No hook waits, but there is a warning, %s: %s.", p.Reason, strings.TrimSuffix(p.Message, "."))
	default:
		return fmt.Sprintf("OpenKruise waits at the hook %s, reason %s: %s.", p.Hook, p.Reason, strings.TrimSuffix(p.Message, "."))
	}
}

// nextSentence says what Rollcall does next, as the decision table has it.
func nextSentence(p Pod) string {
	d := p.facts.decision
	if p.Reason == reason.NotWatched || p.Hook == "" && d.Then.Empty() {
		return ""
	}
	if p.Hook != "" && !d.Releases && !p.Ready {
		return "Next, the pod becomes ready; then Rollcall registers it, and sets the handler once the registry has acknowledged."
	}
	first := map[lifecycle.Want]string{
		lifecycle.InService:    "every registry of the pod acknowledges that it is in service",
		lifecycle.OutOfService: "every registry of the pod acknowledges that it is out of service",
		lifecycle.Absent:       "every registry of the pod acknowledges that it is removed",
	}[d.Want]
	if first == "" {
		return ""
	}
	if p.facts.drainLeft > 0 {
		first = "the drain ends in " + short(p.facts.drainLeft)
	}
	var then []string
	if set := handlers(d.Then.Set); set != "" {
		then = append(then, "sets "+set)
	}
	if clears := handlers(d.Then.Clear); clears != "" {
		then = append(then, "clears "+clears)
	}
	if len(then) == 0 {
		return fmt.Sprintf("Next, %s.", first)
	}
	return fmt.Sprintf("Next, %s; then Rollcall %s.", first, strings.Join(then, " and "))
}

func handlers(list []lifecycle.Handler) string {
	var all []string
	for _, h := range list {
		all = append(all, h.String())
	}
	return strings.Join(all, ", ")
}

// handlerLines says of each handler of the workload whose it is and whether the pod has it.
func handlerLines(p Pod) []string {
	w := p.facts.workload
	if w == nil {
		return []string{"The pod's workload is gone, so no hook names a handler."}
	}
	lines := []string{"Handlers:"}
	for _, n := range lifecycle.HandlersOf(w.Lifecycle) {
		whose := "another controller's: hooks.owned does not have its key"
		if p.facts.input.Ownership.Owns(n.Key()) {
			whose = "Rollcall's"
		}
		for _, refused := range p.facts.input.Hooks.Refused {
			if refused.Hook == n.Hook && refused.Handler == n.Handler {
				whose = "not used, " + refused.Why
			}
		}
		set := "not set"
		if n.SetOn(p.facts.pod) {
			set = "set"
		}
		lines = append(lines, fmt.Sprintf("  %-13s  %s: %s; %s", n.Hook, n, set, whose))
	}
	if len(lines) == 1 {
		return []string{"The workload has no lifecycle hooks."}
	}
	return lines
}

func (o *options) remedies(p Pod) []string {
	var lines []string
	if p.Reason != "" {
		lines = append(lines, "  about the reason: "+p.Reason.Page())
	}
	if p.facts.decision.Releases && p.Reason != reason.NotWatched {
		lines = append(lines, "  let it go without the registry: "+o.again("release %s -n %s", p.Name, p.Namespace))
	}
	if len(lines) == 0 {
		return nil
	}
	return append([]string{"What you can do:"}, lines...)
}
