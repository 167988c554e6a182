package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/internal/receipt"
	"github.com/rollcall-dev/rollcall/test/harness/cache"
	"github.com/rollcall-dev/rollcall/test/harness/manager"
)

const (
	// fewReplicas are enough for a short plan.
	fewReplicas = 8
	// visit is the folder in which a pod is taken as far as it can go.
	visit = "internal/visit"
)

// mutant is a manager that is broken on purpose, in one function.
type mutant struct {
	name string
	override
	// finds are what is wrong with it, one of which chaos must say: I1, I2, I3 or I9, lost, leaked or stuck. Another failure
	// would be by chance.
	finds []string
	// receipt is what a receipt over its audit log must say, one of these; none where that has no line of what is wrong.
	receipt []string
}

// trial is a short plan that finds out some mutants, and that the manager as it is passes.
type trial struct {
	plan    planner
	length  time.Duration
	mutants []mutant
}

// trials find out every mutant. Each plan is played once for each mutant, and once for the manager as it is.
func trials() []trial { return []trial{moving(), failing(), repairing(), describing()} }

// moving has calls take long enough for the pod to move on meanwhile.
func moving() trial {
	return trial{
		plan: planner{
			seed: 1, workloads: len(workloads()), storm: 30 * time.Second, workEvery: 400 * time.Millisecond,
			work: []share{{rollBack, 6}, {cancelDelete, 3}, {update, 1}}, faults: []kind{netSlow},
		},
		length: 30 * time.Second,
		mutants: []mutant{{
			name: "the patch tests nothing", finds: []string{"I3"}, receipt: []string{"in state"},
			override: override{"internal/lifecycle", "preconditions", "return nil"},
		}},
	}
}

func failing() trial {
	const client = "internal/registryclient"
	return trial{
		plan: planner{
			seed: 2, workloads: len(workloads()), storm: 20 * time.Second, workEvery: time.Second,
			work: []share{{update, 3}, {recreate, 1}, {scaleOut, 1}, {scaleIn, 1}}, faults: []kind{answer500, netRefuse},
		},
		length: 20 * time.Second,
		mutants: []mutant{
			{
				name: "a release waits for no acknowledgement", finds: []string{"I1"}, receipt: []string{"was released"},
				override: override{client, "(*Client).Change", `
					if err := original(ctx, by, change); change.State == registry.InService {
						return err
					}
					return nil`},
			},
			{
				name: "an assertion waits for no acknowledgement", finds: []string{"I2"}, receipt: []string{"was asserted"},
				override: override{client, "(*Client).Change", `
					if err := original(ctx, by, change); change.State != registry.InService {
						return err
					}
					return nil`},
			},
			{
				name: "a drain never ends", finds: []string{"stuck"}, receipt: []string{"has not ended"},
				override: override{visit, "(*visit).removedAt", `
					latest, _ = original()
					return latest, time.Now().Add(time.Hour)`},
			},
		},
	}
}

// repairing leaves much to resync. The storm lasts so long that what it left behind is found no sooner than the receipt can say
// that nothing was compared, which it does 2*resyncInterval+receipt.Patience after a manager led.
func repairing() trial {
	const resync = "internal/resync"
	const storm = 2*resyncInterval + receipt.Patience - repairWithin + 2*time.Second
	return trial{
		plan: planner{
			seed: 3, workloads: len(workloads()), storm: storm, workEvery: time.Second,
			work: []share{{update, 1}, {forceDelete, 1}}, last: []kind{wipeHalf, leaveEntries},
		},
		length: storm,
		mutants: []mutant{
			{
				// Where nothing is ever listed, nothing tells that the http server is of a version without a probe, and pods wait for it.
				name: "no resync", finds: []string{"lost", "stuck"}, receipt: []string{"was not compared"},
				override: override{resync, "(*keeper).compareAll", ""},
			},
			{
				name: "nothing is reaped", finds: []string{"leaked"}, receipt: []string{"did not remove it"},
				override: override{resync, "(*keeper).reap", "return make([]error, len(due))"},
			},
			{
				// One whose pod the cache has. The next run misses it and puts it back, and this takes it out again.
				name: "a live pod is reaped", finds: []string{"I9", "lost"}, receipt: []string{"as if its pod were gone"},
				override: override{resync, "(*keeper).compare", `
					err := original(ctx, r)
					spared := map[string]bool{}
					for _, e := range r.unknown {
						spared[e.UID] = true
					}
					owned, _, _ := k.list(ctx, r)
					for _, e := range owned {
						if e.State == registry.InService && !spared[e.UID] {
							_ = k.reap(ctx, []registry.Entry{e})
							break
						}
					}
					return err`},
			},
			{
				// The record of what was wiped says that the pod is in service, and of a pod that is put in, that it is out.
				name: "the record is the truth", finds: []string{"lost", "I1"},
				receipt: []string{"did not register it again", "was asserted", "was released"},
				override: override{visit, "(*visit).ensure", `
					if v.input.Record.Want == c.Want && slices.Contains(v.input.Record.Instances, c.Key()) {
						return waiting.Blocker{}
					}
					return original(ctx, c)`},
			},
		},
	}
}

