package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/cluster"
	"github.com/rollcall-dev/rollcall/test/harness/command"
)

const (
	cgroups = "/sys/fs/cgroup"
	// endPatience is how long what runs in the namespaces has to stop after a signal.
	endPatience = 30 * time.Second
)

// isolated runs this program again, with other arguments, in network, mount and process namespaces of its own. When it
// ends, however that comes about, the kernel ends every process in them, and every mount, address and network is gone
// with them. What remains are control groups, which isolated removes.
func isolated(ctx context.Context, args ...string) error {
	// The kernel ends the child with the thread that started it: keep the thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	child := exec.CommandContext(ctx, "/proc/self/exe", args...)
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	child.Cancel = func() error { return child.Process.Signal(syscall.SIGTERM) }
	child.WaitDelay = endPatience
	err := errors.Join(child.Run(), removeCgroups())
	if exit := new(exec.ExitError); errors.As(err, &exit) && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "e2e: the logs are in "+logsPath)
		return command.ErrFailed // it has said why
	}
	if err != nil {
		return fmt.Errorf("running in namespaces of its own: %w", err)
	}
	return nil
}

// furnish makes the namespaces fit for servers: a /proc for their processes, empty folders where servers expect to be
// alone, and a loopback interface, which also has the address at which pods look for the API server.
func furnish(ctx context.Context) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keeping mounts in this namespace: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	for _, dir := range []string{"/run", "/var/lib", "/var/log"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("making a mount point: %w", err)
		}
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"); err != nil {
			return fmt.Errorf("mounting an empty %s: %w", dir, err)
		}
	}
	for _, args := range [][]string{
		{"link", "set", "lo", "up"}, {"address", "add", cluster.ServiceAddress + "/32", "dev", "lo"},
		// Servers look for an address of theirs on the interface of the default route.
		{"route", "add", "default", "dev", "lo"},
	} {
		if output, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, output)
		}
	}
	return nil
}

// removeCgroups removes what containers had, from the leaves to the root, in each hierarchy.
func removeCgroups() error {
	roots, err := filepath.Glob(cgroups + "/*/" + cgroup)
	if err != nil {
		return fmt.Errorf("looking for control groups: %w", err)
	}
	for _, root := range append(roots, filepath.Join(cgroups, cgroup)) {
		var dirs []string
		_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for _, dir := range slices.Backward(dirs) {
			if err := syscall.Rmdir(dir); err != nil {
				return fmt.Errorf("removing control group %s: %w", dir, err)
			}
		}
	}
	return nil
}
