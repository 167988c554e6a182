package tracker

import (
	"cmp"
	"iter"
	"slices"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

// Known is what is known of one pod at one moment: a value, which nothing changes.
type Known struct {
	instances instances
	born      bool
	// shown and renamed are the tracker's, which replaces them and never changes them.
	shown   map[string]bool
	renamed map[string]string
}

// Of returns what is known of one instance.
func (k Known) Of(in lifecycle.Key) Instance { i, _ := k.instances.get(in); return i }

// All are the instances that this process has made changes for, or that a list has.
func (k Known) All() iter.Seq2[lifecycle.Key, Instance] {
	return func(yield func(lifecycle.Key, Instance) bool) {
		for _, n := range k.instances {
			if n.Known() && !yield(n.Key, n.Instance) {
				return
			}
		}
	}
}

// Any reports whether there are any of those.
func (k Known) Any() bool { return k.contains(Instance.Known) }

// WasInService reports whether a registry has had an instance of the pod in service since this process leads.
func (k Known) WasInService() bool { return k.contains(Instance.WasInService) }

// AskedOut reports whether a registry was asked to take an instance out, and may have done so.
func (k Known) AskedOut() bool { return k.contains(Instance.AskedOut) }

func (k Known) contains(such func(Instance) bool) bool {
	return slices.ContainsFunc(k.instances, func(n named) bool { return such(n.Instance) })
}

// Born reports whether the pod came while this process was watching.
func (k Known) Born() bool { return k.born }

// Shown reports whether a list has shown what the leaders before this one left in the registry.
func (k Known) Shown(registry string) bool { return k.shown[registry] }

// Renamed returns the name under which a registry is found that the configuration has under another name; the same where it is not.
func (k Known) Renamed(registry string) string { return cmp.Or(k.renamed[registry], registry) }

// Mark returns the name of the registry that an instance's entry carries: the present one where nothing is known, and none where it was
// found with a former one, which a Register may have replaced since.
func (k Known) Mark(in lifecycle.Key) string {
	i := k.Of(in)
	if mark := cmp.Or(i.mark, in.Registry); mark == in.Registry || !i.Attempted() {
		return mark
	}
	return ""
}
