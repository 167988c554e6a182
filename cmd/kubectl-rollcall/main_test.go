package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// TestInterrupt: Ctrl-C ends the plugin also where it waits for its input, and a script sees that it was not done.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	const variable, pipeHolds = "ROLLCALL_TEST_PLUGIN", 64 << 10
	if os.Getenv(variable) != "" {
		os.Args = []string{"kubectl-rollcall", "lint", "-"}
		main()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	plugin := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestInterrupt$")
	plugin.Env = append(os.Environ(), variable+"=1")
	input, err := plugin.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := plugin.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := input.Write(bytes.Repeat([]byte("# \n"), pipeHolds)); err != nil { // by then it reads
		t.Fatal(err)
	}
	if err := plugin.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = plugin.Wait()
	if status, is := plugin.ProcessState.Sys().(syscall.WaitStatus); !is || status.Signal() != syscall.SIGINT {
		t.Errorf("it ended with %s, want the signal", plugin.ProcessState)
	}
}
