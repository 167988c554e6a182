package registrytest

import (
	"github.com/rollcall-dev/rollcall/registry"
)

// errorCases are about which errors are which.
func errorCases() []Case {
	return []Case{
		{
			Name:  "UnreachableIsRetryable",
			Why:   "a registry that restarts is back in seconds; taken for terminal, every pod would wait much longer",
			Needs: []Capability{Unreachable},
			run: func(w *world) {
				w.expectErrors(w.opened(w.h.Unreachable(w.T)), false)
			},
		},
		{
			Name:  "RefusedIsTerminal",
			Why:   "wrong credentials stay wrong: hammering the registry does not help, a person has to be told",
			Needs: []Capability{Refusing},
			run: func(w *world) {
				w.expectErrors(w.opened(w.h.Refusing(w.T)), true)
			},
		},
		{
			Name:  "FailureIsNotRetried",
			Why:   "the caller owns the back-off; retries inside a driver multiply a storm and outlive the deadline",
			Needs: []Capability{Failing},
			run:   failureIsNotRetried,
		},
	}
}

// expectErrors wants an error of the class from every method, and not that of a context.
func (w *world) expectErrors(d registry.Registry, terminal bool) {
	w.Helper()
	for _, op := range operations(d) {
		w.expectError(op, d, terminal)
	}
}

func (w *world) expectError(op Op, d registry.Registry, terminal bool) {
	w.Helper()
	err := w.call(op, d, w.pod(1))
	switch {
	case err == nil:
		w.Fatalf("%s: got success, want an error\nwhy: %s", op, w.why)
	case registry.IsTerminal(err) != terminal:
		w.Fatalf("%s: got an error that is terminal: %t, want %t: %v\nwhy: %s", op, !terminal, terminal, err, w.why)
	case err.Error() == "":
		w.Fatalf("%s: the error says nothing\nwhy: %s", op, w.why)
	}
}

func failureIsNotRetried(w *world) {
	d, attempts := w.h.Failing(w.T)
	w.opened(d)
	for _, op := range operations(d) {
		before := attempts()
		w.expectError(op, d, false)
		if got := attempts() - before; got != 1 {
			w.Fatalf("%s: the registry saw %d attempts for one call, want 1\nwhy: %s", op, got, w.why)
		}
	}
}
