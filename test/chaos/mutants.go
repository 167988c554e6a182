package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	plan          planner
	length        time.Duration
}

// mutants are the four that chaos must find.
func mutants() []mutant {
	n := len(workloads())
	return []mutant{
		{
			name: "the patch tests nothing", file: "internal/lifecycle/patch.go",
			text: "json.Marshal(append(guards(pod), changes...))", replace: "json.Marshal(changes)",
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
			plan: planner{
				seed: 2, workloads: n, storm: 20 * time.Second, workEvery: time.Second,
				work: []share{{update, 3}, {recreate, 1}, {scaleOut, 1}, {scaleIn, 1}}, faults: []kind{answer500, netRefuse},
			},
			length: 20 * time.Second,
		},
		{
			name: "no resync", file: "internal/resync/resync.go",
			text: "loops.Go(func() { k.loop(ctx) })", replace: "_ = k",
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
			// The next update comes while the pod is put in service after the last one: nothing of that stands in the record.
			plan: planner{
				seed: 4, workloads: n, storm: 40 * time.Second, workEvery: 300 * time.Millisecond,
				work: []share{{update, 6}, {rollBack, 3}, {cancelDelete, 1}}, faults: []kind{netSlow}, always: []kind{killAtAnswer},
			},
			length: 40 * time.Second,
		},
	}
}

// playMutants holds every mutant against its plan, and the manager as it is against the same plans.
func playMutants(ctx context.Context, out *output) error {
	w, stop, err := newWorld(ctx, out)
	defer stop()
	if err != nil {
		return err
	}
	chosen := os.Getenv("MUTANT") // part of a name; empty is all
	sound := filepath.Join(w.dir, "manager")
	if err := manager.Build(ctx, sound); err != nil {
		return err
	}
	var problems []error
	for number, m := range mutants() {
		if !strings.Contains(m.name, chosen) {
			continue
		}
		broken, err := m.build(ctx, w.dir, number)
		if err != nil {
			return err
		}
		out.printf("MUTANT %q: chaos must fail", m.name)
		failed, err := w.playOne(ctx, m, broken)
		switch {
		case err != nil:
			return err
		case !failed:
			problems = append(problems, fmt.Errorf("mutant %q was not found out", m.name))
		}
		out.printf("the manager as it is, on the plan of %q: chaos must pass", m.name)
		failed, err = w.playOne(ctx, m, sound)
		switch {
		case err != nil:
			return err
		case failed:
			problems = append(problems, fmt.Errorf("the manager as it is fails on the plan of %q", m.name))
		}
	}
	out.plain(fmt.Sprintf("chaos: %d mutants, %d problems", len(mutants()), len(problems)))
	w.passed = len(problems) == 0
	return errors.Join(problems...)
}

// playOne plays a mutant's plan with a binary, and leaves the cluster empty.
func (w *world) playOne(ctx context.Context, m mutant, binary string) (failed bool, err error) {
	g := &game{world: w, binary: binary, plan: m.plan, replicas: fewReplicas, length: m.length}
	if err := g.play(ctx); err != nil {
		return false, err
	}
	if err := g.verdict("make chaos-mutants", 1); err != nil && !errors.Is(err, errFailed) {
		return false, err
	}
	return g.report.failed(), w.empty(ctx)
}

// build builds the manager with the mutation laid over it.
func (m mutant) build(ctx context.Context, dir string, number int) (binary string, err error) {
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
	binary = filepath.Join(dir, fmt.Sprintf("mutant-%d", number))
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{file: binary + ".go"}})
	if err != nil {
		return "", fmt.Errorf("mutant %q: %w", m.name, err)
	}
	for path, data := range map[string][]byte{binary + ".go": []byte(mutated), binary + ".json": overlay} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return "", fmt.Errorf("mutant %q: %w", m.name, err)
		}
	}
	return binary, manager.Build(ctx, binary, "-overlay="+binary+".json")
}

// mutate replaces the text, which must be there once: code that was changed since needs another mutation.
func (m mutant) mutate(source string) (string, error) {
	if n := strings.Count(source, m.text); n != 1 {
		return "", fmt.Errorf("mutant %q: %s has %q %d times and not once: the code has changed, so change the mutant",
			m.name, m.file, m.text, n)
	}
	return strings.Replace(source, m.text, m.replace, 1), nil
}
