package registrytest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

// expect compares the whole of the case's cluster with what it should be. If the registry has no out-of-service
// state, what should be out of rotation should be absent; what the registry has no place for should be left out.
func (w *world) expect(want ...registry.Entry) {
	w.Helper()
	w.expectOf(w.cluster, want...)
}

func (w *world) expectOf(cluster string, want ...registry.Entry) {
	w.Helper()
	want = w.h.possible(want)
	diff := w.settled(func(got []registry.Entry) string { return difference(got, want) }, cluster)
	if diff != "" {
		w.Fatalf("the registry holds the wrong entries of cluster %q\n%s", cluster, diff)
	}
}

// expectNotInService allows out of rotation as well as absent.
func (w *world) expectNotInService(in registry.Instance) {
	w.Helper()
	wrong := w.settled(func(got []registry.Entry) string {
		for _, e := range got {
			if sameIdentity(e.Instance, in) && e.State != registry.OutOfService {
				return showEntry(e)
			}
		}
		return ""
	}, w.cluster)
	if wrong != "" {
		w.Fatalf("the registry holds %s, want it out of rotation or absent", wrong)
	}
}

// isInService reports whether the registry has the instance in rotation now.
func (w *world) isInService(in registry.Instance) bool {
	w.Helper()
	read, _ := w.reader()
	return slices.ContainsFunc(w.read(read, w.cluster), func(e registry.Entry) bool {
		return sameIdentity(e.Instance, in) && e.State == registry.InService
	})
}

// possible is what entries look like in a registry with these lacks.
func (h Harness) possible(entries []registry.Entry) []registry.Entry {
	var possible []registry.Entry
	for _, e := range entries {
		if e.State != registry.InService && h.lacks(OutOfServiceState) {
			continue
		}
		if h.lacks(Weight) {
			e.Weight = 0
		}
		if h.lacks(Zone) {
			e.Zone = ""
		}
		if h.lacks(Tags) {
			e.Tags = nil
		}
		if h.lacks(Metadata) {
			e.Metadata = nil
		}
		possible = append(possible, e)
	}
	return possible
}

// settled reads the registry until nothing is wrong any more, but no longer than its answers may lag, and returns what
// is still wrong. If the answers don't lag, it reads once.
func (w *world) settled(wrong func([]registry.Entry) string, cluster string) string {
	w.Helper()
	read, lag := w.reader()
	return w.until(lag, func() string { return wrong(w.read(read, cluster)) })
}

// until checks until nothing is wrong, for somewhat longer than the lag, and returns what is wrong. With no lag it checks
// once.
func (w *world) until(lag time.Duration, look func() string) string {
	w.Helper()
	if lag <= 0 {
		return look()
	}
	for deadline := time.Now().Add(lag + w.h.patience().list); ; w.pause() {
		if wrong := look(); wrong == "" || time.Now().After(deadline) {
			return wrong
		}
	}
}

// pause waits a moment.
func (w *world) pause() {
	w.Helper()
	if err := sleep(w.Context(), pause); err != nil {
		w.Fatalf("the test ended while the case was waiting: %v", err)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// reader returns how the registry is read, and how much the answers may lag.
func (w *world) reader() (listing, time.Duration) {
	w.Helper()
	if w.h.Truth != nil {
		return w.h.Truth, w.loading(0)
	}
	d := w.newProcess()
	return d.(registry.Lister).List, w.loading(staleness(d))
}

// loading is how much the answers may lag. A registry that was restarted may answer before it has loaded all its data.
func (w *world) loading(lag time.Duration) time.Duration {
	if !w.restarted {
		return lag
	}
	return max(lag, pause)
}

type listing func(ctx context.Context, cluster string) ([]registry.Entry, error)

// read returns Rollcall's own entries.
func (w *world) read(read listing, cluster string) []registry.Entry {
	w.Helper()
	return slices.DeleteFunc(w.readAll(read, cluster), isForeign)
}

func (w *world) readAll(read listing, cluster string) []registry.Entry {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), callTimeout)
	defer cancel()
	entries, err := read(ctx, cluster)
	w.keepsSecrets(err)
	if err != nil {
		w.Fatalf("reading cluster %q: got error %q, want success", cluster, err)
	}
	return entries
}

func isForeign(e registry.Entry) bool { return e.State == registry.Foreign }

// staleness is how much the driver's lists may lag.
func staleness(d registry.Registry) time.Duration {
	return registry.TraitsOf(d).Staleness
}

// difference returns which entries are missing and which should not be there, "" if none. An entry that is there twice
// counts twice.
func difference(got, want []registry.Entry) string {
	surplus := map[string]int{}
	for _, e := range got {
		surplus[showEntry(e)]++
	}
	for _, e := range want {
		surplus[showEntry(e)]--
	}
	var lines []string
	for e, n := range surplus {
		switch {
		case n > 0:
			lines = append(lines, fmt.Sprintf("  %dx not wanted: %s\n", n, e))
		case n < 0:
			lines = append(lines, fmt.Sprintf("  %dx missing:    %s\n", -n, e))
		}
	}
	slices.Sort(lines)
	if more := len(lines) - maxLines; more > 0 {
		lines = append(lines[:maxLines], fmt.Sprintf("  and %d more\n", more))
	}
	return strings.Join(lines, "")
}

func showEntry(e registry.Entry) string {
	return fmt.Sprintf("%s, %s", e.State, show(e.Instance))
}

func sameIdentity(a, b registry.Instance) bool {
	return a.Place == b.Place && a.Service == b.Service && a.Endpoint() == b.Endpoint()
}
