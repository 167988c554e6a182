package nacos

import (
	"context"
	crypto "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

const (
	// lag is after how long Nacos gives readers by default what it has acknowledged (nacos.naming.push.pushTaskDelay), and
	// look how long after that they are asked again whether they see it, twice as long each time.
	lag  = 500 * time.Millisecond
	look = 100 * time.Millisecond
	// settle is after how long a write that readers don't see has been undone by another, and is made again.
	settle = time.Second
)

// stamp is what a write leaves in the metadata: a state, and what tells this write from all others. Once readers see it,
// they see the rest of the write too: the server keeps metadata and enabled together.
type stamp string

func newStamp(s registry.State) stamp {
	const enough = 12
	return stamp(string(s) + "-" + crypto.Text()[:enough])
}

// state is what a stamp says, "" for one that Rollcall did not write.
func (s stamp) state() registry.State {
	state, _, _ := strings.Cut(string(s), "-")
	return registry.State(state)
}

func (r *Registry) register(ctx context.Context, in registry.Instance) error {
	before, err := r.read(ctx, in)
	if err != nil {
		return err
	}
	if r.opts.Ephemeral && before.isForeign() {
		return errForeign() // our metadata would be laid over it, and hide it from then on
	}
	healthy, err := r.startsHealthy(ctx, in, before)
	if err != nil {
		return err
	}
	if before == nil || before.is(in) {
		_, err = r.put(ctx, in, before.stamp(), healthy)
		return err
	}
	// A late call for the pod that had the address may have looked before our write, and act when readers have seen it. It
	// has by the time of another one.
	mine, err := r.put(ctx, in, before.stamp(), healthy)
	if err != nil {
		return err
	}
	if err := pause(ctx, settle); err != nil {
		return fmt.Errorf("taking the address over from another pod: %w", err)
	}
	_, err = r.put(ctx, in, mine, healthy)
	return err
}

// put puts the instance in service, and returns the stamp of that. before is the stamp of the entry that is there now.
func (r *Registry) put(ctx context.Context, in registry.Instance, before stamp, healthy bool) (stamp, error) {
	mine := newStamp(registry.InService)
	form, err := r.form(in, mine, healthy)
	if err != nil {
		return "", err
	}
	write := func() error {
		// What was set by PUT beats any POST, enabled=false and the metadata included, and outlives the removal of the
		// instance; and a PUT makes no instance.
		if err := r.send(ctx, addInstance, in, form); err != nil {
			return err
		}
		return r.send(ctx, setInstance, in, form)
	}
	return mine, r.until(ctx, write, r.readers(in, func(h *host) bool {
		return h.stamp() == mine || h.is(in) && h.stamp() != before && h.stamp().state() == registry.InService
	}))
}

func (r *Registry) failOver(ctx context.Context, in registry.Instance) error {
	r, before, err := r.lookForOwn(ctx, in)
	if err == nil && before.isForeign() {
		err = errForeign()
	}
	if err != nil || !before.isOwn(in) {
		return err
	}
	mine := newStamp(registry.OutOfService)
	form, err := r.form(in, mine, before.Healthy)
	if err != nil {
		return err
	}
	write := func() error { return r.send(ctx, setInstance, in, form) }
	return r.until(ctx, write, r.readers(in, func(h *host) bool {
		return !h.isOwn(in) || h.stamp() == mine ||
			h.stamp() != before.stamp() && h.stamp().state() == registry.OutOfService
	}))
}

func (r *Registry) deregister(ctx context.Context, in registry.Instance) error {
	r, before, err := r.lookForOwn(ctx, in)
	switch {
	case err != nil:
		return err
	case before == nil:
		return r.unmark(ctx, in, true) // the call that removed it may have failed at that, or ended before it
	case before.isForeign(), before.isHeldOut():
		return errForeign()
	case !before.isOwn(in):
		return nil
	}
	tries := 0
	write := func() error {
		if tries++; tries > removals {
			return errForeign() // another publisher's, under the metadata that we have set for the address
		}
		return r.send(ctx, removeInstance, in, r.identity(in))
	}
	var left *host
	err = r.until(ctx, write, r.readers(in, func(h *host) bool {
		left = h
		return !h.isOwn(in)
	}))
	switch {
	case registry.IsForeignEntry(err):
		// Without our mark it is listed as what it is, and stays so when the pod is gone. One that is out of service stays out, is
		// known by our stamp for as long as it is there, and can be put back as the application's.
		write = func() error { return r.unmark(ctx, in, left.stamp().state() == registry.InService) }
		return errors.Join(err, r.until(ctx, write, r.readers(in, func(h *host) bool { return !h.isOwn(in) })))
	case err != nil:
		return err
	case left.isForeign(), left.isHeldOut():
		return errForeign()
	case left != nil:
		return nil
	}
	return r.unmark(ctx, in, true)
}

// removals is how often an entry is removed that readers go on to see. A write that got in between is seen by then.
const removals = 2

// errForeign is of an entry that a DELETE over HTTP does not remove: of an application that registers itself over gRPC.
func errForeign() error {
	return registry.ForeignEntry(errors.New("there is an instance at this address that somebody else has registered"))
}

// unmark undoes what PUT has set at an address where there is no entry of the pod's any more. Else whoever has it next, an
// application that registers itself say, begins with the enabled and the mark of a pod that is gone. It follows the
// removal: before that, it would put the pod in service. With enabled false an application's entry that is there stays out,
// with a stamp that says so.
func (r *Registry) unmark(ctx context.Context, in registry.Instance, enabled bool) error {
	in.Weight = 0
	form := r.identity(in)
	form.Set("metadata", "{}")
	if !enabled {
		form.Set("metadata", fmt.Sprintf("{%q:%q}", metaWrite, newStamp(registry.OutOfService)))
	}
	form.Set("enabled", strconv.FormatBool(enabled))
	err := r.send(ctx, setInstance, in, form)
	if isNone(err) { // all of it has gone with the service
		return nil
	}
	if err != nil {
		return fmt.Errorf("it is removed, and what was set there is not undone: %w", err)
	}
	return nil
}

// until writes, and returns when readers see that, or the same by another call for the pod. Where they don't within a
// while, another write has got in between: ours is the later one, and is made again. A server that has not shown that by the end of
// the call either may never do: later calls begin at another one. A call that had less time than that says nothing of the server.
func (r *Registry) until(ctx context.Context, write func() error, sees view) error {
	var asked driverkit.Server
	seen := func(ctx context.Context) (ok bool, err error) {
		ok, asked, err = sees(ctx)
		return ok, err
	}
	for wait := settle; ; wait *= 2 {
		if err := write(); err != nil {
			return err
		}
		ok, err := await(ctx, wait, seen)
		if err != nil && wait > settle && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			r.client.http.Leave(asked, errors.New("it does not show its readers what it has acknowledged"))
			err = fmt.Errorf("%s: %w", asked, err) // who is to look after it
		}
		if ok || err != nil {
			return err
		}
	}
}

