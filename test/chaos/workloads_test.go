package main

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/test/harness/checker"
)

// TestVersions: an update in place brings handlers along and takes them away, in every style that has the hook.
func TestVersions(t *testing.T) {
	t.Parallel()
	for _, w := range workloads() {
		handlers := w.hooks[checker.InPlaceUpdate]
		if len(handlers) == 0 {
			continue
		}
		set := func(template metav1.ObjectMeta) bool {
			on := checker.SetOn(w.hooks, &corev1.Pod{ObjectMeta: template})
			return !slices.ContainsFunc(handlers, func(h string) bool { return !on[h] })
		}
		first, brings, lacks := w.template(0), w.template(1), w.template(2)
		if set(first) == w.unarmed || !set(brings) || set(lacks) {
			t.Errorf("%s: handlers are set in the first template: %t, in one that brings them: %t, in one that lacks them: %t",
				w.name, set(first), set(brings), set(lacks))
		}
		for _, h := range w.hooks[checker.PreNormal] {
			label, value, _ := strings.Cut(h, "=")
			if brings.Labels[label] != value || lacks.Labels[label] != "" {
				t.Errorf("%s: %s is %q in a template that brings it, and %q in one that lacks it", w.name, label, brings.Labels[label], lacks.Labels[label])
			}
		}
		if maps.Equal(first.Annotations, w.template(3).Annotations) || maps.Equal(first.Labels, w.template(3).Labels) {
			t.Errorf("%s: two versions are alike", w.name)
		}
	}
}

// TestPlaces: pods that move get other services and registries, and chaos knows their instances by what they say then.
func TestPlaces(t *testing.T) {
	t.Parallel()
	w, seen, written := workloads()[2], map[checker.Key]bool{}, (*registryServer).written(nil, defaultRegistry)
	for number := range 10 {
		services, registries, place := w.places(number)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Labels:      map[string]string{placeLabel: place},
			Annotations: map[string]string{servicesAnnotation: services, registriesAnnotation: registries},
		}}
		found := written.Keys(pod)
		if want := len(w.services) * len(strings.Split(registries, ",")); len(found) != want {
			t.Errorf("%s in %s: %d instances, want %d", services, registries, len(found), want)
		}
		for _, k := range found {
			seen[k] = true
		}
	}
	if want := 2 * len(w.services) * 3; len(seen) != want { // but in the registry without weights, since it warms up
		t.Errorf("pods can be at %d places, want %d", len(seen), want)
	}
}
