package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/network"
	"github.com/rollcall-dev/rollcall/test/harness/process"
)

// fleet is how many clusters share a registry, with so many pods each.
type fleet struct{ clusters, pods int }

func (f fleet) entries() int { return f.clusters * f.pods }

const (
	// podsOfService are a service's in one cluster. All clusters have the same services.
	podsOfService = 50
	listTimeout   = time.Minute
	// largeEvery is the default resync.interval of a cluster with 20,000 entries.
	largeEvery = 2 * time.Minute
)

// measuredFleets are filled one after the other, each from what is there. The second differs from the first in others' entries alone, so
// they tell the cost of the others' from that of a cluster's own.
func measuredFleets() [3]fleet { return [3]fleet{{10, 500}, {20, 500}, {20, 1000}} }

// large is a fleet that no machine here holds.
func large() fleet { return fleet{200, 20_000} }

// apart are the options that give a cluster, by its number, a place of its own in each registry; Eureka has none.
func apart() map[string]string {
	return map[string]string{
		"consul": `{"nodePrefix":"of-%03d-"}`, "etcd": `{"target":"of-%03d/{service}"}`, "zookeeper": `{"base":"/of-%03d"}`,
		"nacos": `{"group":"of-%03d"}`,
	}
}

// shared is a registry that many clusters share.
type shared struct {
	match

	// options are those of a cluster's driver, with its number filled in. Empty: all have the same place.
	options string
}

// listing is what one list of a cluster costs, on average.
type listing struct{ kB, trips, ms, serverMS, ownMS float64 }

