// Package audit writes the lines from which a receipt is made. It never holds up a pod: a line that finds no place is counted, and
// the next line of the chain says so.
package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rollcall-dev/rollcall/internal/receipt"
)

// waiting is how many lines may wait for a slow disk: those of a storm of a thousand pods.
const waiting = 8192

var (
	errFull   = errors.New("too many lines wait for the disk")
	errClosed = errors.New("the log is closed already")
)

// Options are what a Log is made with.
type Options struct {
	// Path is the file, and MaxSize how large it may become before it is moved to Path.1, which that replaces.
	Path    string
	MaxSize int64
	// Name is the process's in the chains that it begins, and Version its version.
	Name, Version string
	// Failed is called for lines that are lost, with the reason. It must be safe for concurrent use, and must not block.
	Failed func(lines int, err error)
}

// Log writes the chains of one process. It is safe for concurrent use, and a nil Log writes nothing.
type Log struct {
	Options

	lines chan receipt.Line
	done  chan struct{}

	mu     sync.Mutex
	closed bool
	lost   int
}

// Open begins a chain at the end of the file.
func Open(o Options) (*Log, error) {
	f, torn, err := openFile(o.Path)
	if err != nil {
		return nil, err
	}
	l := &Log{Options: o, lines: make(chan receipt.Line, waiting), done: make(chan struct{})}
	go l.run(&chain{log: l, file: f, torn: torn})
	return l, nil
}

// Check returns why Open would fail, and leaves nothing behind: the manager may run whose file it is.
func Check(path string) error {
	_, err := os.Stat(path)
	if err == nil {
		f, _, err := openFile(path)
		if err == nil {
			err = f.Close()
		}
		return err
	}
	if errors.Is(err, os.ErrNotExist) {
		var f *os.File
		if f, err = os.CreateTemp(filepath.Dir(path), ".rollcall-check-*"); err == nil {
			return errors.Join(f.Close(), os.Remove(f.Name()))
		}
	}
	return fmt.Errorf("opening the audit log: %w", err)
}

// openFile returns the file, and whether it ends within a line.
func openFile(path string) (f *os.File, torn bool, err error) {
	if f, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600); err != nil {
		return nil, false, fmt.Errorf("opening the audit log: %w", err)
	}
	size, err := f.Seek(0, io.SeekEnd)
	last := []byte{'\n'}
	if err == nil && size > 0 {
		_, err = f.ReadAt(last, size-1)
	}
	if err != nil {
		_ = f.Close()
		return nil, false, fmt.Errorf("reading the end of the audit log: %w", err)
	}
	return f, last[0] != '\n', nil
}

// Write never blocks.
func (l *Log) Write(line receipt.Line) {
	if l == nil {
		return
	}
	if line.At.IsZero() {
		line.At = time.Now()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		l.Failed(1, errClosed)
		return
	}
	select {
	case l.lines <- line:
	default:
		l.lost++
		l.Failed(1, errFull)
	}
}

// Close ends the chain where all work has ended, and waits until it is written, or the context ends. What goes on may still write
// lines, which are lost: the chain is one that broke off then.
func (l *Log) Close(ctx context.Context, ended bool) error {
	if l == nil {
		return nil
	}
	if ended {
		l.Write(receipt.Line{Kind: receipt.End})
	}
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.lines)
	}
	l.mu.Unlock()
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("writing the end of the audit log: %w", ctx.Err())
	}
}

// CopyTo writes what the file and the one before it hold. It opens the file first: if it is moved meanwhile, both are one.
func (l *Log) CopyTo(w io.Writer) error {
	var files []io.Reader
	var last os.FileInfo
	for _, path := range []string{l.Path, before(l.Path)} {
		f, err := os.Open(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading the audit log: %w", err)
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return fmt.Errorf("checking the audit log: %w", err)
		}
		if last == nil || !os.SameFile(last, info) {
			files = append([]io.Reader{f}, files...)
		}
		last = info
	}
	if _, err := io.Copy(w, io.MultiReader(files...)); err != nil {
		return fmt.Errorf("reading the audit log: %w", err)
	}
	return nil
}

