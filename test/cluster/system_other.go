//go:build !linux

package cluster

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
)

func supported() error {
	return fmt.Errorf("the test cluster runs on Linux only, not on %s: its pods need the whole of 127.0.0.0/8 "+
		"as addresses, and its servers must end with the process that started them", runtime.GOOS)
}

func ownGroup(*exec.Cmd)      {}
func dieWithParent(*exec.Cmd) {}
func killGroup(int) error     { return supported() }

func freeDisk(string) (uint64, error) { return 0, supported() }

func lockFile(context.Context, string, func()) (func(), error) { return nil, supported() }
func tryLock(string) (func(), error)                           { return nil, supported() }
