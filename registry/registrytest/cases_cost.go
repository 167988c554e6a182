package registrytest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

// Spent is what a driver has sent and got so far.
type Spent struct {
	// Bytes are those of both ways.
	Bytes int64
	// Requests are how often it has sent something after an answer, or as the first.
	Requests int64
	// CPU is that of this process, and Server that of the registry's: 0 unless nothing else happens in them.
	CPU, Server time.Duration
}

func (s Spent) plus(after, before Spent) Spent {
	return Spent{
		s.Bytes + after.Bytes - before.Bytes, s.Requests + after.Requests - before.Requests,
		s.CPU + after.CPU - before.CPU, s.Server + after.Server - before.Server,
	}
}

func (s Spent) String() string {
	text := fmt.Sprintf("%d bytes in %d requests", s.Bytes, s.Requests)
	if s.CPU+s.Server != 0 {
		text += fmt.Sprintf(", %s of CPU and %s of the server's", s.CPU.Round(time.Millisecond), s.Server)
	}
	return text
}

// exceeds: it is more than a cost may grow from less, and CPU by more than this noise. A registry that can't be asked for less may send so
// many bytes more; the CPU that takes does not count.
func (s Spent) exceeds(less Spent, more int, cpu time.Duration) bool {
	return over(s.Bytes, less.Bytes, int64(noise+more)) || over(s.Requests, less.Requests, noisyRequest) ||
		more == 0 && (over(s.CPU, less.CPU, cpu) || over(s.Server, less.Server, cpu))
}

func over[N int64 | time.Duration](got, from, noise N) bool {
	return float64(got) > grown*float64(from)+float64(noise)
}

// Bare makes a driver's calls by the registry's own client, or plain HTTP, on a connection that is open: one request each, and nothing
// is checked before it or after. What is nil is not compared.
type Bare struct {
	Register, FailOver, Deregister, Get func(ctx context.Context, in registry.Instance) error
}

func (b Bare) calls() map[operation]func(context.Context, registry.Instance) error {
	return map[operation]func(context.Context, registry.Instance) error{
		opRegister: b.Register, opFailOver: b.FailOver, opDeregister: b.Deregister, opGet: b.Get,
	}
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
	// manyOthers is the default.
	fewOthers, manyOthers = 10, 200
	// measured is how many pods each call is made for, which share the cost of a question about the service; steered is of how many the
	// application is steered.
	measured, steered = 32, 3
	// grown is how many times as much a call may cost, and noise what may be sent in between: pings, and what comes once. noisyCPU is
	// some clock ticks for each call: reading 5,000 entries takes the longer.
	grown        = 1.5
	noise        = 2 << 10
	noisyRequest = 2
	noisyCPU     = measured * 5 * time.Millisecond
	// lookedAt is how long a registry takes for each instance of a service to find who gives some addresses, for which none has an index.
	lookedAt = 10 * time.Microsecond
	// waits is how long a call takes that waits for more than its answers. Such calls are made together: else what a server does at rest
	// would count for theirs.
	waits     = 400 * time.Millisecond
	costTries = 3
	// questionsOfMany is how many questions calls ask at the most that are made together: one may just have been sent when others come.
	questionsOfMany = 3
)

// cost is what calls have cost, and how many questions about the service they may have asked.
type cost struct {
	Spent

	questions int
	// shared are those questions that many calls share.
	shared int
	// bare is the server's CPU for the same calls as plain requests, nil if that is not known.
	bare *time.Duration
}

// costDoesNotGrow makes calls in a service with few other instances, and in one with many. How many calls share a question is up to the
// scheduler, so what grew once is measured again: what grows with the service always does.
func costDoesNotGrow(w *world) {
	var grew []string
	for try := range costTries {
		if grew = w.growth(try); len(grew) == 0 {
			return
		}
	}
	w.Fatalf("%s\nwant at most %.1f times as much, and as bare requests: ask for the one instance, "+
		"and what is about the service only for what has changed", strings.Join(grew, "\n"), grown)
}

func (w *world) growth(try int) (grew []string) {
	w.Helper()
	others := cmp.Or(w.h.Others, manyOthers)
	many, few := w.costs(others, try), w.costs(fewOthers, try) // the first warms a server up
	for _, op := range slices.Sorted(maps.Keys(many)) {
		was, is := few[op], many[op]
		text := fmt.Sprintf("%s: %s with %d other instances in the service, %s with %d", op, was.Spent, fewOthers, is.Spent, others)
		w.Log(text)
		allowed := w.h.bytesOfEach(op) * others * is.questions
		cpu := noisyCPU + time.Duration(is.shared*others)*lookedAt
		if is.exceeds(was.Spent, allowed, cpu) {
			grew = append(grew, text)
		}
		if is.bare == nil {
			continue
		}
		text = fmt.Sprintf("%s: %s of the server's CPU with %d other instances in the service, %s for bare requests",
			op, is.Server, others, *is.bare)
		w.Log(text)
		if allowed == 0 && over(is.Server, *is.bare, cpu) {
			grew = append(grew, text)
		}
	}
	return grew
}

