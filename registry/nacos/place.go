package nacos

import (
	"context"
	"errors"
	"net/url"
	"strconv"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// place is where an entry is: at an instance's identity, and once it has been found at a server, which is asked for all the rest. Nil:
// any server that answers.
type place struct {
	in registry.Instance
	at *driverkit.Server
}

// identity is what tells an entry from all others of its service.
func (r *Registry) identity(in registry.Instance) url.Values {
	return url.Values{
		"ip": {in.Address}, "port": {strconv.Itoa(in.Port)}, "clusterName": {r.opts.Cluster},
		"ephemeral": {strconv.FormatBool(r.opts.Ephemeral)},
		// v2 of some servers does not get along without it, even to remove an instance.
		"weight": {weightOf(in)},
	}
}

// read returns the entry at a place as readers of one server get it, nil for none, and the server that was asked.
func (r *Registry) read(ctx context.Context, p place) (h *host, asked driverkit.Server, err error) {
	err = r.agree(ctx, p.at, func(at *driverkit.Server) (bool, driverkit.Server, error) {
		var a *answer
		a, asked, err = r.client.doAt(ctx, at, call{do: readInstance, service: p.in.Service, form: r.identity(p.in)})
		switch {
		case isNone(err):
			return false, asked, nil
		case err != nil:
			return false, asked, err
		}
		h, err = decodeHost(a, p.in)
		return true, asked, err
	})
	return h, asked, err
}

// agree asks a server, nil for any, and asks again for as long as it finds nothing and the address may stand for another server that would.
func (r *Registry) agree(
	ctx context.Context, at *driverkit.Server, ask func(at *driverkit.Server) (found bool, asked driverkit.Server, err error),
) error {
	found, asked, err := ask(at)
	if found || err != nil {
		return err
	}
	for range r.client.members.More(ctx) {
		other := asked.Alone(ctx)
		if found, _, err = ask(&other); found || err != nil {
			return err
		}
	}
	return nil
}

// each asks all servers that can be reached, and again while the address may stand for another one: what one server lacks of a service,
// clients of another may be given. The error is that of the servers at which calls begin.
func (r *Registry) each(ctx context.Context, ask func(context.Context, *driverkit.Server) (asked driverkit.Server, err error)) error {
	first, err := ask(ctx, nil)
	if err != nil {
		return err
	}
	for range r.client.members.More(ctx) {
		other := first.Alone(ctx)
		if _, err := ask(ctx, &other); err != nil {
			return err
		}
	}
	_ = r.client.http.Try(ctx, driverkit.Policy{After: first}, func(ctx context.Context, other driverkit.Server) error {
		if !r.client.isSilent(other) {
			_, err := ask(ctx, &other)
			r.client.note(other, err)
		}
		return errNothing
	})
	return ctx.Err()
}

func (r *Registry) send(ctx context.Context, do operation, p place, form url.Values) error {
	c := call{do: do, service: p.in.Service, form: form}
	if do == addInstance || do == removeInstance {
		_, err := r.everywhere(ctx, p, c)
		return err
	}
	_, _, err := r.client.doAt(ctx, p.at, c)
	return err
}

// everywhere makes a call about an ephemeral entry at all servers. Over v2 and v3 the server that is asked keeps such an entry for itself,
// unless it happens to be the one that tells the others about the address; only v1 passes the call on to that one (alibaba/nacos#14993).
// What is set by PUT is in Nacos' Raft, and so is a persistent entry. The answer is the first server's; the error is another's only if
// that one lacks the entry: it may be away, and has its entries from the others when it is back.
func (r *Registry) everywhere(ctx context.Context, p place, c call) (*answer, error) {
	a, asked, err := r.client.doAt(ctx, p.at, c)
	if err != nil || !r.opts.Ephemeral || a.route.old {
		return a, err
	}
	_ = r.client.http.Try(ctx, driverkit.Policy{After: asked}, func(ctx context.Context, other driverkit.Server) error {
		if c.do == beatInstance && r.client.isSilent(other) {
			return errNothing
		}
		_, otherErr := r.client.try(ctx, other, c)
		if isNone(otherErr) {
			err = otherErr
		}
		r.client.note(other, otherErr)
		return errNothing
	})
	return a, err
}

// find reads the instance's entry at each server that can be reached, until one has what is wanted: one that has just started, or lags
// behind, lacks the entry or has an older one. It returns the entry that shows most, and its place. Later calls begin where they did: the
// server that has it may be the one that lags behind.
func (r *Registry) find(ctx context.Context, in registry.Instance, wanted func(*host) bool) (place, *host, error) {
	p := place{in: in}
	best, first, err := r.read(ctx, p)
	at := first
	if err == nil && best.says(wanted) != sought {
		_ = r.client.http.Try(ctx, driverkit.Policy{After: first}, func(ctx context.Context, other driverkit.Server) error {
			h, _, err := r.read(ctx, place{in, &other})
			if err == nil && h.says(wanted) > best.says(wanted) {
				r.client.log.Info("registry server lacks an entry, using one that has it", "server", first.String(), "next", other.String())
				p, at, best = place{in, &other}, other, h
			}
			if best.says(wanted) != sought {
				return errNothing
			}
			return nil
		})
		err = ctx.Err()
	}
	if err != nil {
		return p, nil, err
	}
	best, err = r.told(ctx, in, at, best)
	return p, best, err
}

// errNothing takes a look on to the next server.
var errNothing = errors.New("this server has no such entry")

// findOwn is [Registry.find] of the pod's own entry.
func (r *Registry) findOwn(ctx context.Context, in registry.Instance) (place, *host, error) {
	return r.find(ctx, in, func(h *host) bool { return h.isOwn(in) })
}

// told finds out of an entry without Rollcall's ownership tag whether clients of the server that has it are given it, also if the server
// does not tell that of a single instance.
func (r *Registry) told(ctx context.Context, in registry.Instance, at driverkit.Server, h *host) (*host, error) {
	if h == nil || h.uid() != "" || h.Enabled != nil {
		return h, nil
	}
	enabled, err := r.isEnabled(ctx, in, at)
	if err != nil {
		return nil, err
	}
	h.Enabled = &enabled
	return h, nil
}
