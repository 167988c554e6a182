package nacos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rollcall-dev/rollcall/registry"
)

func (r *Registry) probe(ctx context.Context, in registry.Instance) error {
	h, _, err := r.read(ctx, place{in: in})
	switch {
	case err != nil:
		return err
	case !h.is(in):
		return errors.New("it is not registered")
	case h.isOut():
		return errors.New("it is out of rotation")
	case !h.Healthy && r.opts.Ephemeral:
		return errors.New("the server considers it unhealthy: it has had no heartbeat for too long")
	case !h.Healthy:
		return fmt.Errorf("the server considers it unhealthy: Nacos probes the instances of this service, and can't reach %s; "+
			"let them, or set the health checker of the service's cluster %s to NONE", in.Endpoint(), r.opts.Cluster)
	}
	return nil
}

// beat renews the lease of an entry. It is a light beat, without what the entry holds: the server can't make one of it.
func (r *Registry) beat(ctx context.Context, in registry.Instance) error {
	if !r.opts.Ephemeral {
		return nil
	}
	h, _, err := r.read(ctx, place{in: in})
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
	a, err := r.everywhere(ctx, place{in: in}, call{do: beatInstance, service: in.Service, form: form})
	if isNone(err) {
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