// view asks readers of one server whether they see a write.
type view func(context.Context) (ok bool, asked driverkit.Server, err error)

// readers asks whether readers see of an instance what they should.
func (r *Registry) readers(in registry.Instance, right func(*host) bool) view {
	return func(ctx context.Context) (bool, driverkit.Server, error) {
		h, asked, err := r.readAt(ctx, in)
		return err == nil && right(h), asked, err
	}
}

// await asks readers, for as long as wait says, whether they see a write: first when they may, then less and less often.
// Calls that are made at once ask at different times.
func await(ctx context.Context, wait time.Duration, seen func(context.Context) (bool, error)) (bool, error) {
	next, end := look, time.Now().Add(wait)
	err := pause(ctx, jittered(lag))
	for err == nil {
		var ok bool
		if ok, err = seen(ctx); err != nil {
			break
		}
		if ok || time.Now().After(end) {
			return ok, nil
		}
		err = pause(ctx, jittered(next))
		next *= 2
	}
	return false, fmt.Errorf("the server has acknowledged it, but did not yet show it to readers: %w", err)
}

// jittered is up to a tenth longer.
func jittered(d time.Duration) time.Duration { return d + rand.N(d/10) } //nolint:gosec // no secret

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
	case h.stamp().state() != registry.InService || h.Enabled != nil && !*h.Enabled:
		return errors.New("it is out of service")
	case !h.Healthy && r.opts.Ephemeral:
		return errors.New("the server holds it unhealthy: it has had no heartbeat for too long")
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

// read returns the entry at the instance's identity as readers of one server get it, nil for none.
func (r *Registry) read(ctx context.Context, in registry.Instance) (*host, error) {
	h, _, err := r.readAt(ctx, in)
	return h, err
}

// readAt is [Registry.read], and returns the server that was asked.
func (r *Registry) readAt(ctx context.Context, in registry.Instance) (*host, driverkit.Server, error) {
	a, asked, err := r.client.doAt(ctx, call{do: readInstance, service: in.Service, form: r.identity(in)})
	switch {
	case isNone(err):
		return nil, asked, nil
	case err != nil:
		return nil, asked, err
	}
	h, err := decodeHost(a, in)
	return h, asked, err
}

// look is [Registry.read] of each server that can be reached, until one has what is wanted: one that has just started, or lags behind,
// lacks the entry or has an older one. It returns the entry that says most, and the driver for the server that has it: the rest of the
// call is made there. Later calls don't begin there: it may be the one that lags behind.
func (r *Registry) look(ctx context.Context, in registry.Instance, wanted func(*host) bool) (*Registry, *host, error) {
	best, first, err := r.readAt(ctx, in)
	if err != nil {
		return r, nil, err
	}
	at := r
	for _, other := range r.client.http.Others(first) {
		if best.says(wanted) == sought {
			break
		}
		there := &Registry{client: r.client.at(other), opts: r.opts}
		if h, err := there.read(ctx, in); err == nil && h.says(wanted) > best.says(wanted) {
			r.client.log.Info("registry server lacks an entry, using one that has it", "server", first.String(), "next", other.String())
			at, best = there, h
		}
	}
	if err := ctx.Err(); err != nil {
		return at, nil, err
	}
	best, err = at.told(ctx, in, best)
	return at, best, err
}

// lookForOwn is [Registry.look] for an entry that is the pod's own.
func (r *Registry) lookForOwn(ctx context.Context, in registry.Instance) (*Registry, *host, error) {
	return r.look(ctx, in, func(h *host) bool { return h.isOwn(in) })
}

// told says of an entry without Rollcall's mark whether clients are given it, also where the server does not tell that of a single
// instance.
func (r *Registry) told(ctx context.Context, in registry.Instance, h *host) (*host, error) {
	if h == nil || h.uid() != "" || h.Enabled != nil {
		return h, nil
	}
	enabled, err := r.isEnabled(ctx, in)
	if err != nil {
		return nil, err
	}
	h.Enabled = &enabled
	return h, nil
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
	if size(meta) > maxMeta {
		delete(meta, registry.MetaClusterUID)
	}
	metadata, err := asciiJSON(meta)
	if err != nil {
		return nil, err
	}
	form := r.identity(in)
	form.Set("metadata", metadata)
	form.Set("enabled", strconv.FormatBool(mine.state() == registry.InService))
	form.Set("healthy", strconv.FormatBool(healthy))
	return form, nil
}
