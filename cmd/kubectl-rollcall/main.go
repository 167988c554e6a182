// Command kubectl-rollcall is the kubectl plugin: kubectl rollcall status.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/rollcall-dev/rollcall/internal/plugin"
)

// version is set by the linker.
var version = "unknown"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	status := plugin.Run(ctx, version, os.Args[1:], streams)
	stop()
	os.Exit(status)
}
