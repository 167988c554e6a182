package process

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// dieWithParent also ends the command when the thread that starts it ends, however that comes about.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// onMainThread is about the calling goroutine, which is locked to its thread.
func onMainThread() bool { return syscall.Gettid() == os.Getpid() }

// reserve takes the port for this process, and reports whether it was there to be taken. The kernel keeps the name, among those
// of abstract sockets, for as long as the process lives; a listener would be closed with its last reference.
func reserve(port int) bool {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: fmt.Sprintf("@rollcall-test-port-%d", port)}); err != nil {
		_ = syscall.Close(fd)
		return false
	}
	return true
}
