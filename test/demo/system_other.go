//go:build !linux

package main

import (
	"fmt"
	"os/exec"
	"runtime"
)

func supported() error {
	return fmt.Errorf("the demo runs on Linux only, not on %s: its pods need the whole of 127.0.0.0/8 as addresses",
		runtime.GOOS)
}

func dieWithParent(*exec.Cmd) {}