func before(path string) string { return path + ".1" }

// run is the only one that writes to the file, and that knows the chain's end.
func (l *Log) run(c *chain) {
	defer close(l.done)
	defer func() { _ = c.file.Close() }()
	for line := range l.lines {
		line.Lost = l.takeLost()
		if err := c.write(line); err != nil {
			l.giveUp(line.Lost, err)
		}
	}
}

func (l *Log) takeLost() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := l.lost
	l.lost = 0
	return lost
}

// giveUp counts a line that was lost besides those that were before it.
func (l *Log) giveUp(before int, err error) {
	l.mu.Lock()
	l.lost += before + 1
	l.mu.Unlock()
	l.Failed(1, err)
}

// chain is the end of what is written.
type chain struct {
	log  *Log
	file *os.File
	// torn: the file ends within a line.
	torn   bool
	size   int64
	number int
	name   string
	hash   string
}

// write writes a line, and before it the beginning of the chain where there is none yet, or the file is full or was moved away.
func (c *chain) write(line receipt.Line) error {
	if c.number == 0 || c.size > c.log.MaxSize || c.movedAway() {
		if err := c.begin(); err != nil {
			return err
		}
	}
	return c.append(line)
}

// movedAway reports whether the path has another file than the one that is written, or none.
func (c *chain) movedAway() bool {
	mine, err := c.file.Stat()
	if err != nil {
		return false // writing will say so
	}
	there, err := os.Stat(c.log.Path)
	return errors.Is(err, os.ErrNotExist) || err == nil && !os.SameFile(mine, there)
}

// begin starts a chain: in the file as it is, or in a new one.
func (c *chain) begin() error {
	info, err := c.file.Stat()
	if err != nil {
		return fmt.Errorf("checking the audit log: %w", err)
	}
	c.size = info.Size()
	moved, full := c.movedAway(), c.size > c.log.MaxSize
	if !moved && full {
		if err := os.Rename(c.log.Path, before(c.log.Path)); err != nil {
			return fmt.Errorf("moving the audit log away: %w", err)
		}
	}
	if moved || full {
		next, torn, err := openFile(c.log.Path)
		if err != nil {
			return err
		}
		_ = c.file.Close()
		// A receipt reads the new file behind the old one, and so behind the half of a line that may be at its end.
		c.file, c.size, c.torn = next, 0, c.torn || torn
	}
	now := time.Now()
	c.number, c.hash, c.name = 0, "", c.log.Name+"/"+now.UTC().Format("20060102T150405.000000")
	return c.append(receipt.Line{Kind: receipt.Begin, Version: c.log.Version, At: now, Torn: c.torn, Continues: moved || full})
}

func (c *chain) append(line receipt.Line) error {
	line.Chain, line.Number = c.name, c.number
	written, hash, err := receipt.Seal(c.hash, &line)
	if err != nil {
		return err
	}
	if c.torn {
		written = append([]byte("\n"), written...) // what was written of the line before is no part of this one
	}
	n, err := c.file.Write(written)
	if c.size += int64(n); err != nil {
		c.torn = c.torn || n > 0
		return fmt.Errorf("writing the audit log: %w", err)
	}
	c.number, c.hash, c.torn = c.number+1, hash, false
	return nil
}

// aboutKey is the context's key of what a change rests on.
type aboutKey struct{}

// About has the changes that are made with the context say what they rest on.
func About(ctx context.Context, line *receipt.Line) context.Context {
	return context.WithValue(ctx, aboutKey{}, line)
}

// Subject returns what a change rests on, as far as that is known.
func Subject(ctx context.Context) receipt.Line {
	if line, has := ctx.Value(aboutKey{}).(*receipt.Line); has {
		return *line
	}
	return receipt.Line{}
}