// costs returns what calls cost with so many others in their service. The driver has listed the registry once, as each leader has.
func (w *world) costs(others, try int) map[operation]cost {
	w.Helper()
	service := fmt.Sprintf("%s-%d-%d", w.service, others, try)
	var all []registry.Instance
	for _, in := range w.pods(others + 2*measured) {
		in.Service, in.UID = service, in.UID+service
		all = append(all, in)
	}
	mine, bares := all[others:others+measured], all[others+measured:]
	w.fill(all[:others])
	d, spent := w.h.Metered(w.TB, w.cluster)
	w.opened(d)
	if lister, lists := d.(registry.Lister); lists {
		w.read(lister.List, w.cluster)
	}
	ops := []operation{opRegister, opGet, opProbe, opFailOver, opGet, opRegister, opDeregister, opGet}
	ops = slices.DeleteFunc(ops, func(op operation) bool { return !slices.Contains(operations(d), op) })
	w.must(ops[0], d, mine[0]) // connects, and makes what the service needs
	began := time.Now()
	w.must(ops[0], d, mine[0])
	m := &meter{world: w, d: d, spent: spent, together: time.Since(began) > waits, costs: map[operation]cost{}}
	m.measure(mine, ops...)
	if w.h.Bare != nil && spent().Server > 0 {
		m.bare(bares, ops)
	}
	if w.has[isSteerer] && w.h.App != nil && w.h.bytesOfEach(opAppGet) >= 0 {
		mine = mine[:steered]
		for _, at := range mine {
			w.app(d, at).Register()
		}
		m.measure(mine, opAppGet, opAppFailOver, opAppGet, opAppRegister)
	}
	return m.costs
}

// meter measures a driver's calls.
type meter struct {
	*world

	d     registry.Registry
	spent func() Spent
	// together: all calls are made at the same time, and not only the calls that can share a question.
	together bool
	costs    map[operation]cost
}

func (m *meter) measure(mine []registry.Instance, ops ...operation) {
	m.Helper()
	for _, op := range ops {
		before, questions, shared := m.spent(), len(mine), 0
		if op == opGet || strings.HasPrefix(string(op), "AppEntries") { // as after a cut, and in a rollout: what one finds out is for all
			questions = min(questions, questionsOfMany)
			shared = questions
		}
		if shared > 0 || m.together {
			m.atOnce(len(mine), func(i int) error { return m.callErr(op, m.d, mine[i]) })
		} else {
			m.must(op, m.d, mine...)
		}
		was := m.costs[op]
		m.costs[op] = cost{Spent: was.plus(m.spent(), before), questions: was.questions + questions, shared: was.shared + shared}
	}
}

// bare makes the same calls as plain requests, for other pods.
func (m *meter) bare(pods []registry.Instance, ops []operation) {
	m.Helper()
	calls := m.h.Bare(m.TB).calls()
	if err := calls[opRegister](m.Context(), pods[0]); err != nil { // connects
		m.Fatalf("a bare Register: %v", err)
	}
	for _, op := range ops {
		call := calls[op]
		if call == nil {
			continue
		}
		before := m.spent().Server
		for _, in := range pods {
			if err := call(m.Context(), in); err != nil {
				m.Fatalf("a bare %s of %s: %v", op, show(in), err)
			}
		}
		is := m.costs[op]
		took := m.spent().Server - before
		if is.bare != nil {
			took += *is.bare
		}
		is.bare = &took
		m.costs[op] = is
	}
}

// bytesOfEach is what the harness allows the operation.
func (h Harness) bytesOfEach(op operation) int {
	for call, bytes := range h.CostGrows {
		if strings.HasPrefix(string(op), call) {
			return bytes
		}
	}
	return 0
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
		w.some(len(all), min(len(all), manyOthers), func(i int) error { return w.callErr(opRegister, d, all[i]) })
		return
	}
	for some := range slices.Chunk(all, max(1, batcher.BatchLimit())) {
		if err := errors.Join(batcher.Batch(w.Context(), to(registry.InService, some))...); err != nil {
			w.Fatalf("registering %d instances: got error %v, want success", len(some), err)
		}
	}
}
