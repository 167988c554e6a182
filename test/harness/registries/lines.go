package registries

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
)

// Lines is a program that prints what it has, as a line of JSON, whenever that has changed.
type Lines[T any] struct {
	// In is the program's standard input, which closes with this process.
	In io.WriteCloser
	// Ended is closed when the program has ended, and Err says how then.
	Ended chan struct{}
	Err   error

	cmd *exec.Cmd

	mu     sync.Mutex
	latest T
	told   bool
	change chan struct{} // closed at each line, and made anew
}

// Follow starts a program and follows what it prints.
func Follow[T any](cmd *exec.Cmd) (*Lines[T], error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the reader: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the reader: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the reader: %w", err)
	}
	l := &Lines[T]{In: in, cmd: cmd, Ended: make(chan struct{}), change: make(chan struct{})}
	go l.follow(out)
	return l, nil
}

func (l *Lines[T]) follow(out io.Reader) {
	defer close(l.Ended)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var now T
		if json.Unmarshal(lines.Bytes(), &now) != nil {
			continue // something that a library prints
		}
		l.mu.Lock()
		l.latest, l.told = now, true
		close(l.change)
		l.change = make(chan struct{})
		l.mu.Unlock()
	}
	l.Err = l.cmd.Wait()
}

// Await returns once what the program has is right.
func (l *Lines[T]) Await(ctx context.Context, right func(T) bool) error {
	for {
		l.mu.Lock()
		latest, told, change := l.latest, l.told, l.change
		l.mu.Unlock()
		if told && right(latest) {
			return nil
		}
		select {
		case <-change:
		case <-l.Ended:
			return fmt.Errorf("the client has ended; the last that it had was %+v", latest)
		case <-ctx.Done():
			return fmt.Errorf("%w: the client has %+v", ctx.Err(), latest)
		}
	}
}

// Latest returns what the program has.
func (l *Lines[T]) Latest() (T, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.Ended:
		return l.latest, errors.Join(errors.New("the client has ended"), l.Err)
	default:
		return l.latest, nil
	}
}

// Stop ends the program.
func (l *Lines[T]) Stop() {
	_ = l.cmd.Process.Kill()
	<-l.Ended
}