// describing changes what templates and pods say of themselves.
func describing() trial {
	const storm = 40 * time.Second
	return trial{
		plan: planner{
			seed: 11, workloads: len(workloads()), storm: storm, workEvery: 700 * time.Millisecond, work: []share{{update, 2}, {movePods, 1}},
		},
		length: storm,
		mutants: []mutant{
			{
				name: "a pod departs before it joins", finds: []string{"I9"}, receipt: []string{"from where the pod departs"},
				override: override{visit, "(*visit).join", `
					_ = v.leaveDeparting(ctx)
					return original(ctx)`},
			},
			{
				// What Kruise writes stands in no log.
				name: "what an update brings stays", finds: []string{"I2"},
				override: override{"internal/lifecycle", "Input.takenBack", "return Edit{}"},
			},
		},
	}
}

// oneOfEach chooses the first mutant for each thing that chaos can say.
const oneOfEach = "one-of-each"

// chosenTrials are those of the mutants with the text in their name; empty is all.
func chosenTrials(text string) ([]trial, error) {
	var names []string
	var chosen []trial
	said := map[string]bool{}
	for _, t := range trials() {
		t.mutants = slices.DeleteFunc(t.mutants, func(m mutant) bool {
			names = append(names, m.name)
			another := !slices.ContainsFunc(m.finds, func(word string) bool { return !said[word] })
			for _, word := range m.finds {
				said[word] = true
			}
			return text == oneOfEach && another || text != oneOfEach && !strings.Contains(m.name, text)
		})
		if len(t.mutants) > 0 {
			chosen = append(chosen, t)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("MUTANT is %q: write %s, a part of one of these names, or leave it out for all: %s",
			text, oneOfEach, strings.Join(names, "; "))
	}
	return chosen, nil
}

// playMutants holds every mutant against its plan, and the manager as it is against the same plans.
func playMutants(ctx context.Context, out *output) error {
	chosen, err := chosenTrials(os.Getenv("MUTANT"))
	if err != nil {
		return err
	}
	return withManager(ctx, out, startStandIn, func(w *world, sound string) error {
		var problems []error
		played := 0
		for _, t := range chosen {
			found, err := w.try(ctx, t, sound)
			if err != nil {
				return err
			}
			problems, played = append(problems, found...), played+len(t.mutants)
		}
		for _, problem := range problems {
			out.plain("chaos: " + problem.Error())
		}
		failed := error(nil)
		if len(problems) > 0 {
			out.plain("logs are in " + w.dir)
			failed = errFailed
		}
		out.plain(fmt.Sprintf("chaos: %d mutants, %d problems", played, len(problems)))
		return failed
	})
}

// try plays one plan with each of its mutants, and with the manager as it is.
func (w *world) try(ctx context.Context, t trial, sound string) (problems []error, err error) {
	var names []string
	for _, m := range t.mutants {
		names = append(names, fmt.Sprintf("%q", m.name))
		broken, err := m.build(ctx, w.dir)
		if err != nil {
			return nil, err
		}
		w.out.printf("MUTANT %q: chaos must say %s", m.name, strings.Join(m.finds, " or "))
		began := time.Now()
		said, faults, err := w.playOne(ctx, t, broken, m.name)
		if err != nil {
			return nil, err
		}
		w.out.printf("MUTANT %q: chaos said %s after %s", m.name, said, time.Since(began).Round(time.Second))
		if problem := m.unlike(said); problem != nil {
			problems = append(problems, problem)
		}
		if len(m.receipt) > 0 && !slices.ContainsFunc(faults, m.proves) {
			problems = append(problems, fmt.Errorf("mutant %q: no fault of the receipt has %q: %q", m.name, m.receipt, texts(faults)))
		}
	}
	w.out.printf("the manager as it is, on the plan of %s: chaos must pass", strings.Join(names, ", "))
	said, faults, err := w.playOne(ctx, t, sound, t.mutants[0].name)
	if err == nil && len(said) > 0 {
		problems = append(problems, fmt.Errorf("the manager as it is fails on the plan of %s: %s", strings.Join(names, ", "), said))
	}
	if len(faults) > 0 {
		problems = append(problems, fmt.Errorf("the receipt of the manager as it is fails on the plan of %s: %q", strings.Join(names, ", "),
			texts(faults)))
	}
	return problems, err
}

// proves reports whether the fault of a receipt is what is wrong with the mutant, and names the pod where there is one.
func (m mutant) proves(f receipt.Fault) bool {
	names := f.Pod != "" || strings.HasPrefix(f.Text, "registry ")
	return names && slices.ContainsFunc(m.receipt, func(text string) bool { return strings.Contains(f.Text, text) })
}

func texts(faults []receipt.Fault) []string {
	var all []string
	for _, f := range faults[:min(len(faults), historiesShown)] {
		all = append(all, fmt.Sprintf("%s %s: %s", f.At.Format(time.RFC3339Nano), f.Pod, f.Text))
	}
	return all
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

// playOne plays a plan with a binary, leaves the cluster empty, and returns what chaos said.
func (w *world) playOne(ctx context.Context, t trial, binary, name string) (said []string, faults []receipt.Fault, err error) {
	g := &game{world: w, binary: binary, plan: t.plan, replicas: fewReplicas, length: t.length, receipts: true}
	if err := g.play(ctx); err != nil {
		return nil, nil, err
	}
	if faults, err = g.receipt(); err != nil {
		return nil, nil, err
	}
	if err := g.verdict("make chaos-mutants MUTANT='"+name+"'", 1); err != nil && !errors.Is(err, errFailed) {
		return nil, nil, err
	}
	return g.report.kinds(), faults, w.empty(ctx)
}

// receipt judges what the managers wrote, as the kubectl plugin does.
func (g *game) receipt() ([]receipt.Fault, error) {
	var lines []receipt.Line
	for _, name := range g.managers.names() {
		log, err := os.ReadFile(auditLog(g.binary+".d", name))
		if err != nil {
			return nil, fmt.Errorf("reading the audit log of manager %s: %w", name, err)
		}
		written, err := receipt.Read(log)
		if err != nil {
			return nil, fmt.Errorf("reading the audit log of manager %s: %w", name, err)
		}
		lines = append(lines, written...)
	}
	faults := receipt.NewHistory(lines, g.ended).Faults()
	g.out.printf("receipt over %d lines: %d faults %q", len(lines), len(faults), texts(faults))
	return faults, nil
}

// kinds is what is wrong, in a word for each: the invariant of an early flip, or what the last line calls it.
func (r *report) kinds() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, v := range r.seen {
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

func (m mutant) build(ctx context.Context, dir string) (binary string, err error) {
	internal, err := cache.Dir(ctx, "internal")
	if err != nil {
		return "", err
	}
	binary = filepath.Join(dir, "mutant-"+strings.ReplaceAll(m.name, " ", "-"))
	overlay, err := m.overlay(filepath.Dir(internal), binary)
	if err != nil {
		return "", fmt.Errorf("mutant %q: %w", m.name, err)
	}
	return binary, manager.Build(ctx, mainPackage, binary, "-overlay="+overlay)
}
