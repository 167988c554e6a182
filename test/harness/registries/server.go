package registries

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rollcall-dev/rollcall/test/harness/clock"
	"github.com/rollcall-dev/rollcall/test/harness/process"
)

const tempPrefix = "rollcall-registry-"

// Spec says how a server is run.
type Spec struct {
	// Name is what people call the server, such as "Consul"; Version is its version.
	Name    string
	Version string
	// Command returns how to run it with its data in dir, which is empty. A restart runs the same; [Server.Wipe] and [Server.Renew]
	// call it again, Renew with what the server has written into dir. Name, its log's, is filled in if it is empty.
	Command func(dir string) (process.Command, error)
	// Libc: the server asks the C library for the time of day, unlike those written in Go. Both are told by [Server.SetClock].
	Libc bool
	// Ready returns nil when the server serves. It is called again and again, each time with a context of its own.
	Ready func(ctx context.Context) error
	// Restarts is how often a server that ends by itself before it is ready is started again, as a kubelet does.
	Restarts int
}

// Server is a running server. The server of each registry embeds it. Its methods are safe for concurrent use.
type Server struct {
	spec     Spec
	dir      string
	release  func()
	clock    clock.Clock
	command  process.Command
	launcher *process.Launcher
	change   sync.Mutex // one of Start, Kill, Restart and Stop at a time

	mu      sync.Mutex
	process *process.Process
	stopped bool
}

// probeTimeout bounds one question whether a server is ready.
const probeTimeout = 5 * time.Second

// Run starts a server and returns when it is ready. It outlives ctx: Stop ends it, and so does the end of this process,
// however that comes about. An error carries the end of the server's log.
func Run(ctx context.Context, spec Spec) (*Server, error) {
	dir, release, err := process.NewDir("", tempPrefix)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", spec.Name, err)
	}
	s := &Server{spec: spec, dir: dir, release: release, launcher: process.NewLauncher()}
	s.clock, err = clock.New(dir + "/clock")
	if err == nil {
		err = s.run(ctx)
	}
	if err != nil {
		s.Stop()
		return nil, fmt.Errorf("starting %s %s: %w", spec.Name, spec.Version, err)
	}
	return s, nil
}

func (s *Server) run(ctx context.Context) error {
	s.change.Lock()
	defer s.change.Unlock()
	return s.startAnew(ctx)
}

// startAnew asks for the command and starts it. The caller holds change.
func (s *Server) startAnew(ctx context.Context) error {
	// A folder of its own: the lock of the temporary folder is not the server's.
	data := s.dir + "/data"
	if err := os.MkdirAll(data, 0o700); err != nil {
		return fmt.Errorf("creating the folder for data: %w", err)
	}
	var err error
	if s.command, err = s.spec.Command(data); err != nil {
		return err
	}
	if s.command.Name == "" {
		s.command.Name = s.spec.Name
	}
	s.command.Env = append(s.command.Env, s.clock.Env()...)
	if s.spec.Libc {
		preload, err := s.clock.Preload(ctx)
		if err != nil {
			return Missing(err)
		}
		s.command.Env = append(s.command.Env, preload...)
	}
	return s.start(ctx)
}

// StartAll starts servers at once, of which none serves without the others, and stops them all where one does not come up.
func StartAll[S interface{ Stop() }](servers []S, start func(S) error) ([]S, error) {
	var all errgroup.Group
	for _, s := range servers {
		all.Go(func() error { return start(s) })
	}
	if err := all.Wait(); err != nil {
		for _, s := range servers {
			s.Stop()
		}
		return nil, err
	}
	return servers, nil
}

// start starts the process, again where it ends by itself. The caller holds change.
func (s *Server) start(ctx context.Context) error {
	for left := s.spec.Restarts; ; left-- {
		err := s.startOnce(ctx)
		if left == 0 || !errors.Is(err, process.ErrEnded) {
			return err
		}
		fmt.Fprintf(os.Stderr, "registries: starting it again: %v\n", err)
	}
}

func (s *Server) startOnce(ctx context.Context) error {
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return errors.New("the server is stopped")
	}
	p, err := process.Start(s.launcher, s.dir, s.command)
	if err == nil {
		s.process = p
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return p.WaitReady(ctx, s.Ready)
}

// Ready returns nil while the server serves.
func (s *Server) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return s.spec.Ready(ctx)
}

// Name is what people call the server.
func (s *Server) Name() string { return s.spec.Name }

// Version is the server's version.
func (s *Server) Version() string { return s.spec.Version }

// PID is the number of the process that runs now.
func (s *Server) PID() int { return s.current().PID() }

// Dir is the folder with the server's log and, below data, its data. Stop removes it.
func (s *Server) Dir() string { return s.dir }

