// Package command is how the commands begin and end that start servers and play something on them for a person to look at.
package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// ErrFailed is what a play returns that has said itself what is wrong.
var ErrFailed = errors.New("it failed")

// Run plays until it is over or a signal comes, which ends the context, and returns the exit status. Errors go to standard
// error, after the command's name.
func Run(name string, play func(context.Context) error) (status int) {
	// What the libraries have to say about lost connections is not for the reader.
	ctrllog.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// A second signal ends the process at once, and the kernel its servers.
	context.AfterFunc(ctx, stop)
	err := play(ctx)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrFailed):
	case ctx.Err() != nil:
		fmt.Fprintf(os.Stderr, "%s: interrupted, everything is stopped\n", name)
	default:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	}
	return 1
}
