package consul

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// mostOfOne bounds for how many instances one question is, and longestFilter how long its filter is in the URL, of which proxies take
// 8 KiB.
const (
	mostOfOne     = 48
	longestFilter = 6 << 10
)

// lookups are the calls that look for what is at their instances' endpoints. For that, a server looks through all instances of a service,
// or of all services, so one question is for all calls of a moment. The zero value is ready.
type lookups[T any] struct {
	asking driverkit.Shared[found[T]]

	mu      sync.Mutex
	waiting map[string]map[*registry.Instance]bool // by where they look
}

// found is the answer to a question, and the instances that it was about.
type found[T any] struct {
	of     []*registry.Instance
	answer T
}

// ask returns the answer to a question that was about the instance too.
func (l *lookups[T]) ask(
	ctx context.Context, where string, in *registry.Instance, filter func([]*registry.Instance) string,
	read func(ctx context.Context, filter string) (T, error),
) (found[T], error) {
	defer l.add(where, in)()
	for {
		got, err := l.asking.Ask(ctx, where, func(ctx context.Context) (got found[T], err error) {
			got.of = l.some(where, filter)
			got.answer, err = read(ctx, filter(got.of))
			return got, err
		})
		if err != nil || slices.Contains(got.of, in) { // else there were many, and the answer has reached some of them
			return got, err //nolint:wrapcheck // it is the driver's own
		}
	}
}

func (l *lookups[T]) add(where string, in *registry.Instance) (remove func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting == nil {
		l.waiting = map[string]map[*registry.Instance]bool{}
	}
	of := l.waiting[where]
	if of == nil {
		of = map[*registry.Instance]bool{}
		l.waiting[where] = of
	}
	of[in] = true
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if delete(of, in); len(of) == 0 {
			delete(l.waiting, where)
		}
	}
}

// some returns instances that are looked for, in no order.
func (l *lookups[T]) some(where string, filter func([]*registry.Instance) string) []*registry.Instance {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Collect(maps.Keys(l.waiting[where]))
	all = all[:min(len(all), mostOfOne)]
	for len(all) > 1 && len(url.QueryEscape(filter(all))) > longestFilter {
		all = all[:len(all)/2]
	}
	return all
}

// inService is what a service has, as clients read it.
type inService struct {
	services []appService
	header   http.Header
}

// applications returns what applications have registered at the instance's endpoint.
func (r *Registry) applications(ctx context.Context, in registry.Instance) ([]appService, http.Header, error) {
	if !hasPath(in.Service) {
		return nil, nil, nil // the endpoint takes no such name, and no agent registers one
	}
	read := func(ctx context.Context, filter string) (of inService, err error) {
		of.services, of.header, err = r.health(ctx, in.Service, url.Values{"filter": {filter}})
		return of, err
	}
	got, err := r.lookups.ask(ctx, in.Service, &in, appsFilter, read)
	of := got.answer
	mine := slices.DeleteFunc(slices.Clone(of.services), func(s appService) bool { return !s.isAt(in) })
	if err == nil && len(mine) == 0 && len(got.of) > 1 && of.header.Get(filteredByACLs) == "true" {
		of, err = read(ctx, appsFilter([]*registry.Instance{&in})) // another's may be what the token may not see
	}
	return mine, of.header, err
}

// namesAt returns the names under which the catalog has something of an application's at the instance's endpoint. In most cases there are
// none yet, for none of the applications that are starting.
func (r *Registry) namesAt(ctx context.Context, in registry.Instance) ([]string, error) {
	read := func(ctx context.Context, filter string) ([]string, error) {
		var tags map[string][]string
		_, err := r.read(ctx, servicesPath, url.Values{"filter": {filter}}, false, &tags)
		return slices.Sorted(maps.Keys(tags)), err
	}
	got, err := r.namings.ask(ctx, "", &in, namesFilter, read)
	if err == nil && len(got.answer) > 0 && len(got.of) > 1 { // whose they are it does not tell
		return read(ctx, namesFilter([]*registry.Instance{&in}))
	}
	return got.answer, err
}

// isAt reports whether the service is at the instance's endpoint. An agent's has its node's address if it has none.
func (s appService) isAt(in registry.Instance) bool {
	address := s.Service.Address
	if address == "" {
		address = s.Node.Address
	}
	return s.Service.Port == in.Port && slices.Contains(driverkit.AddressForms(in.Address), address)
}

// appsFilter lets pass what has no ownership tag of Rollcall's and is at the endpoint of one of the instances, and can let pass more: a
// pattern is short, and a dot in it stands for anything. What costs the server most comes last.
func appsFilter(of []*registry.Instance) string {
	patterns := map[int][]string{}
	for _, in := range of {
		for _, form := range driverkit.AddressForms(in.Address) {
			form = strings.ToLower(strings.Trim(form, "[]"))
			patterns[in.Port] = append(patterns[in.Port], strings.ReplaceAll(regexp.QuoteMeta(form), `\.`, `.`))
		}
	}
	var places []string
	for _, port := range slices.Sorted(maps.Keys(patterns)) {
		slices.Sort(patterns[port])
		pattern := quote(`(?i)^.?(` + strings.Join(slices.Compact(patterns[port]), "|") + `).?$`)
		places = append(places, fmt.Sprintf(
			"Service.Port == %d and (Service.Address matches %s or Service.Address == \"\" and Node.Address matches %[2]s)", port, pattern))
	}
	return fmt.Sprintf("(%s) and %q not in Service.Meta", strings.Join(places, " or "), registry.MetaUID)
}

// namesFilter lets pass what is at the endpoint of one of the instances and has no ownership tag of Rollcall's: an agent's service has its
// node's address if it has none.
func namesFilter(of []*registry.Instance) string {
	addresses := map[int][]string{}
	for _, in := range of {
		for _, text := range driverkit.AddressForms(in.Address) {
			addresses[in.Port] = append(addresses[in.Port],
				fmt.Sprintf("ServiceAddress == %s or ServiceAddress == \"\" and Address == %[1]s", quote(text)))
		}
	}
	var places []string
	for _, port := range slices.Sorted(maps.Keys(addresses)) {
		places = append(places, fmt.Sprintf("ServicePort == %d and (%s)", port, strings.Join(addresses[port], " or ")))
	}
	return fmt.Sprintf("(%s) and %q not in ServiceMeta", strings.Join(places, " or "), registry.MetaUID)
}
