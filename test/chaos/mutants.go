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
	// finds are what is wrong with it, one of which chaos must say: the name of a rule, such as I1 or weight, or lost, leaked or stuck.
	// Another failure would be by chance.
	finds []string
	// says is in what chaos says, if the rule alone does not tell that it was found for the right reason.
	says string
}

// trial is a short plan that finds out some mutants, and that the manager as it is passes.
type trial struct {
	plan    planner
	length  time.Duration
	mutants []mutant
}

// trials find out every mutant. Each plan is played once for each mutant, and once for the manager as it is.
func trials() []trial { return []trial{moving(), failing(), repairing(), describing(), telling()} }

// moving has calls take long enough for the pod to move on meanwhile.
func moving() trial {
	return trial{
		plan: planner{
			seed: 1, workloads: len(workloads()), storm: 30 * time.Second, workEvery: 400 * time.Millisecond,
			work: []share{{rollBack, 6}, {cancelDelete, 3}, {update, 1}}, faults: []kind{netSlow},
		},
		length: 30 * time.Second,
		mutants: []mutant{{
			name: "the patch tests nothing", finds: []string{"I3"},
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
				name: "a release waits for no acknowledgement", finds: []string{"I1"},
				override: override{client, "(*Client).Change", `
					if err := original(ctx, by, change); change.State == registry.InService {
						return err
					}
					return nil`},
			},
			{
				name: "an assertion waits for no acknowledgement", finds: []string{"I2"},
				override: override{client, "(*Client).Change", `
					if err := original(ctx, by, change); change.State != registry.InService {
						return err
					}
					return nil`},
			},
			{
				// The log of the two above shows acknowledgements that were none. This one asks nothing, and its log shows that.
				name: "a release asks no registry", finds: []string{"history"}, says: "released before acknowledged",
				override: override{visit, "(*entry).bring", `
					if e.Want != lifecycle.InService {
						return waiting.Blocker{}
					}
					return original(ctx)`},
			},
			{
				name: "a drain never ends", finds: []string{"stuck"},
				override: override{"internal/plan", "Drain.state", `
					s := original(now)
					s.By, s.Most = "", now.Add(time.Hour)
					return s`},
			},
		},
	}
}

