//go:build unix

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// lockPoll is how often a lock that another process holds is tried again.
const lockPoll = 100 * time.Millisecond

// ErrLocked is what TryLock returns where another holds the lock.
var ErrLocked = errors.New("locked by another process")

// OwnGroup gives the command a process group of its own, so that its children end with it when its context ends.
func OwnGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return killGroup(cmd.Process.Pid) }
}

// Pause stops the process from doing anything until Resume, as a paused machine does.
func (p *Process) Pause() error { return p.signal(syscall.SIGSTOP) }

// Resume lets a process go on that was paused.
func (p *Process) Resume() error { return p.signal(syscall.SIGCONT) }

// Terminate asks the process to end, and does not wait for that. It counts as crashed then, since it ends by itself.
func (p *Process) Terminate() error { return p.signal(syscall.SIGTERM) }

func (p *Process) signal(s syscall.Signal) error {
	select {
	case <-p.done:
		return fmt.Errorf("%s has ended", p.name)
	default:
	}
	if err := syscall.Kill(p.pid, s); err != nil {
		return fmt.Errorf("sending %s to %s: %w", s, p.name, err)
	}
	return nil
}

// killedBySignal reads how a process ended.
func killedBySignal(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

func killGroup(pid int) error {
	if err := syscall.Kill(-pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("killing process group %d: %w", pid, err)
	}
	return nil
}

// Lock takes the exclusive lock of a file, which ends with the process at the latest. It calls waiting once if
// another holds it.
func Lock(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	if unlock, err = TryLock(path); errors.Is(err, ErrLocked) {
		waiting()
	}
	for errors.Is(err, ErrLocked) {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for %s: %w", path, ctx.Err())
		case <-time.After(lockPoll):
			unlock, err = TryLock(path)
		}
	}
	return unlock, err
}

// TryLock takes the lock as Lock does, and returns ErrLocked where another holds it.
func TryLock(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrLocked
		}
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return func() { _ = file.Close() }, nil
}
