package lifecycle

import (
	"fmt"
	"slices"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Workload is what decisions need of a pod's owner.
type Workload struct {
	Lifecycle      *appspub.Lifecycle
	Selector       *metav1.LabelSelector
	TemplateLabels map[string]string
	// TemplateAnnotations are read only for [AnnotationSkip] and [AnnotationHold].
	TemplateAnnotations map[string]string
	TemplateFinalizers  []string
	// Annotations of the workload itself are read only for [AnnotationTraffic]. Revisions is nil if it is not a CloneSet.
	Annotations map[string]string
	Revisions   *Revisions
}

// Hooks are a workload's owned handlers.
type Hooks struct {
	PreNormal     []Handler
	InPlaceUpdate []Handler
	PreDelete     []Handler

	// Refused handlers are never touched; what they block stays blocked.
	Refused []Refusal
	// Foreign: hooks, but no owned handler.
	Foreign       bool
	MarksNotReady bool

	templateLabels     map[string]string
	templateFinalizers []string
	// Their labels are never cleared: see [Hooks.keeps].
	named    []Named
	selector *metav1.LabelSelector
}

// Refusal is an owned handler that can't be used.
type Refusal struct {
	Hook    Hook
	Handler Handler
	// Why includes the remedy.
	Why string
}

// HooksOf returns the owned handlers of a workload (may be nil).
func HooksOf(w *Workload, o Ownership) Hooks {
	if w == nil {
		return Hooks{}
	}
	named := HandlersOf(KeptLifecycle(w.Lifecycle))
	hooks := Hooks{
		templateLabels: w.TemplateLabels, templateFinalizers: w.TemplateFinalizers,
		named: named, selector: w.Selector, MarksNotReady: marksNotReady(w.Lifecycle),
	}
	ours := 0
	for _, n := range named {
		if !o.Owns(n.Key()) && n.Key() != GuardFinalizer {
			continue
		}
		ours++
		if why := objection(w, o, named, n); why != "" {
			hooks.Refused = append(hooks.Refused, Refusal{Hook: n.Hook, Handler: n.Handler, Why: why})
		} else {
			accepted := listOf(&hooks, n.Hook)
			*accepted = append(*accepted, n.Handler)
		}
	}
	hooks.Foreign = len(named) > 0 && ours == 0
	return hooks
}

// listOf returns the list of a hook.
func listOf(h *Hooks, hook Hook) *[]Handler {
	switch hook {
	case PreNormal:
		return &h.PreNormal
	case InPlaceUpdate:
		return &h.InPlaceUpdate
	default:
		return &h.PreDelete
	}
}

// withRefused are the hook's handlers, refused or not: OpenKruise waits for all.
func (h Hooks) withRefused(hook Hook) []Handler {
	all := slices.Clip(*listOf(&h, hook))
	for _, r := range h.Refused {
		if r.Hook == hook {
			all = append(all, r.Handler)
		}
	}
	return all
}

// Any reports whether any handler is owned, refused or not.
func (h Hooks) Any() bool {
	return len(h.PreNormal)+len(h.InPlaceUpdate)+len(h.PreDelete)+len(h.Refused) > 0
}

// Lost returns the hooks that had an owned handler before, and have none now.
func (h Hooks) Lost(before Hooks) (lost []Hook) {
	for _, hook := range []Hook{PreNormal, InPlaceUpdate, PreDelete} {
		if len(*listOf(&before, hook)) > 0 && len(*listOf(&h, hook)) == 0 {
			lost = append(lost, hook)
		}
	}
	return lost
}

func (h Hooks) all() []Handler { return union(h.PreNormal, h.InPlaceUpdate, h.PreDelete) }

// Templated returns the handlers that the template sets.
func (h Hooks) Templated(handlers []Handler) []Handler {
	return filter(handlers, func(one Handler) bool {
		if one.Finalizer != "" {
			return slices.Contains(h.templateFinalizers, one.Finalizer)
		}
		value, found := h.templateLabels[one.Label]
		return found && value == one.Value
	})
}

// names ignores values, and includes refused handlers.
func (h Hooks) names(handler Handler) bool {
	same := func(other Handler) bool { return other.Label == handler.Label && other.Finalizer == handler.Finalizer }
	return slices.ContainsFunc(h.PreNormal, same) || slices.ContainsFunc(h.InPlaceUpdate, same) || slices.ContainsFunc(h.PreDelete, same) ||
		slices.ContainsFunc(h.Refused, func(r Refusal) bool { return same(r.Handler) }) || h.tooMany()
}

// tooMany: there may be others that were not read.
func (h Hooks) tooMany() bool { return len(h.named) > MaxHandlers }

// keeps reports whether a label is the selector's or any handler's.
func (h Hooks) keeps(label string) bool {
	isNamed := func(n Named) bool { return n.Label != "" && n.Label == label }
	return h.tooMany() || selects(h.selector, label) || slices.ContainsFunc(h.named, isNamed)
}

func marksNotReady(l *appspub.Lifecycle) bool {
	return l != nil && (l.InPlaceUpdate != nil && l.InPlaceUpdate.MarkPodNotReady || l.PreDelete != nil && l.PreDelete.MarkPodNotReady)
}

// Named is a handler with its hook.
type Named struct {
	Hook Hook
	Handler
}

// HandlersOf returns all handlers, owned or not, sorted hook by hook.
func HandlersOf(l *appspub.Lifecycle) []Named {
	if l == nil {
		return nil
	}
	named := make([]Named, 0, 3) // most hooks have one
	for _, of := range []struct {
		name Hook
		hook *appspub.LifecycleHook
	}{{PreNormal, l.PreNormal}, {InPlaceUpdate, l.InPlaceUpdate}, {PreDelete, l.PreDelete}} {
		for _, h := range handlersOf(of.hook) {
			named = append(named, Named{of.name, h})
		}
	}
	return named
}

func handlersOf(hook *appspub.LifecycleHook) []Handler {
	if hook == nil {
		return nil
	}
	var handlers []Handler
	for key, value := range hook.LabelsHandler {
		handlers = append(handlers, Handler{Label: key, Value: value})
	}
	for _, finalizer := range hook.FinalizersHandler {
		handlers = append(handlers, Handler{Finalizer: finalizer})
	}
	return sorted(handlers)
}

func objection(w *Workload, o Ownership, all []Named, one Named) string {
	hook, handler := one.Hook, one.Handler
	if len(all) > MaxHandlers {
		return fmt.Sprintf("spec.lifecycle has more than %d handlers: use at most %d", MaxHandlers, MaxHandlers)
	}
	if handler.Key() == GuardFinalizer {
		return fmt.Sprintf("%s is Rollcall's guard and can't be a handler: use another key in spec.lifecycle.%s", GuardFinalizer, hook)
	}
	if handler.Finalizer != "" {
		return ""
	}
	if handler.Value == "" {
		return fmt.Sprintf("label %s has no value, and OpenKruise can't tell a pod without the label from one that has it set: "+
			"set a value in spec.lifecycle.%s.labelsHandler", handler.Label, hook)
	}
	if selects(w.Selector, handler.Label) {
		return fmt.Sprintf("label %s is in spec.selector, and changing it would detach the pod from its workload: "+
			"use a key in spec.lifecycle.%s.labelsHandler that the selector does not have", handler.Label, hook)
	}
	if slices.Contains(o.NewlyCreated, handler.Label) {
		return fmt.Sprintf("hooks.newlyCreated lists label %s too: use another key in "+
			"spec.lifecycle.%s.labelsHandler, or remove it from hooks.newlyCreated", handler.Label, hook)
	}
	for _, other := range all {
		if other.Label == handler.Label && other.Value != handler.Value {
			return fmt.Sprintf("hooks %s and %s want label %s at different values (%q and %q): "+
				"give them one value, or two keys", hook, other.Hook, handler.Label, handler.Value, other.Value)
		}
	}
	return ""
}

func selects(selector *metav1.LabelSelector, label string) bool {
	if selector == nil {
		return false
	}
	if len(selector.MatchLabels)+len(selector.MatchExpressions) > MaxSelector {
		return true
	}
	_, matches := selector.MatchLabels[label]
	return matches || slices.ContainsFunc(selector.MatchExpressions, func(e metav1.LabelSelectorRequirement) bool { return e.Key == label })
}
