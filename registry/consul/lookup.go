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

// lookups are the calls that look for an application. To find one, a server looks through all instances of the service, so one question
// is for all calls of a moment. The zero value is ready.
type lookups struct {
	asking driverkit.Shared[found]

	mu      sync.Mutex
	waiting map[string]map[*registry.Instance]bool // by the service
}

// found is the answer to a question, and the instances that it was about.
type found struct {
	of       []*registry.Instance
	services []appService
	header   http.Header
}

func (l *lookups) add(in *registry.Instance) (remove func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting == nil {
		l.waiting = map[string]map[*registry.Instance]bool{}
	}
	of := l.waiting[in.Service]
	if of == nil {
		of = map[*registry.Instance]bool{}
		l.waiting[in.Service] = of
	}
	of[in] = true
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if delete(of, in); len(of) == 0 {
			delete(l.waiting, in.Service)
		}
	}
}

// some returns instances of the service that are looked for, in no order.
func (l *lookups) some(service string) []*registry.Instance {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Collect(maps.Keys(l.waiting[service]))
	all = all[:min(len(all), mostOfOne)]
	for len(all) > 1 && len(url.QueryEscape(appsFilter(all))) > longestFilter {
		all = all[:len(all)/2]
	}
	return all
}

// applications returns what applications have registered at the instance's endpoint.
func (r *Registry) applications(ctx context.Context, in registry.Instance) ([]appService, http.Header, error) {
	if !hasPath(in.Service) {
		return nil, nil, nil // the endpoint takes no such name, and no agent registers one
	}
	defer r.lookups.add(&in)()
	for {
		answer, err := r.lookups.asking.Ask(ctx, in.Service, func(ctx context.Context) (found, error) {
			return r.lookFor(ctx, in.Service, r.lookups.some(in.Service))
		})
		if err != nil {
			return nil, nil, err
		}
		if !slices.Contains(answer.of, &in) {
			continue // there were many, and the answer has reached some of them
		}
		mine := slices.DeleteFunc(slices.Clone(answer.services), func(s appService) bool { return !s.isAt(in) })
		if len(mine) == 0 && len(answer.of) > 1 && answer.header.Get(filteredByACLs) == "true" {
			answer, err = r.lookFor(ctx, in.Service, []*registry.Instance{&in}) // another's may be what the token may not see
		}
		return mine, answer.header, err
	}
}

func (r *Registry) lookFor(ctx context.Context, service string, of []*registry.Instance) (found, error) {
	services, header, err := r.health(ctx, service, url.Values{"filter": {appsFilter(of)}})
	return found{of, services, header}, err
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
