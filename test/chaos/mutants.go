package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/test/cache"
	"github.com/rollcall-dev/rollcall/test/manager"
)

// fewReplicas are enough for a short plan.
const fewReplicas = 8

// mutant is a manager that is broken on purpose, and the plan that finds it out.
type mutant struct {
	name string
	// file is broken by replacing text, which stands in it exactly once.
	file          string
	text, replace string
	// finds are what is wrong with it, one of which chaos must say: I1, I2 or I3 of an early flip, lost, leaked or stuck.
	// Another failure would be by chance.
	finds  []string
	plan   planner
	length time.Duration
}

// mutants are the four that chaos must find.
func mutants() []mutant {
	n := len(workloads())
	return []mutant{
		{
			name: "the patch tests nothing", file: "internal/lifecycle/patch.go",
			text: "json.Marshal(append(guards(pod), changes...))", replace: "json.Marshal(changes)",
			finds: []string{"I3"},
			// Calls take long enough for the pod to move on meanwhile.
			plan: planner{
				seed: 1, workloads: n, storm: 30 * time.Second, workEvery: 400 * time.Millisecond,
				work: []share{{rollBack, 6}, {cancelDelete, 3}, {update, 1}}, faults: []kind{netSlow},
			},
			length: 30 * time.Second,
		},
		{
			name: "an acknowledgement is not waited for", file: "internal/controller/converge.go",
			text: "tell(bounded, reg.Calls, s)", replace: "func(error) error { return nil }(tell(bounded, reg.Calls, s))",
			finds: []string{"I1", "I2"},
			plan: planner{
				seed: 2, workloads: n, storm: 20 * time.Second, workEvery: time.Second,
				work: []share{{update, 3}, {recreate, 1}, {scaleOut, 1}, {scaleIn, 1}}, faults: []kind{answer500, netRefuse},
			},
			length: 20 * time.Second,
		},
		{
			name: "no resync", file: "internal/resync/resync.go",
			text: "loops.Go(func() { k.loop(ctx) })", replace: "_ = k",
			finds: []string{"lost"},
			plan: planner{
				seed: 3, workloads: n, storm: 5 * time.Second, workEvery: time.Second,
				work: []share{{update, 1}, {forceDelete, 1}}, last: []kind{wipeHalf},
			},
			length: 10 * time.Second,
		},
		{
			name: "the record is the truth", file: "internal/controller/converge.go",
			text: "return record.Fresh(o.pod()) && record.Says(s.want, s.key()) && outStay(o) &&" +
				" !o.page.calls[s.key()].disproves(record)",
			replace: "return record.Says(s.want, s.key())",
			finds:   []string{"I1"},
			// The next update comes while the pod is put in service after the last one: nothing of that stands in the record.
			plan: planner{
				seed: 4, workloads: n, storm: 40 * time.Second, workEvery: 300 * time.Millisecond,
				work: []share{{update, 6}, {rollBack, 3}, {cancelDelete, 1}}, faults: []kind{netSlow}, always: []kind{killAtAnswer},
			},
			length: 40 * time.Second,
		},
	}
}

// chosenMutants are those with the text in their name; empty is all.
func chosenMutants(text string) ([]mutant, error) {
	var names []string
	var chosen []mutant
	for _, m := range mutants() {
		names = append(names, m.name)
		if strings.Contains(m.name, text) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("MUTANT is %q: write a part of one of these names, or leave it out for all: %s",
			text, strings.Join(names, "; "))
	}
	return chosen, nil
}

