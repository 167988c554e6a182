package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/rollcall-dev/rollcall/internal/drivers"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/wait"
)

const (
	service = "web"
	// every is how often a reader is asked.
	every = 2 * time.Millisecond
	// steady is how long it must not change.
	steady   = 200 * time.Millisecond
	patience = 5 * time.Minute
	pods     = 2
)

// reader is one that looks services up in a registry.
type reader struct {
	name, driver string
	// options are the driver's.
	options map[string]string
	// entry makes the entry of a pod what the reader expects; nil if that is any.
	entry func(registry.Instance) registry.Instance
	// set is what docs/readers.md says to set, and how late the reader is at most.
	set advice
	// period is how often it looks, if it does not watch: changes come at any moment of it.
	period time.Duration
	// changes and rollouts are how many there are.
	changes, rollouts int
	// proxies is one that sends the requests itself.
	proxies bool
	// behind runs its registry.
	behind func(context.Context) (place, error)
}

// given of a reader that proxies has also those that answered before an error.
type given func(context.Context) ([]string, error)

// measured is how late each change was noticed, and what rollouts lost.
type measured struct {
	registry   string
	out, back  []time.Duration
	full, less traffic
}

func (r reader) measure(ctx context.Context) (m measured, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	at, err := r.behind(ctx)
	if err != nil {
		return m, err
	}
	all, err := servePods(ctx, r.entry)
	if err != nil {
		return m, err
	}
	d, err := r.open(ctx, at.endpoint)
	if err != nil {
		return m, err
	}
	m.registry = r.driver + " " + at.version
	for _, p := range all {
		if err := d.Register(ctx, p.instance()); err != nil {
			return m, fmt.Errorf("registering: %w", err)
		}
	}
	renew(ctx, d, all)
	now, err := at.start(ctx, all)
	if err != nil {
		return m, err
	}
	err = r.measureWith(ctx, d, now, all, &m)
	return m, err
}

// measureWith measures a reader that runs.
func (r reader) measureWith(ctx context.Context, d registry.Registry, now given, all []*pod, m *measured) (err error) {
	for _, p := range all {
		if _, err := await(ctx, now, p.endpoint, true); err != nil {
			return err
		}
	}
	for i := range r.changes {
		if err := r.outAndBack(ctx, d, now, all[i%len(all)].instance(), m); err != nil {
			return err
		}
	}
	for _, these := range []struct {
		set  advice
		into *traffic
	}{{r.set, &m.full}, {r.less(), &m.less}} {
		if *these.into, err = r.rollOut(ctx, d, now, all, these.set); err != nil {
			return err
		}
	}
	return nil
}

// renew renews the entries until the context ends, if they need it. One that expires would be out before it is taken out.
func renew(ctx context.Context, d registry.Registry, all []*pod) {
	h, can := d.(registry.Heartbeater)
	interval := registry.TraitsOf(d).HeartbeatInterval
	if !can || interval == 0 {
		return
	}
	go func() {
		for ticker := time.NewTicker(interval); ; {
			select {
			case <-ctx.Done():
				ticker.Stop()
				return
			case <-ticker.C:
			}
			for _, p := range all {
				_ = h.Heartbeat(ctx, p.instance()) // the next one is before the entry expires
			}
		}
	}()
}

// outAndBack takes the pod out and puts it back, each as soon as the reader has noticed the change before.
func (r reader) outAndBack(ctx context.Context, d registry.Registry, now given, in registry.Instance, m *measured) error {
	for _, change := range []struct {
		call func(context.Context, registry.Instance) error
		in   bool
		into *[]time.Duration
	}{{d.FailOver, false, &m.out}, {d.Register, true, &m.back}} {
		pause(ctx, r.period)
		if all, err := now(ctx); err == nil && slices.Contains(all, in.Endpoint()) == change.in {
			return fmt.Errorf("the reader gives %v: that %s is given was to become %t with the next change", all, in.Endpoint(), change.in)
		}
		if err := change.call(ctx, in); err != nil {
			return fmt.Errorf("changing an entry: %w", err)
		}
		took, err := await(ctx, now, in.Endpoint(), change.in)
		if err != nil {
			return err
		}
		*change.into = append(*change.into, took)
	}
	return nil
}

// pause has the next change come at any moment of a period.
func pause(ctx context.Context, period time.Duration) { wait.Pause(ctx, rand.N(period+every)) }

func (r reader) open(ctx context.Context, endpoint string) (registry.Registry, error) {
	const timeout = 10 * time.Second
	options, err := json.Marshal(r.options)
	if err != nil {
		return nil, fmt.Errorf("encoding the options: %w", err)
	}
	d, err := drivers.All()[r.driver](ctx, registry.Config{
		Cluster: "readers", Endpoint: endpoint, Timeout: timeout, Options: options, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, fmt.Errorf("opening the driver: %w", err)
	}
	if closer, can := d.(interface{ Close() error }); can {
		context.AfterFunc(ctx, func() { _ = closer.Close() })
	}
	return d, nil
}

// await returns how long it took until the reader gave the endpoint for good, or did not give it any more: a proxy that reloads has old and
// new workers for a moment.
func await(ctx context.Context, now given, endpoint string, in bool) (time.Duration, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for since := time.Duration(-1); ; {
		all, err := now(ctx)
		switch took := time.Since(began); {
		case err != nil || slices.Contains(all, endpoint) != in:
			since = -1
		case since < 0:
			since = took
		case took-since >= steady:
			return since, nil
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("after %s the reader gives %v (%w): want %s given: %s", patience, all, err, endpoint, strconv.FormatBool(in))
		case <-time.After(every):
		}
	}
}
