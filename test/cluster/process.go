package cluster

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
	// readyTimeout bounds the start of one server on a slow machine.
	readyTimeout = 2 * time.Minute
	// tailBytes is how much of a log goes into an error.
	tailBytes = 3 << 10
)

var errLocked = errors.New("locked by another process")

func parentDir(dir string) string { return filepath.Dir(dir) }

// launcher starts processes from one thread that lives as long as they shall: the kernel's parent-death signal follows the
// thread that forked, not the process, and Go ends threads as it likes.
type launcher struct {
	requests chan func()
	ended    chan struct{}
}

func newLauncher() *launcher {
	l := &launcher{requests: make(chan func()), ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		// Never unlocked: the thread ends with this goroutine.
		runtime.LockOSThread()
		for request := range l.requests {
			request()
		}
	}()
	return l
}

// start starts the command. It must not be called after close.
func (l *launcher) start(cmd *exec.Cmd) error {
	result := make(chan error, 1)
	l.requests <- func() { result <- cmd.Start() }
	return <-result
}

// close ends the thread, and with it whatever it started that still runs.
func (l *launcher) close() {
	close(l.requests)
	<-l.ended
}

// command says how to run a server.
type command struct {
	name string
	path string
	args []string
	env  []string
}

// process is a running server.
type process struct {
	name    string
	logPath string
	pid     int
	done    chan struct{} // closed when it has ended
	err     error         // how it ended; read after done
	stopped sync.Once
	// wanted is closed before we kill it, to tell that from a crash.
	wanted chan struct{}
}

// startProcess runs a server in dir, with its output appended to <name>.log there.
func startProcess(l *launcher, dir string, c command) (*process, error) {
	p := &process{
		name: c.name, logPath: filepath.Join(dir, c.name+".log"),
		done: make(chan struct{}), wanted: make(chan struct{}),
	}
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", c.name, err)
	}
	defer log.Close()
	// No context: the process outlives the call that starts it, and kill ends it.
	cmd := exec.Command(c.path, c.args...) //nolint:noctx // see above
	cmd.Dir = dir
	// Nothing of the caller's environment gets in: a proxy, a KUBECONFIG or a server's own variable would change what runs.
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + os.TempDir()}, c.env...)
	cmd.Stdout, cmd.Stderr = log, log
	dieWithParent(cmd)
	if err := l.start(cmd); err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.name, err)
	}
	p.pid = cmd.Process.Pid
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// kill ends the process and its group and waits for its end. It can be called more than once.
func (p *process) kill() {
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

// crashed returns why the process ended, with the end of its log, or nil where it runs or we ended it.
func (p *process) crashed() error {
	select {
	case <-p.wanted:
		return nil
	default:
	}
	select {
	case <-p.done:
		return p.failure(fmt.Errorf("it ended: %w", exitError(p.err)))
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

// failure wraps what is wrong with this server with the end of its log.
func (p *process) failure(err error) error {
	return fmt.Errorf("%s: %w\nthe end of %s:\n%s", p.name, err, p.logPath, logTail(p.logPath))
}

// waitReady polls check until it returns nil, the process ends, or the time is up.
func (p *process) waitReady(ctx context.Context, check func(context.Context) error) error {
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
			return p.failure(fmt.Errorf("it ended before it was ready: %w", exitError(p.err)))
		case <-ctx.Done():
			return p.failure(fmt.Errorf("it is not ready: %w: %w", ctx.Err(), err))
		case <-ticker.C:
		}
	}
}

// logTail returns the last lines of a log.
func logTail(path string) string {
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
