package config

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
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
	s.ExpectRefused(`cluster: Invalid value: "prod-2": can't change`, `"prod-1", or restart`)
	s.Write(minimal + "namespaces: [web]\n")
	s.Poll(1)
	s.ExpectRefused("namespaces: ", "can't change", "restart")
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

func TestRotationOpensTheRegistryAnew(t *testing.T) {
	t.Parallel()
	s := newRotation(t)
	s.old.Swap("token", "second")
	s.Poll(3)
	s.ExpectRotated("old")
	s.ExpectNothingReported()
	s.old.Swap("token", "third")
	s.new.Swap("token", "third")
	s.Poll(3)
	s.ExpectRotated("new,old")
	s.ExpectApplies(2)
}

func TestRotationSeesEveryFileOfASection(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"ca", "cert", "key", "token", "password"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			s := newRotation(t)
			s.old.Swap(file, "second")
			s.Poll(1)
			s.ExpectRotated("old")
		})
	}
}

func TestRotationTellsAnEmptyFileFromAMissingOne(t *testing.T) {
	t.Parallel()
	s := newRotation(t)
	s.old.Swap("ca", "")
	s.Poll(3)
	s.ExpectRotated("old")
}

func TestRotationToTheSameContentIsNone(t *testing.T) {
	t.Parallel()
	s := newRotation(t)
	s.old.Swap("token", "first")
	s.old.Swap("nobody's", "first")
	s.Poll(3)
	s.ExpectApplies(0)
	s.ExpectNothingReported()
}

func TestRotationBeforeTheFirstReadIsSeen(t *testing.T) {
	t.Parallel()
	s := newRotation(t)
	current, err := Load(s.path, limits())
	must(t, err)
	s.old.Swap("token", "second")
	s.Current = current
	s.poll = s.start()
	s.Poll(1)
	s.ExpectRotated("old")
}

func TestRotationWithANewConfigurationIsOneApply(t *testing.T) {
	t.Parallel()
	s := newRotation(t)
	s.old.Swap("token", "second")
	s.Write(s.two + "drain: 3s\n")
	s.Poll(3)
	s.ExpectRotated("old")
	if got := s.ExpectApplied(); got.Drain != 3*time.Second {
		t.Errorf("applied a drain of %s, want 3s", got.Drain)
	}
	s.ExpectApplies(1)
}

func TestARegistryWithAnotherSectionIsNotRotated(t *testing.T) {
	t.Parallel()
	s := newRotation(t)
	s.old.Swap("token", "second")
	s.new.Swap("token", "second")
	s.Write(strings.Replace(s.two, "old: {driver: http", "old: {driver: memory", 1))
	s.Poll(3)
	s.ExpectRotated("new")
	s.ExpectApplied()
	s.ExpectApplies(1)
}

func TestAFileThatIsMissingIsWaitedFor(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*mount){
		"the Secret is gone":     func(m *mount) { m.Remove() },
		"the key is gone":        func(m *mount) { m.Drop("token") },
		"the file is empty yet":  func(m *mount) { m.Swap("token", "") },
		"it is another's secret": func(m *mount) { m.Swap("token", "s3cret of two words") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newRotation(t)
			spoil(s.old)
			s.Poll(1)
			s.ExpectRefused("auth.tokenFile")
			s.Poll(3)
			s.ExpectNothingReported()
			s.ExpectApplies(4)
			s.old.Swap("token", "second")
			s.Poll(3)
			s.ExpectRotated("old")
			s.ExpectApplied()
			s.ExpectApplies(5)
		})
	}
}

func TestAFileThatComesBackAsItWasClearsTheRefusal(t *testing.T) {
	t.Parallel()
	s := newRotation(t)
	s.old.Remove()
	s.Poll(1)
	s.ExpectRefused("auth.tokenFile")
	s.old.Swap("token", "first")
	s.Poll(3)
	s.ExpectApplied()
	s.ExpectRotated()
	s.ExpectApplies(1)
}

func TestARefusedConfigurationDoesNotStopTheRotation(t *testing.T) {
	t.Parallel()
	s := newRotation(t)
	s.Write(s.two + "drain: -3s\n")
	s.Poll(1)
	s.ExpectRefused("drain: Invalid")
	s.old.Swap("token", "second")
	s.Poll(3)
	s.ExpectRotated("old")
	s.ExpectNothingReported()
	s.old.Remove()
	s.Poll(3)
	s.ExpectRefused("drain: Invalid", "auth.tokenFile")
}

func TestAConfigurationThatCannotBeAppliedDoesNotStopTheRotation(t *testing.T) {
	t.Parallel()
	s := newRotation(t)
	s.Write(strings.Replace(s.two, "registries:", "registries:\n  other: {driver: http, auth: {tokenFile: /nonexistent}}", 1))
	s.Poll(1)
	s.ExpectRefused("auth.tokenFile", "/nonexistent")
	s.old.Swap("token", "second")
	s.Poll(3)
	s.ExpectRotated("old")
	s.ExpectNothingReported()
}

func TestOneBrokenFileDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	s := newRotation(t)
	s.old.Remove()
	s.new.Swap("token", "second")
	s.Poll(3)
	s.ExpectRotated("new")
	s.ExpectRefused("auth.tokenFile")
	s.old.Swap("token", "second")
	s.Poll(3)
	s.ExpectRotated("old")
	s.ExpectApplied()
}

func TestRunReadsAgainUntilTheContextEnds(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	applied := make(chan *Config)
	s.Applied = func(c *Config) { applied <- c }
	s.Interval = time.Millisecond
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
	t        *testing.T
	mount    *mount
	path     string
	applies  int
	applyErr error
	rotated  []string
	reports  []report
}

