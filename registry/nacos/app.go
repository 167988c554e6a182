package nacos

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// AppEntries implements [registry.AppEntrySteerer] by the flag enabled of the application's instance, whoever publishes it:
// over gRPC, by beats over HTTP, or as a persistent one. The server keeps what is set so apart from what is published, and
// lays it over that until a minute after the instance has gone, 2.5.0 and older forever.
func (r *Registry) AppEntries() registry.AppRegistry { return appEntries{r} }

// appEntries is not the driver itself: it lists nothing, probes nothing and renews nothing.
type appEntries struct{ driver *Registry }

// Register sets enabled.
func (a appEntries) Register(ctx context.Context, in registry.Instance) error {
	return a.driver.change(ctx, "putting back the application's entry of", in,
		func(ctx context.Context, in registry.Instance) error {
			var missing []error
			all, err := a.spelled(ctx, in)
			if err != nil {
				return err
			}
			for _, at := range all {
				switch err := a.driver.putAppBack(ctx, at); {
				case registry.CodeOf(err) == registry.CodeNotRegistered:
					missing = append(missing, err)
				case err != nil:
					return err
				}
			}
			if len(missing) < len(all) {
				return nil // it is there in one of the spellings
			}
			err = errors.Join(missing...)
			if cluster, _ := a.driver.elsewhere(ctx, in); cluster != "" {
				err = registry.NotRegistered(fmt.Errorf(
					"%w; it has one in Nacos cluster %s: set options.cluster, or the application's cluster", err, cluster))
			}
			return err
		})
}

// FailOver clears enabled.
func (a appEntries) FailOver(ctx context.Context, in registry.Instance) error {
	return a.driver.change(ctx, "taking out the application's entry of", in,
		func(ctx context.Context, in registry.Instance) error {
			if _, err := a.takeOut(ctx, in); err != nil {
				return err
			}
			return a.notElsewhere(ctx, in)
		})
}

// Deregister undoes what is set at the address if it no longer has an entry.
func (a appEntries) Deregister(ctx context.Context, in registry.Instance) error {
	return a.driver.change(ctx, "removing what is set for the application's entry of", in,
		func(ctx context.Context, in registry.Instance) error {
			there, err := a.takeOut(ctx, in)
			if err != nil {
				return err
			}
			if !there {
				for _, at := range forms(in, usualForms(in.Address)) {
					if err := a.driver.unmark(ctx, place{in: at}, true); err != nil {
						return err
					}
				}
			}
			return a.notElsewhere(ctx, in)
		})
}

// notElsewhere returns an error if clients that name no Nacos cluster are given an entry that this driver does not take out.
func (a appEntries) notElsewhere(ctx context.Context, in registry.Instance) error {
	cluster, err := a.driver.elsewhere(ctx, in)
	if err == nil && cluster != "" {
		err = registry.Terminal(registry.FieldError("options.cluster", fmt.Errorf("is %s, but clients are given an instance of the "+
			"application in Nacos cluster %s: set that here, or change the application's cluster", a.driver.opts.Cluster, cluster)))
	}
	return err
}

// takeOut reports whether there is an entry, the application's or Rollcall's own. It looks twice, since readers lag behind an application
// that has just registered.
func (a appEntries) takeOut(ctx context.Context, in registry.Instance) (there bool, err error) {
	there, err = a.takeOutNow(ctx, in)
	if err == nil && !there {
		if err = pause(ctx, settle); err == nil {
			there, err = a.takeOutNow(ctx, in)
		}
	}
	return there, err
}

func (a appEntries) takeOutNow(ctx context.Context, in registry.Instance) (there bool, err error) {
	all, err := a.spelled(ctx, in)
	for _, at := range all {
		is, err := a.driver.takeAppOut(ctx, at)
		if err != nil {
			return false, err
		}
		there = there || is
	}
	return there, err
}

// spelled are the instance at its address in each form in which applications have written it: to Nacos it is text. Only of IPv6 is there
// more than one.
func (a appEntries) spelled(ctx context.Context, in registry.Instance) ([]registry.Instance, error) {
	if !strings.Contains(in.Address, ":") {
		return []registry.Instance{in}, nil
	}
	texts, err := a.driver.addressesOf(ctx, in)
	return forms(in, append([]string{in.Address}, texts...)), err
}

func forms(in registry.Instance, texts []string) (all []registry.Instance) {
	for _, in.Address = range texts {
		all = append(all, in)
	}
	return all
}

// usualForms are those of an entry that has gone, which nothing shows any more: Java's and, in brackets, Spring Cloud Alibaba's.
func usualForms(address string) []string {
	java := driverkit.JavaForm(address)
	return slices.Compact([]string{address, java, driverkit.InURL(java), driverkit.InURL(address)})
}

