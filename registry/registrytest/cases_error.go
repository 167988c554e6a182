package registrytest

import (
	"strings"

	"github.com/rollcall-dev/rollcall/registry"
)

// errorCases are about the class of each error.
func errorCases() []testCase {
	return []testCase{
		{
			name:  "UnreachableIsRetryable",
			why:   "a registry that restarts is back in seconds; taken for terminal, every pod would wait much longer",
			needs: []Capability{hasUnreachable},
			apps:  true,
			run: func(w *world) {
				w.expectErrors(w.opened(w.h.Unreachable(w.TB)), false)
			},
		},
		{
			name:  "RefusedIsTerminal",
			why:   "wrong credentials stay wrong: hammering the registry does not help, and a person must be told",
			needs: []Capability{hasRefusing},
			apps:  true,
			run: func(w *world) {
				w.expectErrors(w.opened(w.h.Refusing(w.TB)), true)
			},
		},
		{
			name:  "LoginPageIsNoAcknowledgement",
			why:   "a proxy in between answers 200 with its login page, and OpenKruise continues with a pod that the registry knows nothing of",
			needs: []Capability{hasLoginPage},
			apps:  true,
			run: func(w *world) {
				w.expectErrors(w.opened(w.h.LoginPage(w.TB)), false)
			},
		},
		{
			name:  "WrongCredentialsAreNamed",
			why:   "a person who reads that a token is wrong needs to know which one: the error must have the field of the configuration",
			needs: []Capability{hasWrongCredentials},
			apps:  true,
			run:   wrongCredentialsAreNamed,
		},
		{
			name:  "FailureIsNotRetried",
			why:   "the caller owns the back-off; retries inside a driver multiply a storm and outlive the deadline",
			needs: []Capability{hasFailing},
			apps:  true,
			run:   failureIsNotRetried,
		},
	}
}

// expectErrors expects an error of the class from every method.
func (w *world) expectErrors(d registry.Registry, terminal bool) {
	w.Helper()
	for _, op := range operations(d) {
		w.expectError(op, d, terminal)
	}
}

func (w *world) expectError(op operation, d registry.Registry, terminal bool) error {
	w.Helper()
	err := w.call(op, d, w.pod(1))
	switch {
	case err == nil:
		w.Fatalf("%s: got success, want an error", op)
	case (registry.CodeOf(err) == registry.CodeTerminal) != terminal:
		w.Fatalf("%s: got an error whose IsTerminal is %t, want %t: %v", op, !terminal, terminal, err)
	case err.Error() == "":
		w.Fatalf("%s: the error has no text", op)
	case registry.CodeOf(err) == registry.CodeNotRegistered:
		w.Fatalf("%s: got registry.NotRegistered, although the registry did not answer that: %v", op, err)
	}
	return err
}

func wrongCredentialsAreNamed(w *world) {
	d := w.opened(w.h.WrongCredentials(w.TB))
	for _, op := range operations(d) {
		err := w.expectError(op, d, true)
		field, _ := registry.FieldOf(err)
		if !strings.HasPrefix(field, "auth.") && !strings.HasPrefix(field, "tls.") {
			w.Fatalf("%s: the error has field %q, want one of auth or tls: %v", op, field, err)
		}
	}
}

func failureIsNotRetried(w *world) {
	d, attempts := w.h.Failing(w.TB)
	w.opened(d)
	w.expectError(operations(d)[0], d, false) // the first call may ask what the registry is, such as for its servers
	for _, op := range operations(d) {
		before := attempts()
		w.expectError(op, d, false)
		if got := attempts() - before; got != 1 {
			w.Fatalf("%s: the registry saw %d attempts for one call, want 1", op, got)
		}
	}
}