// playMutants holds every mutant against its plan, and the manager as it is against the same plans.
func playMutants(ctx context.Context, out *output) error {
	chosen, err := chosenMutants(os.Getenv("MUTANT"))
	if err != nil {
		return err
	}
	return withManager(ctx, out, func(w *world, sound string) error {
		var problems []error
		for _, m := range chosen {
			broken, err := m.build(ctx, w.dir)
			if err != nil {
				return err
			}
			out.printf("MUTANT %q: chaos must say %s", m.name, strings.Join(m.finds, " or "))
			said, err := w.playOne(ctx, m, broken)
			if err != nil {
				return err
			}
			problems = append(problems, m.unlike(said))
			out.printf("the manager as it is, on the plan of %q: chaos must pass", m.name)
			if said, err = w.playOne(ctx, m, sound); err != nil {
				return err
			}
			if len(said) > 0 {
				problems = append(problems, fmt.Errorf("the manager as it is fails on the plan of %q: %s", m.name, said))
			}
		}
		problems = slices.DeleteFunc(problems, func(err error) bool { return err == nil })
		for _, problem := range problems {
			out.plain("chaos: " + problem.Error())
		}
		if len(problems) > 0 {
			out.plain("logs are in " + w.dir)
		}
		out.plain(fmt.Sprintf("chaos: %d mutants, %d problems", len(chosen), len(problems)))
		if len(problems) > 0 {
			return errFailed
		}
		return nil
	})
}

// unlike says that chaos did not find what is wrong with the mutant.
func (m mutant) unlike(said []string) error {
	switch {
	case len(said) == 0:
		return fmt.Errorf("mutant %q was not found out", m.name)
	case !slices.ContainsFunc(said, func(s string) bool { return slices.Contains(m.finds, s) }):
		return fmt.Errorf("mutant %q was found out by chance: chaos said %s, and not %s", m.name, said, m.finds)
	default:
		return nil
	}
}

// playOne plays a mutant's plan with a binary, leaves the cluster empty, and returns what chaos said.
func (w *world) playOne(ctx context.Context, m mutant, binary string) (said []string, err error) {
	g := &game{world: w, binary: binary, plan: m.plan, replicas: fewReplicas, length: m.length}
	if err := g.play(ctx); err != nil {
		return nil, err
	}
	if err := g.verdict("make chaos-mutants MUTANT='"+m.name+"'", 1); err != nil && !errors.Is(err, errFailed) {
		return nil, err
	}
	return g.report.kinds(), w.empty(ctx)
}

// kinds is what is wrong, in a word for each: the invariant of an early flip, or what the last line calls it.
func (r *report) kinds() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, v := range r.early {
		invariant, _, _ := strings.Cut(v.text, ":")
		all = append(all, invariant)
	}
	for _, f := range r.found {
		all = append(all, string(f.kind))
	}
	if len(r.other) > 0 {
		all = append(all, "other")
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// build builds the manager with the mutation laid over it.
func (m mutant) build(ctx context.Context, dir string) (binary string, err error) {
	binary = filepath.Join(dir, "mutant-"+strings.ReplaceAll(m.name, " ", "-"))
	overlay, err := m.overlay(ctx, binary)
	if err != nil {
		return "", err
	}
	return binary, manager.Build(ctx, binary, "-overlay="+overlay)
}

// overlay writes what go build -overlay takes, into files whose names begin with prefix.
func (m mutant) overlay(ctx context.Context, prefix string) (path string, err error) {
	root, err := cache.Dir(ctx, "internal")
	if err != nil {
		return "", err
	}
	file := filepath.Join(filepath.Dir(root), filepath.FromSlash(m.file))
	source, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("mutant %q: %w", m.name, err)
	}
	mutated, err := m.mutate(string(source))
	if err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{file: prefix + ".go"}})
	if err != nil {
		return "", fmt.Errorf("mutant %q: %w", m.name, err)
	}
	for path, data := range map[string][]byte{prefix + ".go": []byte(mutated), prefix + ".json": overlay} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return "", fmt.Errorf("mutant %q: %w", m.name, err)
		}
	}
	return prefix + ".json", nil
}

// mutate replaces the text, which must be there once: code that was changed since needs another mutation.
func (m mutant) mutate(source string) (string, error) {
	if n := strings.Count(source, m.text); n != 1 {
		return "", fmt.Errorf("mutant %q: %s has %q %d times and not once: the code has changed, so change the mutant",
			m.name, m.file, m.text, n)
	}
	return strings.Replace(source, m.text, m.replace, 1), nil
}
