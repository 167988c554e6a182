package nacos

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

const (
	// look is how often readers are asked whether they see a write. Nacos gives them what it has acknowledged 500 ms later
	// by default (nacos.naming.push.pushTaskDelay).
	look = 100 * time.Millisecond
	// settle is after how long a write that readers don't see has been undone by another, and is made again.
	settle = time.Second
)

// stamp is what a write leaves in the metadata: a state, and what tells this write from all others. Once readers see it,
// they see the rest of the write too: the server keeps metadata and enabled together.
type stamp string

func newStamp(s registry.State) stamp {
	const enough = 12
	return stamp(string(s) + "-" + rand.Text()[:enough])
}

// state is what a stamp says, "" for that of no write of ours.
func state(stamp string) registry.State {
	s, _, _ := strings.Cut(stamp, "-")
	return registry.State(s)
}

// seen is what readers see of a write.
type seen int

const (
	nothing seen = iota // not yet, or another write is seen in its place
	done
	taken // another pod was registered at the address
)

func (r *Registry) register(ctx context.Context, in registry.Instance) error {
	before, err := r.read(ctx, in)
	if err != nil {
		return err
	}
	healthy, err := r.startsHealthy(ctx, in, before)
	if err != nil {
		return err
	}
	mine := newStamp(registry.InService)
	form, err := r.form(in, mine, healthy)
	if err != nil {
		return err
	}
	write := func() error {
		// What was set by PUT beats any POST, enabled=false and the metadata included, and outlives the removal of the
		// instance; and a PUT makes no instance.
		if err := r.send(ctx, addInstance, in, form); err != nil {
			return err
		}
		return r.send(ctx, setInstance, in, form)
	}
	look := func(h *host) seen { return inService(h, in, before, mine) }
	if before == nil || before.is(in) {
		return r.until(ctx, in, write, look)
	}
	return r.takeOver(ctx, in, write, look)
}

// takeOver registers where another pod has been. A late call for that one may have looked before our write, and act after
// readers have seen it; so it looks once more.
func (r *Registry) takeOver(
	ctx context.Context, in registry.Instance, write func() error, look func(*host) seen,
) error {
	for {
		if err := r.until(ctx, in, write, look); err != nil {
			return err
		}
		if err := pause(ctx, settle); err != nil {
			return err
		}
		h, err := r.read(ctx, in)
		if err != nil {
			return err
		}
		if look(h) != nothing {
			return nil
		}
	}
}

// inService looks for a registration. Another one of the same pod, made at the same time, is as good.
func inService(h *host, in registry.Instance, before *host, mine stamp) seen {
	switch {
	case h == nil || before != nil && h.stamp() == before.stamp():
		return nothing
	case h.stamp() == string(mine):
		return done
	case state(h.stamp()) != registry.InService:
		return nothing
	case h.is(in):
		return done
	}
	return taken
}

func (r *Registry) failOver(ctx context.Context, in registry.Instance) error {
	before, err := r.read(ctx, in)
	if err != nil || !before.is(in) {
		return err
	}
	mine := newStamp(registry.OutOfService)
	form, err := r.form(in, mine, before.Healthy)
	if err != nil {
		return err
	}
	return r.until(ctx, in,
		func() error { return r.send(ctx, setInstance, in, form) },
		func(h *host) seen {
			switch {
			case !h.is(in) || h.stamp() == string(mine):
				return done
			case h.stamp() != before.stamp() && state(h.stamp()) == registry.OutOfService:
				return done
			}
			return nothing
		})
}

func (r *Registry) deregister(ctx context.Context, in registry.Instance) error {
	before, err := r.read(ctx, in)
	if err != nil || !before.is(in) {
		return err
	}
	return r.until(ctx, in,
		func() error { return r.send(ctx, removeInstance, in, r.identity(in)) },
		func(h *host) seen {
			if h.is(in) {
				return nothing
			}
			return done
		})
}

// until writes, and returns when readers see that. Where they don't within a while, another write has got in between: ours
// is the later one, and is made again.
func (r *Registry) until(
	ctx context.Context, in registry.Instance, write func() error, look func(*host) seen,
) error {
	for wait := settle; ; wait *= 2 {
		if err := write(); err != nil {
			return err
		}
		switch what, err := r.await(ctx, in, wait, look); {
		case err != nil:
			return err
		case what == taken:
			return errors.New("another pod was registered at this address at the same time")
		case what == done:
			return nil
		}
	}
}

