package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/rollcall-dev/rollcall/test/process"
)

// errFailed ends the demo after its verdict, which says what is wrong.
var errFailed = errors.New("the demo failed")

func main() { os.Exit(start()) }

// start returns the exit status.
func start() int {
	if err := process.Supported(); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 1
	}
	keep, err := keepFrom(os.Getenv("KEEP"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 1
	}
	driver, err := driverFrom(os.Getenv("REGISTRY"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 1
	}
	// What the libraries have to say about lost connections at the end is not for the reader of a demo.
	log.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// A second signal ends the process at once, and the kernel its servers.
	context.AfterFunc(ctx, stop)

	err = run(ctx, newScreen(os.Stdout), driver, keep)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errFailed):
		return 1
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "demo: interrupted, everything is stopped")
		return 1
	default:
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 1
	}
}

// keepFrom reads the variable KEEP.
func keepFrom(value string) (bool, error) {
	switch value {
	case "", "0":
		return false, nil
	case "1":
		return true, nil
	default:
		return false, fmt.Errorf("KEEP is %q: write 1 to keep everything running after the demo, or leave it out", value)
	}
}
