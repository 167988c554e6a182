package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestSignal: a signal ends the plugin also where it waits for its input, and a script sees that it was not done. SIGTERM stands for
// Ctrl-C too, which a shell has its background jobs ignore.
func TestSignal(t *testing.T) {
	t.Parallel()
	const variable, pipeHolds = "ROLLCALL_TEST_PLUGIN", 64 << 10
	if os.Getenv(variable) != "" {
		os.Args = []string{"kubectl-rollcall", "lint", "-"}
		main()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	plugin := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestSignal$")
	plugin.Env = append(os.Environ(), variable+"=1")
	input, err := plugin.StdinPipe()
	expect.NoError(t, err)
	expect.NoError(t, plugin.Start())
	if _, err := input.Write(bytes.Repeat([]byte("# \n"), pipeHolds)); err != nil { // by then it reads
		t.Fatal(err)
	}
	expect.NoError(t, plugin.Process.Signal(syscall.SIGTERM))
	_ = plugin.Wait()
	if status, is := plugin.ProcessState.Sys().(syscall.WaitStatus); !is || status.Signal() != syscall.SIGTERM {
		t.Errorf("it ended with %s, want the signal", plugin.ProcessState)
	}
}
