package plugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rollcall-dev/rollcall/internal/enroll"
	"github.com/rollcall-dev/rollcall/internal/preview"
	"github.com/rollcall-dev/rollcall/registry"
)

// preview shows what enrolling would do. It fails if a CloneSet would be refused, as enrolling does.
func (c *cluster) preview(ctx context.Context, of enrolling) error {
	parsed, err := c.configOf(ctx, of.file)
	if err != nil {
		return err
	}
	chosen, err := c.chosen(of)
	if err != nil {
		return err
	}
	request := preview.Request{Config: parsed, Drivers: c.drivers, Namespace: c.namespace, Chosen: chosen}
	if of.acrossAll {
		request.Namespace = ""
	}
	if of.label && !parsed.Enroll {
		c.warnOnce("enrollment by namespace is off: set enroll: true in the configuration, with the component enroll, and restart the managers")
	}
	seen, err := preview.Of(ctx, c, request)
	if err != nil {
		return asking(err)
	}
	for _, name := range of.names {
		if !slices.ContainsFunc(seen.CloneSets, func(one preview.CloneSet) bool { return one.Name == name }) {
			return &exitError{exitNotFound, fmt.Errorf("namespace %s has no CloneSet %s", c.namespace, name)}
		}
	}
	if len(seen.CloneSets) == 0 {
		return &exitError{exitNotFound, errors.New("there is no such CloneSet to enroll")}
	}
	return c.printPreview(seen, of.acrossAll)
}

// chosen are the CloneSets that a person means. The cluster's own reader has chosen the namespace.
func (c *cluster) chosen(of enrolling) (func(*kruisev1alpha1.CloneSet, labels.Set) bool, error) {
	selector, err := labels.Parse(of.selector)
	if err != nil {
		return nil, fmt.Errorf("--selector %q: %w", of.selector, err)
	}
	return func(set *kruisev1alpha1.CloneSet, _ labels.Set) bool {
		switch {
		case !of.acrossAll && set.Namespace != c.namespace:
			return false
		case of.label:
			return enroll.Asked(set.Labels, labels.Set{enroll.Label: "true"})
		case len(of.names) > 0:
			return slices.Contains(of.names, set.Name)
		default:
			return selector.Matches(labels.Set(set.Labels))
		}
	}, nil
}

func (c *cluster) printPreview(seen *preview.Preview, namespaced bool) error {
	pods, refused, waits := 0, 0, 0
	for _, set := range seen.CloneSets {
		c.printCloneSet(set, namespaced)
		pods += len(set.Pods)
		refused += min(len(set.Refused), 1)
		for _, pod := range set.Pods {
			waits += min(len(pod.Reason), 1)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(seen.Unasked)) {
		fmt.Fprintf(c.ErrOut, "registry %s can't be asked from here: %s\n", name, printable(seen.Unasked[name].Error()))
	}
	fmt.Fprintf(c.Out, "dry run: nothing was written. Rollcall would manage %s of %s\n",
		counted(pods, "pod"), counted(len(seen.CloneSets)-refused, "CloneSet"))
	if waits > 0 {
		fmt.Fprintf(c.Out, "%s would wait, or need a look: the lines below the tables show why\n", counted(waits, "pod"))
	}
	if refused > 0 {
		return fmt.Errorf("%s would be refused: the lines above show why", counted(refused, "CloneSet"))
	}
	return nil
}

func (c *cluster) printCloneSet(set preview.CloneSet, namespaced bool) {
	name := set.Name
	if namespaced {
		name = set.Namespace + "/" + name
	}
	hooks := make([]string, len(set.Hooks))
	for i, h := range set.Hooks {
		hooks[i] = fmt.Sprintf("%s %s", h.Hook, h)
	}
	does := "would be enrolled: " + strings.Join(hooks, ", ")
	switch {
	case len(set.Refused) > 0:
		does = "would be refused: " + strings.Join(set.Refused, "; ")
	case set.Managed:
		does = "unchanged: it already has Rollcall's hooks"
	}
	fmt.Fprintf(c.Out, "cloneset.apps.kruise.io/%s %s\n", name, printable(does))
	for _, note := range set.Notes {
		fmt.Fprintf(c.Out, "  note: %s\n", printable(note))
	}
	c.printPods(set.Pods)
	fmt.Fprintln(c.Out)
}

func (c *cluster) printPods(pods []preview.Pod) {
	t := table{head: []string{"  POD", "READY", "SERVICE", "ADDRESS", "REGISTRY", "HAS NOW"}, spare: []string{"READY"}}
	var reasons []string
	for _, pod := range pods {
		mark := plain
		if pod.Reason != "" {
			reasons = append(reasons, fmt.Sprintf("  %s: %s: %s", pod.Name, pod.Reason, pod.Message))
			mark = bad
		}
		ready := fmt.Sprint(pod.Ready)
		if len(pod.Entries) == 0 {
			t.rows = append(t.rows, row{mark, []string{"  " + pod.Name, ready, "-", "-", "-", "-"}})
		}
		for _, e := range pod.Entries {
			of := e.Registry
			if e.Writer != "" {
				of += "=" + string(e.Writer)
			}
			t.rows = append(t.rows, row{mark, []string{"  " + pod.Name, ready, e.Service, e.Endpoint, of, thereNow(e)}})
		}
	}
	if len(t.rows) == 0 {
		return
	}
	t.write(c.Out, terminalOf(c.Out))
	for _, text := range reasons {
		fmt.Fprintln(c.Out, printable(text))
	}
}

// thereNow is what a registry has of a pod, for a person.
func thereNow(e preview.Entry) string {
	switch {
	case e.Now == registry.Foreign:
		return "another's entry, in rotation"
	case e.Now == registry.InService:
		return "in rotation"
	case e.Now == registry.OutOfService:
		return "out of rotation"
	case e.Now == registry.Absent && e.Writer != "":
		return "no entry of the application"
	case e.Now == registry.Absent:
		return "nothing"
	default:
		return "not known"
	}
}
