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
		{name: "slowly-ready", styles: allStyles, run: slowlyReady},
		{name: "dual-stack", styles: updateHooked, run: dualStack},
		{name: "recreate-update", styles: allStyles, run: recreateUpdate},
		{name: "scale", styles: allStyles, run: scaleOutAndIn},
		{name: "pods-to-delete", styles: allStyles, run: podsToDelete},
		{name: "specified-delete", styles: allStyles, run: specifiedDelete},
		{name: "update-unready", styles: updateHooked, run: updatedBeforeReady},
		{name: "delete-unready", styles: allStyles, run: deletedBeforeReady},
		{name: "delete-updating", styles: updateHooked, run: deletedWhileUpdating},
		{name: "update-updating", styles: updateHooked, run: updatedWhileUpdating},
		{name: "update-updated", styles: updateHooked, run: updatedInUpdated},
		{name: "held-not-ready", styles: []style{labels, finalizer}, run: heldNotReady},
		{name: "others-hooks", styles: []style{labels}, run: othersHooks},
		{name: "rollback-early", styles: updateHooked, run: rollbackBeforeTheCall},
		{name: "rollback-answer", styles: updateHooked, run: rollbackBeforeTheAnswer},
		{name: "rollback-late", styles: updateHooked, run: rollbackBeforeThePatch},
		{name: "cancel", styles: updateHooked, run: cancelledScaleIn},
		{name: "cancel-late", styles: allStyles, run: cancelledScaleInAfterRelease},
		{name: "partition", styles: allStyles, run: partition},
		{name: "partition-raised", styles: updateHooked, run: partitionRaised},
		{name: "paused", styles: updateHooked, run: paused},
		{name: "hooks-added", styles: []style{labels, finalizer}, run: hooksAdded},
		{name: "direct-delete", styles: allStyles, run: directDelete},
		{name: "gone", styles: []style{labels, preNormal}, run: goneBeforeTheAnswer},
		{name: "foreground", styles: allStyles, run: deletedInForeground},
		{name: "background", styles: allStyles, run: deletedInBackground},
		{name: "orphan", styles: allStyles, run: deletedWithOrphans},
		{name: "edited-away", styles: allStyles, run: lifecycleEditedAway},
		{name: "two-owners", styles: updateHooked, run: twoOwners, ownerHeld: true},
		{name: "foreign-finalizer", styles: []style{finalizer, mixed}, run: foreignFinalizer},
		{name: "lost-answers", styles: updateHooked, run: lostAnswers},
		{name: "drain", styles: updateHooked, run: drains},
		{name: "two-services", styles: allStyles, run: twoServices},
		{name: "no-port", styles: []style{labels, preNormal}, run: noPort},
		{name: "claimed", styles: []style{labels, preNormal}, run: serviceClaimed},
		{name: "in-selector", styles: []style{labels}, run: handlerInSelector},
		{name: "errors", styles: []style{labels, finalizer, mixed}, run: registryErrors},
		{name: "unready", styles: []style{labels, preNormal}, run: turnsUnready},
		{name: "namespace-deleted", styles: []style{labels, finalizer}, run: deletedWithNamespace},
		{name: "evicted", styles: []style{labels, finalizer}, run: evictedWithinBudget},
		{name: "available-later", styles: []style{labels, finalizer}, run: availableLater},
		{name: "kruise-waits-too", styles: []style{labels, mixed}, run: kruiseWaitsToo},
		{name: "refused-by-policy", styles: []style{finalizer, preNormal}, run: refusedByPolicy},
		{name: "timeouts", styles: []style{labels, preNormal}, run: registryTimeouts},
	}
}

func namespaceOf(name string, s style) string { return name + "-" + string(s) }

// neighbour is a second namespace for the scenarios that need one.
func neighbour(namespace string) string { return namespace + "-2" }

func sharedNamespaces() []string {
	var namespaces []string
	for _, d := range definitions() {
		for _, s := range d.styles {
			namespaces = append(namespaces, namespaceOf(d.name, s))
			if d.name == "claimed" {
				namespaces = append(namespaces, neighbour(namespaceOf(d.name, s)))
			}
		}
	}
	return namespaces
}

func TestScenarios(t *testing.T) {
	t.Parallel()
	play(t, definitions(), func(t *testing.T, style style, namespace string) *scenario {
		t.Helper()
		return newScenario(t, env.shared, env.registry, style, namespace)
	})
}

// play has each scenario happen, in each of its styles.
func play(t *testing.T, all []definition, begin func(t *testing.T, style style, namespace string) *scenario) {
	t.Helper()
	for _, d := range all {
		for _, style := range d.styles {
			t.Run(d.name+"/"+string(style), func(t *testing.T) {
				t.Parallel()
				s := begin(t, style, namespaceOf(d.name, style))
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
