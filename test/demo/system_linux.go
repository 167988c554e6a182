package main

import (
	"os/exec"
	"syscall"
)

func supported() error { return nil }

// dieWithParent gives the command a process group of its own, so that a Ctrl-C reaches only us, and ends it when the
// thread that starts it ends, however that comes about.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