// repairing leaves much to resync.
func repairing() trial {
	const resync = "internal/resync"
	const storm = 15 * time.Second
	return trial{
		plan: planner{
			seed: 3, workloads: len(workloads()), storm: storm, workEvery: time.Second,
			work: []share{{update, 1}, {forceDelete, 1}}, last: []kind{wipeHalf, addForeign, leaveEntries},
		},
		length: storm,
		mutants: []mutant{
			{
				// Where nothing is ever listed, nothing tells that the http server is of a version without a probe, and pods wait for it.
				name: "no resync", finds: []string{"lost", "stuck"},
				override: override{resync, "(*keeper).compareAll", ""},
			},
			{
				name: "nothing is reaped", finds: []string{"leaked"},
				override: override{resync, "(*keeper).reap", "return make([]error, len(due))"},
			},
			{
				name: "what another cluster wrote is reaped", finds: []string{"I10"}, says: `of cluster "other" was touched`,
				override: override{resync, "(*keeper).list", `
					owned, foreign, err = original(ctx, r)
					if others, failed := k.client.List(ctx, "other"); failed == nil {
						owned = append(owned, others...)
					}
					return owned, foreign, err`},
			},
			{
				// One whose pod the cache has. The next run misses it and puts it back, and this takes it out again.
				name: "a live pod is reaped", finds: []string{"I2", "I9", "lost"},
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
				name: "the record is the truth", finds: []string{"lost", "I1", "weight"},
				override: override{visit, "(*entry).bring", `
					if e.input.Record.Want == e.Want && slices.Contains(e.input.Record.Instances, e.in) {
						return waiting.Blocker{}
					}
					return original(ctx)`},
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
			last: []kind{leaveTheirs},
		},
		length: storm,
		mutants: []mutant{
			{
				name: "a pod departs before it joins", finds: []string{"I9"},
				override: override{"internal/plan", "Stages", `
					if want == lifecycle.InService {
						return append([]Stage{{Name: "too early", Rows: p.Departing}}, original(p, want)...)
					}
					return original(p, want)`},
			},
			{
				name: "a cluster of the same name is this one", finds: []string{"I10"}, says: "of cluster \"chaos\" was touched",
				override: override{"internal/resync", "(*keeper).isOurs", "return true"},
			},
			{
				name: "what an update brings stays", finds: []string{"I2"},
				override: override{"internal/lifecycle", "Input.takenBack", "return Edit{}"},
			},
		},
	}
}

// telling is about what clients are told of a pod and when, and about what must stay. No fault disturbs it.
func telling() trial {
	const service, storm = "internal/service", 15 * time.Second
	return trial{
		plan: planner{
			seed: 5, workloads: len(workloads()), storm: storm, workEvery: 300 * time.Millisecond, removals: noRemovals,
			work: []share{{update, 2}, {describePods, 2}, {movePods, 1}}, last: []kind{leaveEntries, announceEnd},
		},
		length: storm,
		mutants: []mutant{
			{
				name: "a pod begins with all of its weight", finds: []string{"weight"}, says: "after the pod came into rotation",
				override: override{service, "Attributes.Warmed", "return a.Weight, 0"},
			},
			{
				name: "a pod stays cold", finds: []string{"weight"}, says: "it has not the weight 100",
				override: override{service, "Attributes.Warmed", `
					if a.WarmUp > 0 {
						return max(1, a.Weight/100), 0
					}
					return original(since, now)`},
			},
			{
				name: "metadata is told once", finds: []string{"metadata"}, says: "tier:",
				override: override{"registry", "Instance.Equal", `
					other.Metadata = in.Metadata
					return original(other)`},
			},
			{
				name: "the address is always the pod's own", finds: []string{"where", "lost"}, says: "delete-only at 172.",
				override: override{service, "Address.of", `
					if s.Status == nil {
						return ""
					}
					return s.Status.PodIP`},
			},
			{
				name: "a place is another one", finds: []string{"where"}, says: "in registry placed, and the pod belongs to east/",
				override: override{service, "PlaceOf", `return "north", nil`},
			},
			{
				name: "the pod's own drain does not count", finds: []string{"I1"}, says: "and the drain is 2.5s",
				override: override{service, "DrainOf", "return def, nil"},
			},
			{
				name: "clients have no time to notice", finds: []string{"I2", "I9"}, says: "of which clients take 1s to notice",
				override: override{"internal/plan", "Now.readersLag", "return waiting.Blocker{}"},
			},
			{
				name: "an announced end changes nothing", finds: []string{"end"},
				override: override{"internal/lifecycle", "End.Ending", `return "", 0`},
			},
			{
				name: "no removal needs approval", finds: []string{"I10"}, says: "of cluster \"chaos\" was touched",
				override: override{"internal/resync", "allowed", "return owned"},
			},
			{
				name: "every manager works without the lease", finds: []string{"lease"},
				override: override{"cmd/app", "newLease", "return nil, nil"},
			},
		},
	}
}

// oneOfEach chooses the first mutant for each thing that chaos can say.
const oneOfEach = "one-of-each"

// chosenTrials are those of the mutants with the text in their name, or one of several with commas; empty is all.
func chosenTrials(text string) ([]trial, error) {
	isNamed := func(m mutant) bool {
		return slices.ContainsFunc(strings.Split(text, ","), func(part string) bool { return strings.Contains(m.name, part) })
	}
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
			return text == oneOfEach && another || text != oneOfEach && !isNamed(m)
		})
		if len(t.mutants) > 0 {
			chosen = append(chosen, t)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("MUTANT is %q: set it to %s, to parts of these names with commas, or leave it out for all: %s",
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
		said, err := w.playOne(ctx, t, broken, m.name)
		if err != nil {
			return nil, err
		}
		w.out.printf("MUTANT %q: chaos said %s after %s", m.name, rulesOf(said), time.Since(began).Round(time.Second))
		if problem := m.unlike(said); problem != nil {
			problems = append(problems, problem)
		}
	}
	w.out.printf("the manager as it is, on the plan of %s: chaos must pass", strings.Join(names, ", "))
	said, err := w.playOne(ctx, t, sound, t.mutants[0].name)
	if err == nil && len(said) > 0 {
		problems = append(problems, fmt.Errorf("the manager as it is fails on the plan of %s: %s", strings.Join(names, ", "), rulesOf(said)))
	}
	return problems, err
}

// unlike says that chaos did not find what is wrong with the mutant.
func (m mutant) unlike(said []finding) error {
	found := slices.ContainsFunc(said, func(f finding) bool {
		return slices.Contains(m.finds, f.rule()) && strings.Contains(f.text, m.says)
	})
	switch {
	case found:
		return nil
	case len(said) == 0:
		return fmt.Errorf("mutant %q was not found out", m.name)
	default:
		return fmt.Errorf("mutant %q was found out by chance: chaos said %s, such as %q, and not %s with %q",
			m.name, rulesOf(said), said[0].text, m.finds, m.says)
	}
}

// playOne plays a plan with a binary, leaves the cluster empty, and returns what chaos said.
func (w *world) playOne(ctx context.Context, t trial, binary, name string) (said []finding, err error) {
	g := &game{world: w, binary: binary, plan: t.plan, replicas: fewReplicas, length: t.length}
	if err := g.play(ctx); err != nil {
		return nil, err
	}
	if err := g.verdict("make chaos-mutants MUTANT='"+name+"'", 1); err != nil && !errors.Is(err, errFailed) {
		return nil, err
	}
	return g.report.all(), w.empty(ctx)
}

// all is everything that is wrong.
func (r *report) all() []finding {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Concat(r.seen, r.found)
	for _, text := range r.other {
		all = append(all, finding{kind: "other", text: text})
	}
	return all
}

// rule is the name of the rule that did not hold, which the text begins with, or the kind.
func (f finding) rule() string {
	rule, _, found := strings.Cut(f.text, ": ")
	if !found || !slices.Contains(ruleNames(), rule) {
		return string(f.kind)
	}
	return rule
}

// ruleNames are those of the checker, and of the calm.
func ruleNames() []string {
	return []string{"I1", "I2", "I3", "I9", "I10", "where", "metadata", "weight", "end", "lease", "history"}
}

// rulesOf are the rules that did not hold, each once.
func rulesOf(all []finding) (rules []string) {
	for _, f := range all {
		rules = append(rules, f.rule())
	}
	slices.Sort(rules)
	return slices.Compact(rules)
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
