package nacos

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// checkerOff is the type of the health checker that checks nothing.
const checkerOff = "NONE"

// startsHealthy returns what Nacos takes the instance for until its own probes know better. A new one that it probes
// starts unhealthy: one that its servers can't reach must stop the rollout, not take all instances out one by one.
func (r *Registry) startsHealthy(ctx context.Context, in registry.Instance, before *host) (bool, error) {
	if r.opts.Ephemeral || before != nil && before.Healthy {
		return true, nil
	}
	off, known, err := r.isCheckerOff(ctx, in.Service)
	switch {
	case err != nil:
		return false, fmt.Errorf("checking the service's health checker: %w", err)
	case off:
		return true, nil
	case r.opts.HealthChecker == checkerServer:
		return false, nil
	}
	if known {
		if shared, err := r.isShared(ctx, in); shared || err != nil {
			return false, err
		}
	}
	if err := r.turnCheckerOff(ctx, in); err != nil {
		return false, fmt.Errorf("turning the service's health checker off: %w", err)
	}
	return true, nil
}

// isCheckerOff also reports whether that is known: there are instances.
func (r *Registry) isCheckerOff(ctx context.Context, service string) (off, known bool, err error) {
	c := r.cluster(service)
	if r.client.unprobed.has(c) {
		return true, true, nil
	}
	checkers, err := r.checkers(ctx, service)
	checker, known := checkers[r.opts.Cluster]
	off = checker == checkerOff
	if off {
		r.client.unprobed.add(c)
	}
	return off, known, err
}

// unprobedFor is how long what was read of a service's health checker holds: Nacos forgets it a minute or more after the last instance has
// gone (ExpiredMetadataCleaner), and shows it only while there is one.
const unprobedFor = 10 * time.Second

// unprobed are the services whose checker was off when it was read, a moment ago: a rollout need not read it for each pod. The zero value
// is ready.
type unprobed struct {
	mu       sync.Mutex
	since    time.Time
	services map[serviceCluster]bool
}

// serviceCluster is where a checker is set: in a cluster of a service.
type serviceCluster struct{ namespace, group, service, cluster string }

func (r *Registry) cluster(service string) serviceCluster {
	return serviceCluster{r.opts.Namespace, r.opts.Group, service, r.opts.Cluster}
}

func (u *unprobed) has(c serviceCluster) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.services[c] && time.Since(u.since) < unprobedFor
}

func (u *unprobed) add(c serviceCluster) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if time.Since(u.since) >= unprobedFor {
		u.since, u.services = time.Now(), map[serviceCluster]bool{}
	}
	u.services[c] = true
}

// isShared reports whether applications have instances of the service by themselves: what is set for those is left. Of Rollcall's own,
// the checker was turned off, and one of several servers can have the instances before that: they are in different Rafts. An
// instance that started unhealthy then would stay so, since no one probes it.
func (r *Registry) isShared(ctx context.Context, in registry.Instance) (bool, error) {
	hosts, err := r.hosts(ctx, in.Service)
	if err != nil {
		return false, fmt.Errorf("checking the service's instances: %w", err)
	}
	return slices.ContainsFunc(hosts, func(h host) bool { return h.uid() == "" }), nil
}

// checkers returns the types of the health checkers of the service's clusters that have instances: Nacos tells no other. Calls that ask at
// the same moment share one answer.
func (r *Registry) checkers(ctx context.Context, service string) (map[string]string, error) {
	return r.client.checkers.Ask(ctx, r.keyOfClusters(service), func(ctx context.Context) (map[string]string, error) {
		checkers, _, err := r.readCheckers(ctx, nil, service)
		return checkers, err
	})
}

// checkersOfAll has the clusters that any of the servers knows.
func (r *Registry) checkersOfAll(ctx context.Context, service string) (map[string]string, error) {
	return r.client.checkers.Ask(ctx, "all "+r.keyOfClusters(service), func(ctx context.Context) (map[string]string, error) {
		all := map[string]string{}
		err := r.each(ctx, func(ctx context.Context, at *driverkit.Server) (driverkit.Server, error) {
			checkers, asked, err := r.readCheckers(ctx, at, service)
			maps.Copy(all, checkers)
			return asked, err
		})
		return all, err
	})
}

// keyOfClusters is [Registry.key] of all Nacos clusters.
func (r *Registry) keyOfClusters(service string) string {
	c := r.cluster(service)
	c.cluster = ""
	return fmt.Sprintf("%q", c)
}

// readCheckers asks a server, nil for any.
func (r *Registry) readCheckers(ctx context.Context, at *driverkit.Server, service string) (map[string]string, driverkit.Server, error) {
	a, asked, err := r.client.doAt(ctx, at, call{do: readService, service: service})
	checkers := map[string]string{}
	if isNone(err) {
		return checkers, asked, nil
	}
	if err != nil {
		return nil, asked, err
	}
	type cluster struct {
		Name    string `json:"name"`
		Checker struct {
			Type string `json:"type"`
		} `json:"healthChecker"`
	}
	var s struct {
		Old []cluster          `json:"clusters"`
		New map[string]cluster `json:"clusterMap"`
	}
	if err := a.decode(&s); err != nil {
		return nil, asked, err
	}
	for _, c := range s.Old {
		checkers[c.Name] = c.Checker.Type
	}
	for name, c := range s.New {
		checkers[name] = c.Checker.Type
	}
	return checkers, asked, nil
}

// turnCheckerOff makes the service, if there is none, and sets the checker of a cluster that has no instance.
func (r *Registry) turnCheckerOff(ctx context.Context, in registry.Instance) error {
	form := url.Values{"ephemeral": {"false"}, "protectThreshold": {"0"}}
	_, err := r.client.do(ctx, call{do: addService, service: in.Service, form: form})
	if err != nil && verdictOf(err) != exists {
		return err
	}
	checker, err := json.Marshal(map[string]string{"type": checkerOff})
	if err != nil {
		return fmt.Errorf("encoding the checker: %w", err)
	}
	_, err = r.client.do(ctx, call{do: setChecker, service: in.Service, form: url.Values{
		"clusterName": {r.opts.Cluster}, "healthChecker": {string(checker)},
		"checkPort": {strconv.Itoa(in.Port)}, "useInstancePort4Check": {"true"},
	}})
	return err
}
