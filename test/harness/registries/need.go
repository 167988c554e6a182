package registries

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
)

// Attributes of a test, as `go test -json` shows them. The closing table is made of them.
const (
	// AttrServer is the name and version of a server that the test used.
	AttrServer = "registry-server"
	// AttrMissing tells why a server that the test needs can't be had on this machine.
	AttrMissing = "registry-missing"
)

// Missing marks the error of a Get or Start for which the reason is this machine: what the server runs on is not there, or it can't be
// downloaded. A server that can't be built is an error like any other. Missing(nil) is nil.
func Missing(err error) error {
	if err == nil {
		return nil
	}
	return &missingError{err: err}
}

// IsMissing reports whether err, or an error that it wraps, was marked by [Missing].
func IsMissing(err error) bool {
	var m *missingError
	return errors.As(err, &m)
}

type missingError struct{ err error }

func (e *missingError) Error() string { return e.err.Error() }
func (e *missingError) Unwrap() error { return e.err }

// Required reports whether a server that can't be had is a failure: on CI, or where ROLLCALL_REGISTRIES_REQUIRED says so.
func Required() bool {
	return os.Getenv("CI") == "true" || os.Getenv("ROLLCALL_REGISTRIES_REQUIRED") == "1"
}

// Running is a server of any registry; one that embeds *[Server] is one.
type Running interface {
	Name() string
	Version() string
	Stop()
	Err() error
	Logs() string
}

// Use starts a server for one test, which stops it at its end. Where it can't be had the test is skipped, or fails if it
// is [Required].
func Use[S Running](t *testing.T, start func(context.Context) (S, error)) S {
	t.Helper()
	s, err := start(t.Context())
	Check(t, err)
	t.Cleanup(s.Stop)
	watch(t, s)
	return s
}

// With is a start of a server with options, for [Use] and [Share].
func With[O any, S Running](start func(context.Context, O) (S, error), options O) func(context.Context) (S, error) {
	return func(ctx context.Context) (S, error) { return start(ctx, options) }
}

// Shared is a server that all tests of a package have in common.
type Shared[S Running] struct {
	start   func(context.Context) (S, error)
	once    sync.Once
	server  S
	err     error
	started bool
}

// Share returns a server that the first test that uses it starts. TestMain stops it with [Main].
func Share[S Running](start func(context.Context) (S, error)) *Shared[S] {
	return &Shared[S]{start: start}
}

// Use returns the server. Where it can't be had the test is skipped, or fails if it is [Required].
func (s *Shared[S]) Use(t *testing.T) S {
	t.Helper()
	s.once.Do(func() {
		// Not the test's context: the start is for all of them.
		s.server, s.err = s.start(context.Background())
		s.started = s.err == nil
	})
	Check(t, s.err)
	watch(t, s.server)
	return s.server
}

// Stop stops the server if a test has started it.
func (s *Shared[S]) Stop() {
	if s.started {
		s.server.Stop()
	}
}

// Main is a TestMain that stops what the tests shared: func TestMain(m *testing.M) { registries.Main(m, shared) }.
func Main(m *testing.M, shared ...interface{ Stop() }) {
	code := m.Run()
	for _, s := range shared {
		s.Stop()
	}
	os.Exit(code)
}

// Check skips the test where a server can't be had, or fails it if that is [Required], or for another error.
func Check(t *testing.T, err error) {
	t.Helper()
	switch {
	case err == nil:
		return
	case !IsMissing(err):
		t.Fatal(err)
	}
	t.Attr(AttrMissing, strings.Join(strings.Fields(err.Error()), " "))
	if Required() {
		t.Fatalf("this server is required and can't be had: %v", err)
	}
	t.Skipf("no server on this machine: %v", err)
}

// watch tells which server the test uses, and what it says where the test fails.
func watch(t *testing.T, s Running) {
	t.Helper()
	t.Attr(AttrServer, s.Name()+" "+s.Version())
	t.Cleanup(func() {
		if err := s.Err(); err != nil {
			t.Errorf("the server died: %v", err)
		} else if t.Failed() {
			t.Logf("the end of the log of %s:\n%s", s.Name(), s.Logs())
		}
	})
}
