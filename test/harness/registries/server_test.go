package registries

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/process"
)

// shellSpec is a server that adds to a file with each start, and is ready once the file has as many lines as it has begun
// starts.
func shellSpec(t *testing.T, script string, begun *atomic.Int64) Spec {
	t.Helper()
	begun.Add(1)
	var data string
	return Spec{
		Name: "shell", Version: "1",
		Command: func(dir string) (process.Command, error) {
			data = dir
			return process.Command{Path: "/bin/sh", Args: []string{"-c", "cd data && echo start >> starts; " + script}}, nil
		},
		Ready: func(context.Context) error {
			lines, err := os.ReadFile(filepath.Join(data, "starts"))
			if err == nil && strings.Count(string(lines), "start") < int(begun.Load()) {
				err = errors.New("not started yet")
			}
			return err
		},
	}
}

func starts(t *testing.T, s *Server) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(s.Dir(), "data", "starts"))
	expect.NoError(t, err)
	return strings.Count(string(data), "start")
}

func TestServerKeepsItsDataOverARestart(t *testing.T) {
	t.Parallel()
	var begun atomic.Int64
	s, err := Run(t.Context(), shellSpec(t, "echo up; sleep 600", &begun))
	expect.NoError(t, err)
	defer s.Stop()
	s.Kill()
	if err := s.Err(); err != nil {
		t.Errorf("what we killed counts as dead by itself: %v", err)
	}
	for range 2 {
		begun.Add(1)
		expect.NoError(t, s.Restart(t.Context()))
	}
	if n := starts(t, s); n != 3 {
		t.Errorf("after two restarts the data tells of %d starts, want 3", n)
	}
	s.Stop()
	s.Stop()
	if _, err := os.Stat(s.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
	if err := s.Restart(t.Context()); err == nil || !strings.Contains(err.Error(), "stopped") {
		t.Errorf("a restart after the stop: got %v", err)
	}
}

func TestServerThatDies(t *testing.T) {
	t.Parallel()
	spec := shellSpec(t, "echo the reason; exit 3", new(atomic.Int64))
	spec.Ready = func(context.Context) error { return errors.New("never") }
	_, err := Run(t.Context(), spec)
	for _, want := range []string{"starting shell 1", "exit status 3", "the reason"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a server that dies at its start: got %v, want %q in it", err, want)
		}
	}

	s, err := Run(t.Context(), shellSpec(t, "until [ -e die ]; do sleep 0.05; done; echo the reason; exit 4", new(atomic.Int64)))
	expect.NoError(t, err)
	defer s.Stop()
	expect.NoError(t, os.WriteFile(filepath.Join(s.Dir(), "data", "die"), nil, 0o600))
	<-s.Done()
	err = s.Err()
	if err == nil || !strings.Contains(err.Error(), "exit status 4") || !strings.Contains(s.Logs(), "the reason") {
		t.Errorf("a server that dies later: got %v and the log %q", err, s.Logs())
	}
}

func TestMissing(t *testing.T) {
	t.Parallel()
	if Missing(nil) != nil || IsMissing(nil) || IsMissing(errors.New("other")) {
		t.Error("what is not missing counts as missing")
	}
	err := Missing(errors.New("no Java"))
	if !IsMissing(errors.Join(errors.New("starting"), err)) || err.Error() != "no Java" {
		t.Errorf("%v does not count as missing", err)
	}
}
