package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

const defaultSoak = 30 * time.Minute

// soakPlan is rollouts alone, as fast as they come, in one storm of that length: with nothing going wrong the managers have
// no reason to grow.
func soakPlan(seed uint64, workloads int, length time.Duration) planner {
	return planner{
		seed: seed, workloads: workloads, storm: length, workEvery: 1200 * time.Millisecond,
		work: []share{
			{update, 5}, {recreate, 2}, {rollBack, 3}, {scaleOut, 2}, {scaleIn, 2}, {cancelDelete, 2}, {markDeleted, 2},
		},
	}
}

// soak lets two managers work for long, and looks at what they hold.
func soak(ctx context.Context, out *output) error {
	length, err := lengthFrom("SOAK", os.Getenv("SOAK"), defaultSoak)
	if err != nil {
		return err
	}
	seed, err := seedFrom(os.Getenv("SEED"))
	if err != nil {
		return err
	}
	out.printf("SEED=%d SOAK=%s", seed, length)
	return withManager(ctx, out, func(w *world, binary string) error {
		g := &game{
			world: w, binary: binary, plan: soakPlan(seed, len(workloads()), length), replicas: replicas, length: length,
			curves: newCurves(length),
		}
		if err := g.play(ctx); err != nil {
			return err
		}
		names := g.managers.names()
		out.plain(g.curves.table(names))
		problems := g.curves.problems(names)
		for _, problem := range problems {
			g.report.note(problem)
		}
		err := g.verdict(fmt.Sprintf("make soak SEED=%d SOAK=%s", seed, length), historiesShown)
		out.plain(fmt.Sprintf("soak: %s, %d transitions, %d pods, %d problems with the curves of %s",
			length, g.journal.Counts().Transitions, len(g.journal.Known()), len(problems), strings.Join(names, " and ")))
		return err
	})
}
