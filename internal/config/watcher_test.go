package config

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestReloadAppliesTheNewFileWhole(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	s.Write(minimal + "drain: 3s\n")
	s.Poll(1)
	if got := s.ExpectApplied(); got.Drain != 3*time.Second {
		t.Errorf("applied a drain of %s, want 3s", got.Drain)
	}
	s.ExpectApplies(1)
}

func TestReloadDoesNothingWhereNothingChanged(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	s.Write(minimal + "# only a comment\n")
	s.Poll(3)
	s.ExpectNothingReported()
	s.ExpectApplies(0)
}

func TestReloadRefusesABadFileOnceAndKeepsTheOld(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	s.Write(minimal + "drain: -3s\n")
	s.Poll(1)
	s.ExpectRefused(`drain: Invalid value: "-3s"`)
	s.Poll(3)
	s.ExpectNothingReported()
	s.Write(minimal + "drain: -4s\n")
	s.Poll(1)
	s.ExpectRefused(`"-4s"`)
	s.ExpectApplies(0)

	s.Write(minimal + "drain: 4s\n")
	s.Poll(1)
	if got := s.ExpectApplied(); got.Drain != 4*time.Second {
		t.Errorf("applied a drain of %s, want 4s", got.Drain)
	}
	s.ExpectApplies(1)
}

func TestReloadOfTheOldFileClearsARefusal(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	s.Write("nonsense")
	s.Poll(1)
	s.ExpectRefused("(file)")
	s.Write(minimal)
	s.Poll(1)
	s.ExpectApplied()
	s.ExpectApplies(0)
}

func TestReloadRefusesWhatCannotChange(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	s.Write(strings.Replace(minimal, "prod-1", "prod-2", 1))
	s.Poll(1)
	s.ExpectRefused(`cluster: Invalid value: "prod-2": cannot change`, `"prod-1", or restart`)
	s.Write(minimal + "namespaces: [web]\n")
	s.Poll(1)
	s.ExpectRefused("namespaces: ", "cannot change", "restart")
	s.ExpectApplies(0)
}

func TestReloadSurvivesAMissingFile(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	s.Remove()
	s.Poll(1)
	s.ExpectRefused("reading the configuration", s.path)
	s.Poll(3)
	s.ExpectNothingReported()
	s.Write(minimal + "drain: 5s\n")
	s.Poll(1)
	if got := s.ExpectApplied(); got.Drain != 5*time.Second {
		t.Errorf("applied a drain of %s, want 5s", got.Drain)
	}
}

func TestReloadTriesAgainWhatCouldNotBeApplied(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	s.applyErr = errors.New("registry.tls.caFile: not yet there")
	s.Write(minimal + "drain: 6s\n")
	s.Poll(1)
	s.ExpectRefused("registry.tls.caFile: not yet there")
	s.Poll(1)
	s.ExpectNothingReported()
	s.applyErr = nil
	s.Poll(1)
	if got := s.ExpectApplied(); got.Drain != 6*time.Second {
		t.Errorf("applied a drain of %s, want 6s", got.Drain)
	}
	s.ExpectNothingReported()
	s.ExpectApplies(3)
}

func TestRunReadsAgainUntilTheContextEnds(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	applied := make(chan *Config)
	s.Applied = func(c *Config) { applied <- c }
	s.Interval, s.Current = time.Millisecond, s.current
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	for _, drain := range []time.Duration{time.Second, time.Minute} {
		s.Write(minimal + "drain: " + drain.String() + "\n")
		if got := receive(t, applied); got.Drain != drain {
			t.Errorf("applied a drain of %s, want %s", got.Drain, drain)
		}
	}
	cancel()
	receive(t, done)
}

func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case got := <-from:
		return got
	case <-time.After(30 * time.Second):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

// scenario is a Watcher, polled by hand, on a file that is mounted as kubelet mounts a ConfigMap.
type scenario struct {
	*poll
	t         *testing.T
	dir, path string
	versions  int
	applies   int
	applyErr  error
	reports   []report
}

// report is what a Watcher told: a configuration in force, or why not.
type report struct {
	config *Config
	err    error
}

func newScenario(t *testing.T) *scenario {
	t.Helper()
	dir := t.TempDir()
	s := &scenario{t: t, dir: dir, path: filepath.Join(dir, "config.yaml")}
	must(t, os.Symlink("..data/config.yaml", s.path))
	s.Write(minimal)
	current, err := Load(s.path, limits())
	must(t, err)
	s.poll = &poll{current: current, Watcher: &Watcher{
		Path: s.path, Limits: limits(),
		Apply: func(context.Context, *Config) error {
			s.applies++
			return s.applyErr
		},
		Applied: func(c *Config) { s.reports = append(s.reports, report{config: c}) },
		Refused: func(err error) { s.reports = append(s.reports, report{err: err}) },
	}}
	return s
}

// Poll reads the file so many times.
func (s *scenario) Poll(times int) {
	for range times {
		s.once(s.t.Context())
	}
}

// Write swaps the content as kubelet does: a new directory, and a symbolic link renamed over the old one.
func (s *scenario) Write(content string) {
	s.t.Helper()
	s.versions++
	version := fmt.Sprintf("..%d", s.versions)
	must(s.t, os.Mkdir(filepath.Join(s.dir, version), 0o700))
	must(s.t, os.WriteFile(filepath.Join(s.dir, version, "config.yaml"), []byte(content), 0o600))
	must(s.t, os.Symlink(version, filepath.Join(s.dir, "..tmp")))
	must(s.t, os.Rename(filepath.Join(s.dir, "..tmp"), filepath.Join(s.dir, "..data")))
}

func (s *scenario) Remove() {
	s.t.Helper()
	must(s.t, os.Remove(filepath.Join(s.dir, "..data")))
}

func (s *scenario) ExpectApplied() *Config {
	s.t.Helper()
	r := s.report()
	if r.err != nil {
		s.t.Fatalf("refused: %v; want it applied", r.err)
	}
	return r.config
}

func (s *scenario) ExpectRefused(parts ...string) {
	s.t.Helper()
	r := s.report()
	if r.err == nil {
		s.t.Fatalf("applied %+v; want it refused with %q", r.config, parts)
	}
	for _, part := range parts {
		if !strings.Contains(r.err.Error(), part) {
			s.t.Errorf("refused with %q, which does not say %q", r.err, part)
		}
	}
}

func (s *scenario) ExpectNothingReported() {
	s.t.Helper()
	if len(s.reports) > 0 {
		s.t.Fatalf("reported %+v; want nothing", s.reports)
	}
}

func (s *scenario) ExpectApplies(want int) {
	s.t.Helper()
	if s.applies != want {
		s.t.Errorf("Apply was called %d times, want %d", s.applies, want)
	}
}

// report takes the only report that there is.
func (s *scenario) report() report {
	s.t.Helper()
	if len(s.reports) != 1 {
		s.t.Fatalf("reported %+v; want one", s.reports)
	}
	r := s.reports[0]
	s.reports = nil
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
