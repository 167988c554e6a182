package nacos

import (
	"context"
	crypto "crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strconv"
	"strings"

	"github.com/rollcall-dev/rollcall/registry"
)

// stamp is what a write leaves in the metadata: a state, and what tells this write from all others. Once readers see it,
// they see the rest of the write too: the server keeps metadata and enabled together.
type stamp string

func newStamp(s registry.State) stamp {
	const enough = 12
	return stamp(string(s) + "-" + crypto.Text()[:enough])
}

// state is a stamp's state, "" for one that Rollcall did not write.
func (s stamp) state() registry.State {
	state, _, _ := strings.Cut(string(s), "-")
	return registry.State(state)
}

// replaces reports whether this is the stamp of our write, or of another one that has the same state and came after the one before.
func (s stamp) replaces(before, mine stamp) bool {
	return s == mine || s != before && s.state() == mine.state()
}

func (r *Registry) register(ctx context.Context, in registry.Instance) error {
	p := place{in: in}
	before, _, err := r.read(ctx, p)
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
	mine, err := r.put(ctx, p, before.stamp(), healthy)
	if err != nil || before == nil || before.is(in) {
		return err
	}
	// A late call for the pod that had the address may have looked before our write, and act when readers have seen it. It
	// has by the time of another one.
	if err := pause(ctx, settle); err != nil {
		return fmt.Errorf("taking the address over from another pod: %w", err)
	}
	_, err = r.put(ctx, p, mine, healthy)
	return err
}

// put puts the instance in rotation, and returns the stamp of that. before is the stamp of the entry that is there now.
func (r *Registry) put(ctx context.Context, p place, before stamp, healthy bool) (stamp, error) {
	mine := newStamp(registry.InService)
	form, err := r.form(p.in, mine, healthy)
	if err != nil {
		return "", err
	}
	write := func() error {
		// What was set by PUT beats any POST, enabled=false and the metadata included, and outlives the removal of the
		// instance; and a PUT makes no instance.
		if err := r.send(ctx, addInstance, p, form); err != nil {
			return err
		}
		return r.send(ctx, setInstance, p, form)
	}
	return mine, r.until(ctx, write, r.readers(p, func(h *host) bool { return h.is(p.in) && h.stamp().replaces(before, mine) }))
}

func (r *Registry) failOver(ctx context.Context, in registry.Instance) error {
	p, before, err := r.findOwn(ctx, in)
	switch {
	case err != nil:
		return err
	case before.isForeign():
		return errForeign()
	case !before.isOwn(in):
		return nil
	}
	mine := newStamp(registry.OutOfService)
	form, err := r.form(in, mine, before.Healthy)
	if err != nil {
		return err
	}
	write := func() error { return r.send(ctx, setInstance, p, form) }
	return r.until(ctx, write, r.readers(p, func(h *host) bool { return !h.isOwn(in) || h.stamp().replaces(before.stamp(), mine) }))
}

func (r *Registry) deregister(ctx context.Context, in registry.Instance) error {
	p, left, err := r.findOwn(ctx, in)
	if err == nil && left.isOwn(in) {
		left, err = r.remove(ctx, p)
	}
	switch {
	case err != nil:
		return err
	case left == nil:
		return r.unmark(ctx, p, true) // also if an earlier call has removed it: that may have failed at this, or ended before it
	case left.isForeign(), left.isHeldOut():
		return errForeign()
	}
	return nil // another pod's
}

// remove removes the pod's own entry, and returns what readers see at its place then.
func (r *Registry) remove(ctx context.Context, p place) (left *host, err error) {
	tries := 0
	write := func() error {
		if tries++; tries > removals {
			return errForeign() // another publisher's, under the metadata that we have set for the address
		}
		return r.send(ctx, removeInstance, p, r.identity(p.in))
	}
	gone := r.readers(p, func(h *host) bool {
		left = h
		return !h.isOwn(p.in)
	})
	err = r.until(ctx, write, gone)
	if registry.CodeOf(err) != registry.CodeForeignEntry {
		return left, err
	}
	// Without our mark it is listed as what it is, and stays so when the pod is gone. One that is out of rotation stays out, is
	// known by our stamp for as long as it is there, and can be put back as the application's.
	in := left.stamp().state() == registry.InService
	return left, errors.Join(err, r.until(ctx, func() error { return r.unmark(ctx, p, in) }, gone))
}

// removals is how often an entry is removed that readers still see. A write that got in between is seen by then.
const removals = 2

// errForeign is of an entry that a DELETE over HTTP does not remove: of an application that registers itself over gRPC.
func errForeign() error {
	return registry.ForeignEntry(errors.New("something other than Rollcall has registered an instance at this address"))
}

// unmark undoes what PUT has set at an address that no longer has an entry of the pod's. Else whoever has it next, an
// application that registers itself say, begins with the enabled and the metadata of a pod that is gone. It follows the
// removal: before that, it would put the pod in rotation. With enabled false an application's entry that is there stays out,
// with a stamp that records that.
func (r *Registry) unmark(ctx context.Context, p place, enabled bool) error {
	p.in.Weight = 0
	form := r.identity(p.in)
	form.Set("metadata", "{}")
	if !enabled {
		form.Set("metadata", fmt.Sprintf("{%q:%q}", metaWrite, newStamp(registry.OutOfService)))
	}
	form.Set("enabled", strconv.FormatBool(enabled))
	err := r.send(ctx, setInstance, p, form)
	if isNone(err) { // all of it has gone with the service
		return nil
	}
	if err != nil {
		return fmt.Errorf("the entry is removed, but what Rollcall set at its address is not undone: %w", err)
	}
	return nil
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
