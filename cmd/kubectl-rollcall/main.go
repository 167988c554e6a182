// Command kubectl-rollcall is the kubectl plugin: kubectl rollcall status.
package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/rollcall-dev/rollcall/internal/drivers"
	"github.com/rollcall-dev/rollcall/internal/plugin"
)

// version is set by the linker.
var version = "unknown"

func main() {
	log.SetLogger(klog.Background()) // controller-runtime complains with a stack trace where it has none
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	arguments := os.Args[1:]
	if strings.HasPrefix(filepath.Base(os.Args[0]), "kubectl_complete-") { // as kubectl calls it for a shell
		arguments = append([]string{cobra.ShellCompRequestCmd}, arguments...)
	}
	asked := drivers.All()
	delete(asked, "memory") // is inside the manager
	// A signal ends the process immediately, wherever it waits, and the shell sees by which.
	os.Exit(plugin.Run(context.Background(), version, arguments, streams, asked))
}
