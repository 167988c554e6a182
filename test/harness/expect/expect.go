// Package expect has what every test asks for.
package expect

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rollcall-dev/rollcall/registry"
)

const (
	// patience bounds each wait. Nothing takes that long on a machine that is not overloaded.
	patience = 5 * time.Minute
	glance   = 20 * time.Millisecond
)

// T is a test, or a case of a suite that runs in one.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// NoError ends the test where there is an error.
func NoError(t T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// Soon waits until nothing is wrong, and ends the test where something still is after five minutes. What told returns stands
// in the failure.
func Soon(t T, what string, wrong func() error, told ...func() string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for err := wrong(); err != nil; err = wrong() {
		if time.Now().After(deadline) {
			var text strings.Builder
			for _, tell := range told {
				text.WriteString("\n" + tell())
			}
			t.Fatalf("waited %s for %s: %v%s", patience, what, err, text.String())
		}
		<-time.After(glance)
	}
}

// Becomes is Soon for what is true or not.
func Becomes(t T, what string, is func() bool, told ...func() string) {
	t.Helper()
	Soon(t, what, func() error {
		if !is() {
			return errors.New("it is not so")
		}
		return nil
	}, told...)
}

// Error expects an error with these words in it, or none where they are empty.
func Error(t T, reason string, err error, words string) {
	t.Helper()
	switch {
	case words == "" && err != nil:
		t.Errorf("%s: unexpected error: %v", reason, err)
	case words != "" && (err == nil || !strings.Contains(err.Error(), words)):
		t.Errorf("%s: got error %v, want one with %q", reason, err, words)
	}
}

// Equal expects what is wanted and no other, and shows where the two differ.
func Equal[V any](t T, want, got V, what string, args ...any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", fmt.Sprintf(what, args...), diff)
	}
}

// Code expects an error of a class, or one of none where that is empty.
func Code(t T, want registry.Code, err error, what string, args ...any) {
	t.Helper()
	if got := registry.CodeOf(err); got != want {
		t.Errorf("%s: got error %v of class %q, want one of %q", fmt.Sprintf(what, args...), err, got, want)
	}
}

// Each plays every row of a table in a test of its own, all of them in parallel.
func Each[Row any](t *testing.T, rows map[string]Row, play func(t *testing.T, row Row)) {
	t.Helper()
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, row)
		})
	}
}
