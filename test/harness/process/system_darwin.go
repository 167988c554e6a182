package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// Servers run on Linux alone. What unit tests start is ended by them.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func onMainThread() bool { return false }

// reserve takes the port for this process, and reports whether it was there to be taken.
func reserve(port int) bool {
	_, err := TryLock(filepath.Join(os.TempDir(), fmt.Sprintf("rollcall-test-port-%d.lock", port)))
	return err == nil
}
