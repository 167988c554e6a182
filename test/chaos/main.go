package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/rollcall-dev/rollcall/test/manager"
	"github.com/rollcall-dev/rollcall/test/process"
)

const (
	defaultLength = 15 * time.Minute
	// replicas of each workload: with seven of them more than two hundred pods.
	replicas = 32
)

// errFailed ends the run after its last line, which says how much is wrong.
var errFailed = errors.New("chaos failed")

func main() { os.Exit(start()) }

// start returns the exit status.
func start() int {
	if err := process.Supported(); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return 1
	}
	// What the libraries have to say about lost connections is not for the reader.
	ctrllog.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// A second signal ends the process at once, and the kernel its servers.
	context.AfterFunc(ctx, stop)
	play := run
	if len(os.Args) > 1 && os.Args[1] == "mutants" {
		play = playMutants
	}
	err := play(ctx, newOutput(os.Stdout))
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errFailed):
		return 1
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "chaos: interrupted, everything is stopped")
		return 1
	default:
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return 1
	}
}

func run(ctx context.Context, out *output) error {
	length, err := lengthFrom(os.Getenv("CHAOS"))
	if err != nil {
		return err
	}
	seed, err := seedFrom(os.Getenv("SEED"))
	if err != nil {
		return err
	}
	out.printf("SEED=%d CHAOS=%s", seed, length)
	w, stop, err := newWorld(ctx, out)
	defer stop()
	if err != nil {
		return err
	}
	binary := filepath.Join(w.dir, "manager")
	out.printf("building the manager; logs are in %s", w.dir)
	if err := manager.Build(ctx, binary); err != nil {
		return err
	}
	g := &game{world: w, binary: binary, plan: fullPlan(seed, len(workloads())), replicas: replicas, length: length}
	if err := g.play(ctx); err != nil {
		return err
	}
	g.tooLittle()
	err = g.verdict(fmt.Sprintf("make chaos SEED=%d CHAOS=%s", seed, length), historiesShown)
	w.passed = err == nil
	return err
}

// lengthFrom reads the variable CHAOS.
func lengthFrom(value string) (time.Duration, error) {
	if value == "" {
		return defaultLength, nil
	}
	length, err := time.ParseDuration(value)
	if err != nil || length <= 0 {
		return 0, fmt.Errorf("CHAOS is %q: write how long, such as 5m, or leave it out for %s", value, defaultLength)
	}
	return length, nil
}

// seedFrom reads the variable SEED.
func seedFrom(value string) (uint64, error) {
	if value == "" {
		return rand.Uint64N(1_000_000), nil
	}
	seed, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("SEED is %q: write the number that an earlier run printed, or leave it out", value)
	}
	return seed, nil
}