// Get reads as readers do, later than they may lag.
func (a appEntries) Get(ctx context.Context, in registry.Instance) (state registry.State, err error) {
	err = a.driver.change(ctx, "asking for the application's entry of", in,
		func(ctx context.Context, in registry.Instance) error {
			if err := pause(ctx, settle); err != nil {
				return err
			}
			all, err := a.spelled(ctx, in)
			state = registry.Absent
			for _, at := range all {
				var one registry.State
				if _, _, one, err = a.driver.appEntry(ctx, at); err != nil || one == registry.InService {
					state = one
					break
				}
				if one == registry.OutOfService {
					state = one
				}
			}
			if err == nil && state == registry.Absent {
				err = a.notElsewhere(ctx, in)
			}
			return err
		})
	return state, err
}

func (r *Registry) putAppBack(ctx context.Context, in registry.Instance) error {
	p, h, state, err := r.appEntry(ctx, in)
	switch {
	case err != nil:
		return err
	case state == registry.Absent, state == registry.Foreign:
		return registry.NotRegistered(fmt.Errorf("service %s has no instance with IP %s and port %d in namespace %s, group %s, "+
			"cluster %s", in.Service, in.Address, in.Port, r.opts.Namespace, r.opts.Group, r.opts.Cluster))
	case !h.Healthy:
		return registry.NotRegistered(errors.New("the server considers the application's instance unhealthy"))
	case state == registry.InService:
		return nil
	}
	return r.enable(ctx, p, h, true)
}

// takeAppOut reports whether there is an entry, the application's or Rollcall's own.
func (r *Registry) takeAppOut(ctx context.Context, in registry.Instance) (there bool, err error) {
	p, h, state, err := r.appEntry(ctx, in)
	if err != nil || state != registry.InService {
		return state != registry.Absent, err
	}
	return true, r.enable(ctx, p, h, false)
}

// enable changes the flag, and returns when readers see it or the entry has gone. It leaves out the metadata, which stays
// as it is, but for the stamp of a removal; and must set the weight: the server takes 1 if none is set.
func (r *Registry) enable(ctx context.Context, p place, h *host, enabled bool) error {
	form := r.identity(p.in)
	form.Set("weight", strconv.FormatFloat(h.Weight, 'f', -1, 64))
	form.Set("enabled", strconv.FormatBool(enabled))
	do := patchInstance
	if h.stamp() != "" {
		do = setInstance
		form.Set("metadata", "{}")
	}
	write := func() error {
		err := r.send(ctx, do, p, form)
		if !enabled && isNone(err) {
			return nil
		}
		return err
	}
	return r.until(ctx, write, func(ctx context.Context) (bool, driverkit.Server, error) {
		h, asked, err := r.read(ctx, p)
		if err == nil {
			h, err = r.told(ctx, p.in, asked, h)
		}
		return (h.appState() == registry.InService) == enabled, asked, err
	})
}

// appEntry is [Registry.find] of the application's entry.
func (r *Registry) appEntry(ctx context.Context, in registry.Instance) (place, *host, registry.State, error) {
	p, h, err := r.find(ctx, in, func(h *host) bool { return h.uid() == "" })
	return p, h, h.appState(), err
}

// appState is whether clients are given the application's entry. One with Rollcall's ownership tag is [registry.Foreign] here.
func (h *host) appState() registry.State {
	switch {
	case h == nil:
		return registry.Absent
	case h.uid() != "":
		return registry.Foreign
	case *h.Enabled:
		return registry.InService
	}
	return registry.OutOfService
}

// isEnabled looks into the list that clients are given, by the server that has the entry.
func (r *Registry) isEnabled(ctx context.Context, in registry.Instance, at driverkit.Server) (enabled bool, err error) {
	err = r.agree(ctx, &at, func(at *driverkit.Server) (bool, driverkit.Server, error) {
		var given map[string]bool
		ask := func(ctx context.Context) (map[string]bool, error) { return r.given(ctx, in.Service, *at) }
		if at.IsAlone() { // its answer is not that of other connections
			given, err = ask(ctx)
		} else {
			given, err = r.client.given.Ask(ctx, at.String()+" "+r.key(in.Service), ask)
		}
		enabled = given[in.Endpoint()]
		return enabled, *at, err
	})
	return enabled, err
}

// given are the endpoints that clients of a server are given of a service in the Nacos cluster of the options. The addresses are as they
// are written.
func (r *Registry) given(ctx context.Context, service string, at driverkit.Server) (map[string]bool, error) {
	form := url.Values{"clusters": {r.opts.Cluster}, "clusterName": {r.opts.Cluster}, "healthyOnly": {"false"}}
	a, _, err := r.client.doAt(ctx, &at, call{do: listInstances, service: service, form: form, limit: maxListing})
	given := map[string]bool{}
	if isNone(err) {
		return given, nil
	}
	if err != nil {
		return nil, err
	}
	var list struct {
		Hosts []host `json:"hosts"`
	}
	if err := a.decode(&list); err != nil {
		return nil, err
	}
	for _, h := range list.Hosts {
		if h.ClusterName == r.opts.Cluster && (h.Enabled == nil || *h.Enabled) {
			given[registry.Instance{Address: h.IP, Port: h.Port}.Endpoint()] = true
		}
	}
	return given, nil
}