// await asks readers, for as long as wait says, whether they see a write.
func (r *Registry) await(
	ctx context.Context, in registry.Instance, wait time.Duration, looks func(*host) seen,
) (seen, error) {
	for end := time.Now().Add(wait); ; {
		h, err := r.read(ctx, in)
		if err == nil {
			if what := looks(h); what != nothing || time.Now().After(end) {
				return what, nil
			}
			err = pause(ctx, look)
		}
		if err != nil {
			return nothing, fmt.Errorf("the server has acknowledged it, but did not yet show it to readers: %w", err)
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func (r *Registry) probe(ctx context.Context, in registry.Instance) error {
	h, err := r.read(ctx, in)
	switch {
	case err != nil:
		return err
	case !h.is(in):
		return errors.New("it is not registered")
	case state(h.stamp()) != registry.InService || h.Enabled != nil && !*h.Enabled:
		return errors.New("it is out of service")
	case !h.Healthy && r.opts.Ephemeral:
		return errors.New("the server holds it unhealthy: it has had no heartbeat for three intervals")
	case !h.Healthy:
		return fmt.Errorf("the server holds it unhealthy: Nacos probes the instances of this service, and can't reach %s; "+
			"let them, or set the health checker of the service's cluster %s to NONE", in.Endpoint(), r.opts.Cluster)
	}
	return nil
}

// beat renews the lease of an entry. It is a light beat, without what the entry holds: the server can't make one of it.
func (r *Registry) beat(ctx context.Context, in registry.Instance) error {
	if !r.opts.Ephemeral {
		return nil
	}
	h, err := r.read(ctx, in)
	if err != nil {
		return err
	}
	switch {
	case !h.is(in):
		return registry.NotRegistered(errors.New("it is not registered"))
	case !h.lasts(r.opts):
		return registry.NotRegistered(errors.New("it is registered with another lease"))
	}
	form := r.identity(in)
	form.Set("heartBeat", "true")
	a, err := r.client.do(ctx, call{do: beatInstance, service: in.Service, form: form})
	if verdictOf(err) == absent {
		return registry.NotRegistered(err)
	}
	if err != nil || !a.route.old {
		return err
	}
	return oldBeat(a)
}

// oldBeat reads what v1 and v2 say of a beat.
func oldBeat(a *answer) error {
	const (
		ok    = 10200 // NamingResponseCode
		gone  = 20404
		older = 0 // servers before 1.4 send none
	)
	var said struct {
		Code int `json:"code"`
	}
	if err := json.Unmarshal(a.body, &said); err != nil {
		return fmt.Errorf("decoding the answer: %w", err)
	}
	switch said.Code {
	case ok, older:
		return nil
	case gone:
		return registry.NotRegistered(errors.New("it is not registered any more"))
	}
	return fmt.Errorf("the server answered the heartbeat with code %d", said.Code)
}

// read returns the entry at the instance's identity as readers get it, nil for none.
func (r *Registry) read(ctx context.Context, in registry.Instance) (*host, error) {
	a, err := r.client.do(ctx, call{do: readInstance, service: in.Service, form: r.identity(in)})
	switch verdict := verdictOf(err); {
	case verdict == absent || verdict == noService:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return decodeHost(a, in)
}

func (r *Registry) send(ctx context.Context, do operation, in registry.Instance, form url.Values) error {
	_, err := r.client.do(ctx, call{do: do, service: in.Service, form: form})
	return err
}

// identity is what tells an entry from all others of its service.
func (r *Registry) identity(in registry.Instance) url.Values {
	return url.Values{
		"ip": {in.Address}, "port": {strconv.Itoa(in.Port)}, "clusterName": {r.opts.Cluster},
		"ephemeral": {strconv.FormatBool(r.opts.Ephemeral)},
		// v2 of some servers does not get along without it, even to remove an instance.
		"weight": {weightOf(in, r.opts)},
	}
}

// form is all that is written of an instance.
func (r *Registry) form(in registry.Instance, mine stamp, healthy bool) (url.Values, error) {
	meta := in.Meta()
	meta[metaWrite] = string(mine)
	maps.Copy(meta, r.opts.lease())
	metadata, err := asciiJSON(meta)
	if err != nil {
		return nil, err
	}
	form := r.identity(in)
	form.Set("metadata", metadata)
	form.Set("enabled", strconv.FormatBool(state(string(mine)) == registry.InService))
	form.Set("healthy", strconv.FormatBool(healthy))
	return form, nil
}
