package registrytest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rollcall-dev/rollcall/registry"
)

// Spent is what a driver has sent and got so far.
type Spent struct {
	// Bytes are those of both ways.
	Bytes int64
	// Requests are how often it has sent something after an answer, or as the first.
	Requests int64
}

func costCases() []testCase {
	return needing([]testCase{{
		name: "CostDoesNotGrow",
		why: "after a cut many pods are read back, or taken out and put back, at the same time: if each call costs more in a large service, " +
			"all of them time out, and so do the calls of other services",
		run: costDoesNotGrow,
	}}, hasMetered)
}

const (
	fewOthers, manyOthers = 10, 200
	// measured is how many pods each call is made for, which share the cost of a question about the service; steered is of how many the
	// application is steered.
	measured, steered = 32, 3
	// grown is how many times as much a call may cost, and noise what may be sent in between: pings, and what comes once.
	grown        = 1.5
	noise        = 2 << 10
	noisyRequest = 2
	costTries    = 3
)

// costDoesNotGrow makes calls in a service with few other instances, and in one with many. How many calls share a question is up to the
// scheduler, so what grew once is measured again: what grows with the service always does.
func costDoesNotGrow(w *world) {
	var grew []string
	for try := range costTries {
		if grew = w.growth(try); len(grew) == 0 {
			return
		}
	}
	w.Fatalf("%s\nwant at most %.1f times as much: ask for the one instance, and what is about the service only for what has changed",
		strings.Join(grew, "\n"), grown)
}

func (w *world) growth(try int) (grew []string) {
	w.Helper()
	few, many := w.costs(fewOthers, try), w.costs(manyOthers, try)
	for op, cost := range many {
		bytes, requests := grown*float64(few[op].Bytes)+noise, grown*float64(few[op].Requests)+noisyRequest
		if float64(cost.Bytes) > bytes || float64(cost.Requests) > requests {
			grew = append(grew, fmt.Sprintf("%s: %d bytes and %d requests with %d other instances in the service, %d bytes and %d requests with %d",
				op, few[op].Bytes, few[op].Requests, fewOthers, cost.Bytes, cost.Requests, manyOthers))
		}
	}
	return grew
}

// costs returns what calls cost with so many others in their service. The driver has listed the registry once, as each leader has.
func (w *world) costs(others, try int) map[operation]Spent {
	w.Helper()
	service := fmt.Sprintf("%s-%d-%d", w.service, others, try)
	var all []registry.Instance
	for _, in := range w.pods(others + measured) {
		in.Service, in.UID = service, in.UID+service
		all = append(all, in)
	}
	mine := all[others:]
	w.fill(all[:others])
	d, spent := w.h.Metered(w.TB, w.cluster)
	w.opened(d)
	if lister, lists := d.(registry.Lister); lists {
		w.read(lister.List, w.cluster)
	}
	costs := map[operation]Spent{}
	measure := func(mine []registry.Instance, ops ...operation) {
		for _, op := range ops {
			before := spent()
			w.must(op, d, mine...)
			after := spent()
			costs[op] = Spent{costs[op].Bytes + after.Bytes - before.Bytes, costs[op].Requests + after.Requests - before.Requests}
		}
	}
	ops := []operation{opRegister, opGet, opProbe, opFailOver, opGet, opRegister, opDeregister, opGet}
	ops = slices.DeleteFunc(ops, func(op operation) bool { return !slices.Contains(operations(d), op) })
	w.must(ops[0], d, mine[0]) // connects, and makes what the service needs
	measure(mine, ops...)
	if w.has[isSteerer] && w.h.App != nil && w.h.MeteredApps {
		mine = mine[:steered]
		for _, at := range mine {
			w.app(d, at).Register()
		}
		measure(mine, opAppGet, opAppFailOver, opAppGet, opAppRegister)
	}
	return costs
}

// fill registers instances in few calls.
func (w *world) fill(all []registry.Instance) {
	w.Helper()
	d := w.newProcess()
	for _, in := range all {
		w.wrote(in)
	}
	batcher, batches := d.(registry.Batcher)
	if !batches {
		w.some(len(all), len(all), func(i int) error { return w.callErr(opRegister, d, all[i]) })
		return
	}
	for some := range slices.Chunk(all, max(1, batcher.BatchLimit())) {
		if err := errors.Join(batcher.Batch(w.Context(), to(registry.InService, some))...); err != nil {
			w.Fatalf("registering %d instances: got error %v, want success", len(some), err)
		}
	}
}
