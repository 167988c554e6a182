package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/command"
	"github.com/rollcall-dev/rollcall/test/harness/manager"
)

// mainPackage is the manager with the registries of chaos.
const mainPackage = "github.com/rollcall-dev/rollcall/test/chaos/manager"

const (
	defaultLength = 15 * time.Minute
	// replicas of each workload: with twelve of them more than two hundred pods.
	replicas = 20
)

// errFailed ends the run after its last line, which says how much is wrong.
var errFailed = fmt.Errorf("chaos: %w", command.ErrFailed)

func main() {
	os.Exit(command.Run("chaos", func(ctx context.Context) error {
		play, err := mode(os.Args[1:])
		if err != nil {
			return err
		}
		return play(ctx, newOutput(os.Stdout))
	}))
}

// mode is what is played: chaos itself where no argument says otherwise.
func mode(arguments []string) (func(context.Context, *output) error, error) {
	modes := map[string]func(context.Context, *output) error{"": chaos, "mutants": playMutants, "soak": soak}
	name := strings.Join(arguments, " ")
	play, found := modes[name]
	if !found {
		return nil, fmt.Errorf("there is no %q: write mutants, soak, or nothing for chaos itself", name)
	}
	return play, nil
}

func chaos(ctx context.Context, out *output) error {
	length, seed, err := runFrom("CHAOS", defaultLength, out)
	if err != nil {
		return err
	}
	name := os.Getenv("REGISTRY")
	start, err := sideFrom(name)
	if err != nil {
		return err
	}
	replay := fmt.Sprintf("make chaos SEED=%d CHAOS=%s", seed, length)
	if name != "" {
		replay += " REGISTRY=" + name
	}
	return withManager(ctx, out, start, func(w *world, binary string) error {
		g := &game{world: w, binary: binary, plan: w.registry.plan(seed), replicas: replicas, length: length}
		if err := g.play(ctx); err != nil {
			return err
		}
		g.tooLittle(g.journal.Counts())
		return g.verdict(replay, historiesShown)
	})
}

// withManager starts the servers, builds the manager and plays. The logs stay unless it passes.
func withManager(
	ctx context.Context, out *output, start func(context.Context) (registrySide, error), play func(w *world, binary string) error,
) (err error) {
	w, stop, err := newWorld(ctx, out, start)
	defer stop()
	defer func() {
		w.passed = err == nil
		if err != nil && !errors.Is(err, errFailed) && w.dir != "" {
			out.printf("logs are in %s", w.dir) // else the verdict has said so
		}
	}()
	if err != nil {
		return err
	}
	binary := filepath.Join(w.dir, "manager")
	out.printf("building the manager; logs are in %s", w.dir)
	if err := manager.Build(ctx, mainPackage, binary); err != nil {
		return err
	}
	return play(w, binary)
}

// runFrom reads how long a run is from its variable, and the seed from SEED, and says both.
func runFrom(variable string, length time.Duration, out *output) (time.Duration, uint64, error) {
	seed := rand.Uint64N(1_000_000)
	var err error
	if value := os.Getenv(variable); value != "" {
		usual := length
		if length, err = time.ParseDuration(value); err != nil || length <= 0 {
			return 0, 0, fmt.Errorf("%s is %q: write how long, such as 5m, or leave it out for %s", variable, value, usual)
		}
	}
	if value := os.Getenv("SEED"); value != "" {
		if seed, err = strconv.ParseUint(value, 10, 64); err != nil {
			return 0, 0, fmt.Errorf("SEED is %q: write the number that an earlier run printed, or leave it out", value)
		}
	}
	out.printf("SEED=%d %s=%s", seed, variable, length)
	return length, seed, nil
}