// report is what a Watcher told: a configuration in force, or why not.
type report struct {
	config *Config
	err    error
}

func newScenario(t *testing.T) *scenario {
	t.Helper()
	m := newMount(t, "config.yaml")
	s := &scenario{t: t, mount: m, path: m.Path("config.yaml")}
	s.Write(minimal)
	s.Load()
	return s
}

// Load puts the file in force as at start-up.
func (s *scenario) Load() {
	s.t.Helper()
	current, err := Load(s.path, limits())
	must(s.t, err)
	s.poll = (&Watcher{
		Path: s.path, Limits: limits(), Current: current,
		Apply:   s.apply,
		Applied: func(c *Config) { s.reports = append(s.reports, report{config: c}) },
		Refused: func(err error) { s.reports = append(s.reports, report{err: err}) },
	}).start()
}

// apply opens what a manager would: it reads the tokens of the registries that are new or rotated.
func (s *scenario) apply(_ context.Context, next *Config, rotated []string) error {
	s.applies++
	if s.applyErr != nil {
		return s.applyErr
	}
	for name := range next.Registries {
		_, known := s.current.Registries[name]
		if known && !slices.Contains(rotated, name) {
			continue
		}
		token := registry.Auth{TokenFile: next.Driver(name).Auth.TokenFile}
		if _, err := driverkit.ReadCredentials(token, driverkit.Token); err != nil {
			return err
		}
	}
	if len(rotated) > 0 {
		s.rotated = append(s.rotated, strings.Join(rotated, ","))
	}
	return nil
}

// Poll reads the file so many times.
func (s *scenario) Poll(times int) {
	for range times {
		s.once(s.t.Context())
	}
}

func (s *scenario) Write(content string) {
	s.t.Helper()
	s.mount.Swap("config.yaml", content)
}

func (s *scenario) Remove() {
	s.t.Helper()
	s.mount.Remove()
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
	if strings.Contains(r.err.Error(), "s3cret") {
		s.t.Errorf("refused with %q, which gives a secret away", r.err)
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

// ExpectRotated expects these calls since it was last called, each with the names of the registries to open anew.
func (s *scenario) ExpectRotated(calls ...string) {
	s.t.Helper()
	if !slices.Equal(s.rotated, calls) {
		s.t.Errorf("opened anew %q, want %q", s.rotated, calls)
	}
	s.rotated = nil
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

// rotation is a scenario with two registries, whose files are in a Secret each.
type rotation struct {
	*scenario
	two      string
	old, new *mount
}

func newRotation(t *testing.T) *rotation {
	t.Helper()
	files := []string{"ca", "cert", "key", "token", "password"}
	s := &rotation{scenario: newScenario(t), old: newMount(t, files...), new: newMount(t, files...)}
	section := func(m *mount) string {
		return fmt.Sprintf("{driver: http, tls: {caFile: %s, certFile: %s, keyFile: %s}, auth: {tokenFile: %s, passwordFile: %s}}",
			m.Path("ca"), m.Path("cert"), m.Path("key"), m.Path("token"), m.Path("password"))
	}
	s.two = "cluster: prod-1\nhooks: {owned: [example.com/*]}\nregistries:\n  old: " + section(s.old) +
		"\n  new: " + section(s.new) + "\ndefaultRegistries: [old]\n"
	s.old.Swap("token", "first")
	s.new.Swap("token", "first")
	s.Write(s.two)
	s.Load()
	return s
}

// mount is a directory as kubelet mounts a ConfigMap or a Secret: its files are symbolic links into ..data, which is one
// itself.
type mount struct {
	t        *testing.T
	dir      string
	versions int
	files    map[string]string
}

func newMount(t *testing.T, files ...string) *mount {
	t.Helper()
	m := &mount{t: t, dir: t.TempDir(), files: map[string]string{}}
	for _, file := range files {
		must(t, os.Symlink(filepath.Join("..data", file), m.Path(file)))
	}
	return m
}

func (m *mount) Path(file string) string { return filepath.Join(m.dir, file) }

// Swap changes one file as kubelet does: a new directory with all of them, and a symbolic link renamed over the old one.
func (m *mount) Swap(file, content string) {
	m.t.Helper()
	m.files[file] = content
	m.swap()
}

// Drop takes one file away.
func (m *mount) Drop(file string) {
	m.t.Helper()
	delete(m.files, file)
	m.swap()
}

func (m *mount) swap() {
	m.t.Helper()
	m.versions++
	version := fmt.Sprintf("..%d", m.versions)
	must(m.t, os.Mkdir(m.Path(version), 0o700))
	for file, content := range m.files {
		must(m.t, os.WriteFile(filepath.Join(m.dir, version, file), []byte(content), 0o600))
	}
	must(m.t, os.Symlink(version, m.Path("..tmp")))
	must(m.t, os.Rename(m.Path("..tmp"), m.Path("..data")))
}

func (m *mount) Remove() {
	m.t.Helper()
	must(m.t, os.Remove(m.Path("..data")))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAFileIsRotatedWhileMaxInFlightChanges(t *testing.T) {
	t.Parallel()
	parse := func(maxInFlight int) *Config {
		c, err := Parse(fmt.Appendf(nil, "%s\nregistry: {driver: memory, maxInFlight: %d}\n",
			strings.Replace(minimal, "registry:\n  driver: memory\n", "", 1), maxInFlight), limits())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	now, then := map[string]fingerprint{"default": {1}}, map[string]fingerprint{"default": {2}}
	if got := parse(7).rotated(parse(8), now, then); !slices.Equal(got, []string{"default"}) {
		t.Errorf("rotated are %q: the registry stays in use, and nobody would read its files again", got)
	}
}
