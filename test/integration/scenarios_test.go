package integration

import "testing"

// definition is one scenario of those that one manager serves together.
type definition struct {
	name   string
	styles []style
	run    func(*scenario)
	// ownerHeld: the scenario plays the other owner of the mixed style itself.
	ownerHeld bool
}

// definitions are the scenarios, each told by its function.
func definitions() []definition {
	return []definition{
		{name: "in-place-update", styles: allStyles, run: inPlaceUpdate},
		{name: "recreate-update", styles: allStyles, run: recreateUpdate},
		{name: "deleted-by-kruise", styles: allStyles, run: deletedByKruise},
		{name: "update-unready", styles: updateHooked, run: updatedBeforeReady},
		{name: "delete-unready", styles: allStyles, run: deletedBeforeReady},
		{name: "delete-updating", styles: updateHooked, run: deletedWhileUpdating},
		{name: "update-updating", styles: updateHooked, run: updatedWhileUpdating},
		{name: "update-updated", styles: updateHooked, run: updatedInUpdated},
		{name: "handler-brought", styles: updateHooked, run: handlerBrought},
		{name: "handler-taken", styles: []style{labels}, run: handlerTaken},
		{name: "held-not-ready", styles: []style{labels, finalizer}, run: heldNotReady},
		{name: "rollback-early", styles: updateHooked, run: rollbackBeforeTheCall},
		{name: "rollback-late", styles: updateHooked, run: rollbackBeforeThePatch},
		{name: "cancel-late", styles: allStyles, run: cancelledScaleInAfterRelease},
		{name: "partition", styles: allStyles, run: partition},
		{name: "partition-raised", styles: updateHooked, run: partitionRaised},
		{name: "partition-met", styles: updateHooked, run: partitionMet},
		{name: "partition-met-armed", styles: []style{labels}, run: partitionMetAndArmed, ownerHeld: true},
		{name: "hooks-added", styles: []style{labels, finalizer}, run: hooksAdded},
		{name: "direct-delete", styles: allStyles, run: directDelete},
		{name: "foreground", styles: allStyles, run: deletedInForeground},
		{name: "orphan", styles: allStyles, run: deletedWithOrphans},
		{name: "detached", styles: []style{labels}, run: detachedByLabel},
		{name: "edited-away", styles: allStyles, run: lifecycleEditedAway},
		{name: "two-owners", styles: updateHooked, run: twoOwners, ownerHeld: true},
		{name: "foreign-finalizer", styles: []style{finalizer, mixed}, run: foreignFinalizer},
		{name: "unready", styles: []style{labels}, run: turnsUnready},
		{name: "namespace-deleted", styles: []style{labels, finalizer}, run: deletedWithNamespace},
		{name: "drain", styles: updateHooked, run: drains},
		{name: "refused-by-policy", styles: []style{preNormal}, run: refusedByPolicy},
	}
}

func namespaceOf(name string, s style) string { return name + "-" + string(s) }

func sharedNamespaces() []string {
	var namespaces []string
	for _, d := range definitions() {
		namespaces = append(namespaces, namespacesOf(d.name, d.styles)...)
	}
	return namespaces
}

func TestScenarios(t *testing.T) {
	t.Parallel()
	for _, d := range definitions() {
		for _, style := range d.styles {
			t.Run(d.name+"/"+string(style), func(t *testing.T) {
				t.Parallel()
				s := newScenario(t, env.shared, env.registry, style, namespaceOf(d.name, style))
				if style == mixed && !d.ownerHeld {
					s.Play()
				}
				d.run(s)
				s.ExpectNothingLeft()
				s.ExpectAlways()
			})
		}
	}
}
