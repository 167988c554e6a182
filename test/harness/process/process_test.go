package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

const patience = time.Minute

func TestProcessEndsWithItsLauncher(t *testing.T) {
	t.Parallel()
	l := NewLauncher()
	p, err := Start(l, t.TempDir(), shell("sleeper", "exec sleep 600"))
	expect.NoError(t, err)
	if err := p.Crashed(); err != nil {
		t.Fatalf("it did not start: %v", err)
	}
	// The end of the launcher's thread is what the end of the whole process is to the kernel.
	l.Close()
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Fatal("the process survives the thread that started it")
	}
}

// Go schedules the launcher's goroutine onto the main thread now and then, which never ends.
func TestLauncherLeavesTheMainThread(t *testing.T) {
	t.Parallel()
	for range 200 {
		l := NewLauncher()
		main := make(chan bool, 1)
		l.requests <- func() { main <- onMainThread() }
		if <-main {
			t.Error("the launcher serves from the main thread")
		}
		l.Close()
	}
}

func TestPausedProcessDoesNothing(t *testing.T) {
	t.Parallel()
	p, dir := start(t, shell("counter", "while :; do echo >> ticks; sleep 0.01; done"))
	ticks := func() int64 {
		info, err := os.Stat(filepath.Join(dir, "ticks"))
		if err != nil {
			return 0
		}
		return info.Size()
	}
	expect.Becomes(t, "it counts", func() bool { return ticks() > 0 })
	expect.NoError(t, p.Pause())
	var before int64
	expect.Becomes(t, "it stands still", func() bool {
		now := ticks()
		still := now == before
		before = now
		return still
	})
	expect.NoError(t, p.Resume())
	expect.Becomes(t, "it counts again", func() bool { return ticks() > before })
	expect.NoError(t, p.Terminate())
	select {
	case <-p.Done():
	case <-time.After(patience):
		t.Fatal("it does not end when asked to")
	}
	if p.Kill(); p.Killed() {
		t.Error("a process that had ended counts as killed")
	}
	if err := p.Pause(); err == nil {
		t.Error("a process that has ended was paused")
	}
}

func TestKillEndsTheWholeGroup(t *testing.T) {
	t.Parallel()
	p, dir := start(t, shell("parent", "sleep 600 & echo $! > child; wait"))
	expect.Becomes(t, "the child runs", func() bool {
		data, err := os.ReadFile(filepath.Join(dir, "child"))
		return err == nil && strings.HasSuffix(string(data), "\n")
	})
	if p.Killed() {
		t.Error("a process that runs counts as killed")
	}
	p.Kill()
	p.Kill()
	if !p.Killed() {
		t.Error("what was killed does not count as killed")
	}
	if err := p.Crashed(); err != nil {
		t.Errorf("what we killed counts as crashed: %v", err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "child"))
	expect.NoError(t, err)
	expect.Becomes(t, "the child has ended too", func() bool {
		stat, err := os.ReadFile(filepath.Join("/proc", strings.TrimSpace(string(data)), "stat"))
		return errors.Is(err, os.ErrNotExist) || strings.Contains(string(stat), ") Z ")
	})
}

func TestWaitReady(t *testing.T) {
	t.Parallel()
	notReady := func(context.Context) error { return errors.New("connection refused") }
	for name, tc := range map[string]struct {
		reason string
		script string
		check  func(context.Context) error
		cancel bool
		want   []string
	}{
		"ready": {
			reason: "a check that passes ends the wait",
			script: "sleep 600", check: func(context.Context) error { return nil }, want: []string{""},
		},
		"dies": {
			reason: "the error of a server that dies has its exit status and the end of its log",
			script: "echo the reason >&2; exit 3", check: notReady,
			want: []string{"dies: it ended before it was ready: exit status 3", "the reason"},
		},
		"cancelled": {
			reason: "the error of a server that does not become ready has the last answer and the end of its log",
			script: "echo still thinking; sleep 600", check: notReady, cancel: true,
			want: []string{"not ready", "context canceled", "connection refused", "cancelled.log"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, _ := start(t, shell(name, tc.script))
			defer p.Kill()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tc.cancel {
				cancel()
			}
			err := p.WaitReady(ctx, tc.check)
			for _, want := range tc.want {
				expect.Error(t, tc.reason, err, want)
			}
		})
	}
}

func TestProcessGetsNothingOfOurEnvironment(t *testing.T) {
	t.Parallel()
	c := shell("env", "env")
	c.Env = []string{"GIVEN=yes"}
	p, dir := start(t, c)
	<-p.done
	log := LogTail(p.logPath)
	for line := range strings.Lines(log) {
		name, _, _ := strings.Cut(line, "=")
		switch name {
		case "PATH", "HOME", "TMPDIR", "GIVEN", "PWD", "SHLVL", "_", "OLDPWD":
		default:
			t.Errorf("the server sees %s", line)
		}
	}
	if !strings.Contains(log, "HOME="+dir) {
		t.Errorf("its home is not its own folder:\n%s", log)
	}
}

// start starts a command in a folder of its own.
func start(t *testing.T, c Command) (p *Process, dir string) {
	t.Helper()
	l := NewLauncher()
	t.Cleanup(l.Close)
	dir = t.TempDir()
	p, err := Start(l, dir, c)
	expect.NoError(t, err)
	return p, dir
}

func shell(name, script string) Command {
	return Command{Name: name, Path: "/bin/sh", Args: []string{"-c", script}}
}
