package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/rollout"
)

// requestTimeout is longer than any answer takes on a busy machine: a request that meets it is lost.
const requestTimeout = 10 * time.Second

// customers are the clients of a service.
type customers struct {
	all []*rollout.Client
	// requests and failures of each that were taken already.
	requests, failures []int
}

// newCustomers makes the three kinds of clients of a service, which send 200 requests a second together.
func newCustomers(d directory, service string) *customers {
	polled := polling(d, service)
	c := &customers{}
	for _, o := range []rollout.ClientOptions{
		// 91 a second, each over a connection of its own; 91 a second over kept connections; and 20 under way at any time.
		{Name: "polls", Every: 11 * time.Millisecond, Read: polled},
		{Name: "blocks", Every: 11 * time.Millisecond, Read: blocking(d, service), Blocks: true, KeepAlive: true},
		{Name: "long", Every: 50 * time.Millisecond, Read: polled, KeepAlive: true, Query: "?for=1s"},
	} {
		o.Timeout = requestTimeout
		c.all = append(c.all, rollout.NewClient(o))
	}
	c.requests, c.failures = make([]int, len(c.all)), make([]int, len(c.all))
	return c
}

// polling reads a service as it is.
func polling(d directory, service string) func(context.Context) ([]registry.Entry, error) {
	return func(ctx context.Context) ([]registry.Entry, error) {
		entries, _, err := d.lookUp(ctx, service, 0)
		return entries, err
	}
}

// blocking follows a service by blocking queries.
func blocking(d directory, service string) func(context.Context) ([]registry.Entry, error) {
	var index uint64
	return func(ctx context.Context) ([]registry.Entry, error) {
		entries, now, err := d.lookUp(ctx, service, index)
		if err == nil {
			index = now
		}
		return entries, err
	}
}

// take returns what was counted since it was last called.
func (c *customers) take() result {
	var r result
	for i, one := range c.all {
		requests, failures := one.Tally().Requests, one.Failures()
		r.requests += requests - c.requests[i]
		r.failures = append(r.failures, failures[c.failures[i]:]...)
		c.requests[i], c.failures[i] = requests, len(failures)
	}
	slices.SortFunc(r.failures, func(a, b rollout.Failure) int { return a.At.Compare(b.At) })
	return r
}

// reasons counts failures by reason, the most frequent first.
func reasons(failures []rollout.Failure) string {
	counts := map[string]int{}
	for _, f := range failures {
		why, _, _ := strings.Cut(strings.TrimPrefix(f.Why, "http: "), ":") // without the names of pods
		counts[why]++
	}
	var parts []string
	for _, reason := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(a, b))
	}) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[reason], reason))
	}
	return strings.Join(parts, ", ")
}
