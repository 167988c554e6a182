// Package process runs the servers that tests need, as processes of this machine that end with the one that started them,
// and has what goes with that: free ports, folders for their data, and locks between processes.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"time"
)

const (
	// readyPoll is how often a starting server is asked whether it is ready.
	readyPoll = 50 * time.Millisecond
	// readyTimeout bounds the start of one server, several at a time on a slow machine.
	readyTimeout = 5 * time.Minute
	// tailBytes is how much of a log goes into an error.
	tailBytes = 6 << 10
)

// Launcher starts processes from one thread that lives as long as they do: the kernel's parent-death signal follows the
// thread that forked, not the process, and Go ends threads as it likes.
type Launcher struct {
	requests chan func()
	ended    chan struct{}
}

// NewLauncher starts the thread. Close ends it.
func NewLauncher() *Launcher {
	l := &Launcher{requests: make(chan func()), ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		l.serve()
	}()
	return l
}

// serve starts what is asked for on a thread that ends with this goroutine, since it is never unlocked.
func (l *Launcher) serve() {
	runtime.LockOSThread()
	if onMainThread() {
		// Go never ends the main thread. While this goroutine holds it, another one gets another.
		defer runtime.UnlockOSThread()
		var other sync.WaitGroup
		other.Go(l.serve)
		other.Wait()
		return
	}
	for request := range l.requests {
		request()
	}
}

// start starts the command. It must not be called after Close.
func (l *Launcher) start(cmd *exec.Cmd) error {
	result := make(chan error, 1)
	l.requests <- func() { result <- cmd.Start() }
	return <-result
}

// Close ends the thread, and with it whatever it started that still runs.
func (l *Launcher) Close() {
	close(l.requests)
	<-l.ended
}

// Command says how to run a server.
type Command struct {
	// Name is the server's in errors, and its log's: <name>.log.
	Name string
	// Path is the program.
	Path string
	Args []string
	// Env is all that the server sees besides PATH, HOME (its folder) and TMPDIR.
	Env []string
}

// Process is a running server.
type Process struct {
	name    string
	logPath string
	pid     int
	done    chan struct{} // closed when it has ended
	err     error         // how it ended; read after done
	stopped sync.Once
	// wanted is closed before we kill it, to tell that from a crash.
	wanted chan struct{}
}

// Start runs a server in dir, with its output appended to <name>.log there. It does not wait until it is ready.
func Start(l *Launcher, dir string, c Command) (*Process, error) {
	p := &Process{
		name: c.Name, logPath: filepath.Join(dir, c.Name+".log"), done: make(chan struct{}), wanted: make(chan struct{}),
	}
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", c.Name, err)
	}
	defer log.Close()
	// No context: the process outlives the call that starts it, and Kill ends it.
	cmd := exec.Command(c.Path, c.Args...) //nolint:noctx // see above
	cmd.Dir = dir
	// Nothing of the caller's environment gets in: a proxy, a KUBECONFIG or a server's own variable would change what runs.
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + os.TempDir()}, c.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	dieWithParent(cmd)
	if err := l.start(cmd); err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.Name, err)
	}
	p.pid = cmd.Process.Pid
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// Name is the command's.
func (p *Process) Name() string { return p.name }

// PID is the number of the process, which may be another's once this one has ended.
func (p *Process) PID() int { return p.pid }

// LogPath is the file with the server's output.
func (p *Process) LogPath() string { return p.logPath }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait returns how the process ended, once it has.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return fmt.Errorf("%s still runs: %w", p.name, ctx.Err())
	}
}

// Kill ends the process and its group and waits for its end. It can be called more than once.
func (p *Process) Kill() {
	p.stopped.Do(func() {
		close(p.wanted)
		select {
		case <-p.done:
			// Its number may be another's by now.
		default:
			_ = killGroup(p.pid)
		}
	})
	<-p.done
}

// Killed reports whether SIGKILL ended the process, rather than that it had ended before.
func (p *Process) Killed() bool {
	select {
	case <-p.done:
		return killedBySignal(p.err)
	default:
		return false
	}
}

// Crashed returns why the process ended, with the end of its log, or nil where it runs or we ended it.
func (p *Process) Crashed() error {
	select {
	case <-p.wanted:
		return nil
	default:
	}
	select {
	case <-p.done:
		return p.Failure(fmt.Errorf("it ended: %w", exitError(p.err)))
	default:
		return nil
	}
}

func exitError(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// Failure wraps what is wrong with this server with the end of its log.
func (p *Process) Failure(err error) error {
	return fmt.Errorf("%s: %w\nthe end of %s:\n%s", p.name, err, p.logPath, LogTail(p.logPath))
}

// ErrEnded is the error of [Process.WaitReady] where the process ends by itself.
var ErrEnded = errors.New("it ended before it was ready")

// WaitReady polls check until it returns nil, the process ends, or the time is up.
func (p *Process) WaitReady(ctx context.Context, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	ticker := time.NewTicker(readyPoll)
	defer ticker.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return p.Failure(fmt.Errorf("%w: %w", ErrEnded, exitError(p.err)))
		case <-ctx.Done():
			return p.Failure(fmt.Errorf("it is not ready: %w: %w", ctx.Err(), err))
		case <-ticker.C:
		}
	}
}

// LogTail returns the last lines of a log.
func LogTail(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err.Error()
	}
	start := max(0, info.Size()-tailBytes)
	tail, err := io.ReadAll(io.NewSectionReader(file, start, tailBytes))
	if err != nil {
		return err.Error()
	}
	if _, rest, found := bytes.Cut(tail, []byte("\n")); found && start > 0 {
		tail = rest
	}
	if len(bytes.TrimSpace(tail)) == 0 {
		return "(empty)"
	}
	return string(bytes.TrimSpace(tail))
}
