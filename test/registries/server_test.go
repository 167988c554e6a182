package registries

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/test/process"
)

// shellSpec is a server that counts its starts in a file and is ready once it has.
func shellSpec(t *testing.T, script string) Spec {
	t.Helper()
	var data string
	return Spec{
		Name: "shell", Version: "1",
		Command: func(dir string) (process.Command, error) {
			data = dir
			return process.Command{Path: "/bin/sh", Args: []string{"-c", "cd data && echo start >> starts; " + script}}, nil
		},
		Ready: func(context.Context) error {
			_, err := os.Stat(filepath.Join(data, "starts"))
			return err
		},
	}
}

func starts(t *testing.T, s *Server) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(s.Dir(), "data", "starts"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(data), "start")
}

func TestServerKeepsItsDataOverARestart(t *testing.T) {
	t.Parallel()
	s, err := Run(t.Context(), shellSpec(t, "echo up; sleep 600"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	s.Kill()
	if err := s.Err(); err != nil {
		t.Errorf("what we killed counts as dead by itself: %v", err)
	}
	for range 2 {
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// The shell writes before it is ready, but the file was there already.
	p := s.current()
	if err := p.WaitReady(t.Context(), func(context.Context) error {
		if starts(t, s) < 3 {
			return errors.New("not started three times yet")
		}
		return nil
	}); err != nil {
		t.Error(err)
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
	spec := shellSpec(t, "echo the reason; exit 3")
	spec.Ready = func(context.Context) error { return errors.New("never") }
	_, err := Run(t.Context(), spec)
	for _, want := range []string{"starting shell 1", "exit status 3", "the reason"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a server that dies at its start: got %v, want %q in it", err, want)
		}
	}

	s, err := Run(t.Context(), shellSpec(t, "read wait < fifo; echo the reason; exit 4"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	<-s.Done() // there is no fifo
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
