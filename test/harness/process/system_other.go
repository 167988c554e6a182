//go:build !linux

package process

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
)

// Supported returns why servers can't be run on this machine.
func Supported() error {
	return fmt.Errorf("the tests' servers run on Linux only, not on %s: they must end with the process that started them",
		runtime.GOOS)
}

// OwnGroup does nothing here.
func OwnGroup(*exec.Cmd) {}

// Pause always fails here.
func (*Process) Pause() error { return Supported() }

// Resume always fails here.
func (*Process) Resume() error { return Supported() }

// Terminate always fails here.
func (*Process) Terminate() error { return Supported() }

func dieWithParent(*exec.Cmd)   {}
func onMainThread() bool        { return false }
func killGroup(int) error       { return Supported() }
func killedBySignal(error) bool { return false }

// Lock always fails here.
func Lock(context.Context, string, func()) (func(), error) { return nil, Supported() }

// TryLock always fails here.
func TryLock(string) (func(), error) { return nil, Supported() }

func reserve(int) bool { return true }