func playLists(ctx context.Context, only []string) error {
	fmt.Println("| registry | clusters × pods | a list: kB | round trips | ms | server's CPU, ms | own CPU, ms |")
	fmt.Println("|---|---|---|---|---|---|---|")
	var rows []string
	add := func(place string, l listing) {
		perSecond := float64(large().clusters) / largeEvery.Seconds()
		rows = append(rows, fmt.Sprintf("| %s | %.1f | %.2f | %.2f | %.0f | %.1f |", place, l.kB/1e3, l.serverMS/1e3, l.ownMS/1e3,
			perSecond*l.kB/1e3, perSecond*l.serverMS/1e3)) //nolint:mnd // units
	}
	for _, m := range matches() {
		if len(only) > 0 && !slices.Contains(only, m.name) {
			continue
		}
		costs, err := shared{match: m}.play(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		add(m.name+", one place for all", extrapolate(costs, false))
		own, has := apart()[m.name]
		if !has {
			continue
		}
		if costs, err = (shared{m, own}).play(ctx); err != nil {
			return fmt.Errorf("%s, with options %s: %w", m.name, own, err)
		}
		alone := m.name != "consul" // which looks through all entries for those of applications
		add(m.name+", a place for each", extrapolate(costs, alone))
	}
	fmt.Printf("\n| %d clusters × %d pods | a list: MB | server's CPU, s | own CPU, s | all: MB/s | server's cores |\n",
		large().clusters, large().pods)
	fmt.Println("|---|---|---|---|---|---|")
	for _, row := range rows {
		fmt.Println(row)
	}
	return nil
}

// play measures the lists of each fleet.
func (m shared) play(ctx context.Context) (costs [3]listing, err error) {
	s, err := m.start(ctx)
	if err != nil {
		return costs, err
	}
	defer s.Stop()
	var there fleet
	for i, f := range measuredFleets() {
		if err := m.fillFleet(ctx, s.endpoint, there, f); err != nil {
			return costs, fmt.Errorf("registering %d entries: %w", f.entries(), err)
		}
		there = f
		if costs[i], err = m.list(ctx, s, f); err != nil {
			return costs, err
		}
		l := costs[i]
		fmt.Printf("| %s %s%s | %d × %d | %.0f | %.0f | %.0f | %.1f | %.1f |\n",
			m.name, s.Version(), map[bool]string{true: ", a place for each"}[m.options != ""], f.clusters, f.pods,
			l.kB, l.trips, l.ms, l.serverMS, l.ownMS)
	}
	return costs, nil
}

// list has each cluster's driver list as resync does, twice: bytes are counted on their way, which takes CPU.
func (m shared) list(ctx context.Context, s server, f fleet) (l listing, err error) {
	moved := &network.Traffic{}
	through, err := network.Lead(ctx, s.endpoint, moved.Pass)
	if err != nil {
		return l, err
	}
	if _, err := m.listAll(ctx, s, through, f, func() { moved.Bytes.Store(0); moved.Trips.Store(0) }); err != nil {
		return l, err
	}
	lists := float64(f.clusters)
	l.kB, l.trips = float64(moved.Bytes.Load())/lists/1e3, float64(moved.Trips.Load())/lists
	t, err := m.listAll(ctx, s, s.endpoint, f, func() {})
	ms := func(d time.Duration) float64 { return float64(d) / lists / float64(time.Millisecond) }
	l.ms, l.serverMS, l.ownMS = ms(t.time), ms(t.server), ms(t.own)
	return l, err
}

// listAll lists as each cluster, one after the other, and calls begin once each has listed before, as it has a minute ago. In between one
// entry changes, so no server can give the same answer again.
func (m shared) listAll(ctx context.Context, s server, endpoint string, f fleet, begin func()) (t taken, err error) {
	drivers := make([]registry.Registry, f.clusters)
	for i := range drivers {
		if drivers[i], err = m.ofCluster(ctx, endpoint, i); err != nil {
			return t, err
		}
		defer closed(drivers[i])
		if err := listOne(ctx, drivers[i], i, f); err != nil {
			return t, err
		}
	}
	writer, err := m.ofCluster(ctx, s.endpoint, 0)
	if err != nil {
		return t, err
	}
	defer closed(writer)
	begin()
	for i, d := range drivers {
		touched := podOf(0, i)
		touched.Metadata["version"] = fmt.Sprint(time.Now().UnixNano())
		if err := writer.Register(ctx, touched); err != nil {
			return t, err
		}
		runtime.GC()
		there, err := process.CPU(s.PID())
		if err != nil {
			return t, err
		}
		here, began := ownCPU(), time.Now()
		if err := listOne(ctx, d, i, f); err != nil {
			return t, err
		}
		t.time, t.own = t.time+time.Since(began), t.own+ownCPU()-here
		after, err := process.CPU(s.PID())
		if err != nil {
			return t, err
		}
		t.server += after - there
	}
	return t, nil
}

func listOne(ctx context.Context, d registry.Registry, i int, f fleet) error {
	lister, lists := d.(registry.Lister)
	if !lists {
		return errors.New("the driver does not list")
	}
	entries, err := lister.List(ctx, clusterOf(i))
	if err == nil && len(entries) != f.pods {
		err = fmt.Errorf("cluster %d has %d entries in its list, want %d", i, len(entries), f.pods)
	}
	return err
}

// extrapolate is linear in all entries of the place, and in a cluster's own, which are all if it is alone there. A share below zero is
// noise, and counts as none.
func extrapolate(costs [3]listing, alone bool) listing {
	f, to := measuredFleets(), large()
	of := func(cost func(listing) float64) float64 {
		c := [3]float64{cost(costs[0]), cost(costs[1]), cost(costs[2])}
		few, each := c[1], max(0, (c[1]-c[0])/float64(f[1].entries()-f[0].entries()))
		if alone {
			few, each = (c[0]+c[1])/2, 0 //nolint:mnd // the mean
		}
		own := (c[2] - few - each*float64(f[2].entries()-f[1].entries())) / float64(f[2].pods-f[1].pods)
		if own < 0 {
			each, own = max(0, (c[2]-c[0])/float64(f[2].entries()-f[0].entries())), 0
		}
		base := max(0, few-each*float64(f[1].entries())-own*float64(f[1].pods))
		return base + each*float64(to.entries()) + own*float64(to.pods)
	}
	return listing{
		kB:       of(func(l listing) float64 { return l.kB }),
		serverMS: of(func(l listing) float64 { return l.serverMS }),
		ownMS:    of(func(l listing) float64 { return l.ownMS }),
	}
}

// fillFleet registers what a fleet has more than the one that is there.
func (m shared) fillFleet(ctx context.Context, endpoint string, there, f fleet) error {
	for c := range f.clusters {
		from := there.pods
		if c >= there.clusters {
			from = 0
		}
		if from == f.pods {
			continue
		}
		var changes []registry.Change
		for i := from; i < f.pods; i++ {
			changes = append(changes, registry.Change{Instance: podOf(c, i), State: registry.InService})
		}
		d, err := m.ofCluster(ctx, endpoint, c)
		if err != nil {
			return err
		}
		err = makeAll(ctx, d, changes)
		closed(d)
		if err != nil {
			return err
		}
	}
	return nil
}

func (m shared) ofCluster(ctx context.Context, endpoint string, c int) (registry.Registry, error) {
	cfg := registry.Config{Cluster: clusterOf(c), Endpoint: endpoint, Timeout: listTimeout, Logger: slog.New(slog.DiscardHandler)}
	switch {
	case m.name == "eureka": // nothing is renewed here
		cfg.Options = json.RawMessage(`{"durationInSecs":3600}`)
	case m.options != "":
		cfg.Options = fmt.Appendf(nil, m.options, c)
	}
	return m.open(ctx, cfg)
}

func clusterOf(c int) string { return fmt.Sprintf("0e9a53f0-6a0b-4f0e-9a53-%012d", c) }

// podOf is an entry as a production cluster has it.
func podOf(c, i int) registry.Instance {
	service := fmt.Sprintf("checkout-%d", i/podsOfService)
	return registry.Instance{
		Service: service, Address: fmt.Sprintf("10.%d.%d.%d", c, i>>8, i&0xff), Port: 8080, //nolint:mnd // bytes
		Cluster: clusterOf(c), ClusterUID: clusterOf(c), Namespace: "shop", Pod: fmt.Sprintf("%s-%05d", service, i),
		UID: fmt.Sprintf("5f1c2f0e-6a0b-4f0e-%04d-%012d", c, i), Registry: "default", Zone: "eu-1a",
		Metadata: map[string]string{"version": "1.4.2"},
	}
}