// Kill ends the server and keeps its data: connections to it are refused until Restart.
func (s *Server) Kill() {
	s.change.Lock()
	defer s.change.Unlock()
	s.kill()
}

func (s *Server) kill() {
	if p := s.current(); p != nil {
		p.Kill()
	}
}

// Restart kills the server, where it runs, and starts it again at the same addresses with its data kept. It returns when
// the server is ready.
func (s *Server) Restart(ctx context.Context) error {
	s.change.Lock()
	defer s.change.Unlock()
	s.kill()
	if err := s.start(ctx); err != nil {
		return fmt.Errorf("restarting %s: %w", s.spec.Name, err)
	}
	return nil
}

// Wipe kills the server and starts it again with an empty disk. between is called while the server is down.
func (s *Server) Wipe(ctx context.Context, between func() error) error {
	return s.renew(ctx, func() error {
		if err := os.RemoveAll(s.dir + "/data"); err != nil {
			return fmt.Errorf("emptying the folder for data: %w", err)
		}
		return between()
	})
}

// Renew kills the server and starts it again with its data and what Spec.Command returns now, such as another version.
func (s *Server) Renew(ctx context.Context) error { return s.renew(ctx, func() error { return nil }) }

func (s *Server) renew(ctx context.Context, between func() error) error {
	s.change.Lock()
	defer s.change.Unlock()
	s.kill()
	err := between()
	if err == nil {
		err = s.startAnew(ctx)
	}
	if err != nil {
		return fmt.Errorf("starting %s again: %w", s.spec.Name, err)
	}
	return nil
}

// Freeze stops the process from doing anything until Thaw. Kill ends one that is frozen, too.
func (s *Server) Freeze() error { return s.current().Pause() }

// Thaw undoes Freeze.
func (s *Server) Thaw() error { return s.current().Resume() }

// SetClock has the server's time of day be ahead by so much from now on, or behind; a restart does not change that. What it measures
// durations with stays right.
func (s *Server) SetClock(ahead time.Duration) error {
	s.change.Lock()
	defer s.change.Unlock()
	if err := s.clock.Set(ahead); err != nil {
		return err
	}
	select {
	case <-s.Done():
		return nil
	default:
		return s.clock.IsReadBy(s.PID())
	}
}

// SlowDisk has each sync of the server's disk take so much longer until end is called, which tells how many did. strace holds the system
// calls up: a limit of a cgroup is of bytes and depends on the device, and nothing can be preloaded into what is written in Go.
func (s *Server) SlowDisk(ctx context.Context, by time.Duration) (end func() (syncs int), err error) {
	const tracer, calls, delayed = "strace", "fsync,fdatasync", "(DELAYED)"
	if _, err := exec.LookPath(tracer); err != nil {
		return nil, Missing(fmt.Errorf("slowing down the disk of %s: %w", s.spec.Name, err))
	}
	pid := s.PID()
	log := s.dir + "/" + tracer + ".log"
	if err := os.Remove(log); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("removing what was traced before: %w", err)
	}
	p, err := process.Start(s.launcher, s.dir, process.Command{Name: tracer, Path: tracer, Args: []string{
		"-f", "-qq", "-e", "trace=" + calls, "-e", fmt.Sprintf("inject=%s:delay_enter=%d", calls, by.Microseconds()), "-p", strconv.Itoa(pid),
	}})
	if err != nil {
		return nil, err
	}
	end = func() int {
		p.Kill()
		traced, _ := os.ReadFile(log)
		return strings.Count(string(traced), delayed)
	}
	attached := func(context.Context) error {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err == nil && strings.Contains(string(status), "TracerPid:\t0\n") {
			err = errors.New("it is not traced")
		}
		return err //nolint:wrapcheck // it has the path
	}
	if err := p.WaitReady(ctx, attached); err != nil {
		end()
		return nil, err
	}
	return end, nil
}

// Stop ends the server and removes its folder. It can be called more than once, and of one that was never started.
func (s *Server) Stop() {
	if s == nil {
		return
	}
	s.change.Lock()
	defer s.change.Unlock()
	s.mu.Lock()
	stopped := s.stopped
	s.stopped = true
	s.mu.Unlock()
	if stopped {
		return
	}
	s.kill()
	s.launcher.Close()
	s.release()
}

// Done is closed when the process that runs now has ended, for whatever reason. A restart makes a new one.
func (s *Server) Done() <-chan struct{} { return s.current().Done() }

// Err tells that the server died by itself, with the end of its log.
func (s *Server) Err() error { return s.current().Crashed() }

// Logs returns the end of the server's log.
func (s *Server) Logs() string { return process.LogTail(s.current().LogPath()) }

func (s *Server) current() *process.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}
