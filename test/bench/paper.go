package main

import (
	"fmt"
	"math"
)

// What is computed for many clusters: each updates all its pods once in an hour, and each is as large as nothing here measures.
const (
	paperClusters = 100
	paperPods     = 50_000
	paperSeconds  = 3600
)

// paper computes from the figures of a whole run what many large clusters need: what, how it is computed, and how much.
func (all observations) paper() [][]string {
	value := func(name, value string) float64 { return median(all.of(name, theRollcall, value)) }
	grows := func(name, value string) float64 {
		small, large := median(all.of(sized(name, 10_000), theRollcall, value)), median(all.of(sized(name, 20_000), theRollcall, value))
		return large + (large-small)*(paperPods-20_000)/10_000
	}
	usual, largest := stormCase(usualDelay), sized(growthCase, 20_000)
	flips := 2.0 * paperPods
	each := flips / paperSeconds
	cores := func(of string) float64 { return each * value(usual, of) / 1000 }
	floors := each * median(all.of(usual, theFloor, apiCPU)) / 1000
	changes := each * value(largest, calls) / (2 * 20_000)
	batched := value(largest, rate) * median(all.of(batchCase, theBatching, calls)) / (2 * 1000)
	rows := [][]string{
		{"", "computed from", "one cluster", fmt.Sprintf("%d clusters", paperClusters)},
		{"flips a second", "2 × 50,000 / 3600", short(each), short(each * paperClusters)},
		{"API server's CPU, with OpenKruise's patches, cores", "flips × `storm 5ms` `apiServerCpuMsPerFlip`", short(cores(apiCPU)), "one each"},
		{"the same of the floor", "flips × the floor's", short(floors), "one each"},
		{"etcd's CPU, cores", "flips × `etcdCpuMsPerFlip`", short(cores(etcdCPU)), "one each"},
		{"leader's CPU, cores", "flips × `cpuMsPerFlip`", short(cores(cpu)), short(cores(cpu) * paperClusters)},
		{"a manager's memory, resting, MB", "`idle`, 10,000 and 20,000 pods", short(grows(idleCase, resident)), "one each"},
		{"the same while all are updated", "`growth`, 10,000 and 20,000 pods", short(grows(growthCase, resident)), "one each"},
		{"least time for all pods, s", "2 × 50,000 / `growth 20000` `flipsPerSecond`", short(flips / value(largest, rate)), "the same"},
		{"restart: CPU, s", "5 × `restart` `cpuSeconds`", short(paperPods / 10_000 * value(restartCase, totalCPU)), "one each"},
		{"changing calls a second", "flips × `growth 20000` `registryCalls` a flip", short(changes), short(changes * paperClusters)},
		{"the same in a storm, with batches", "`growth` `flipsPerSecond` × `batches` `registryCalls` a flip", short(batched), "each in a storm"},
		{"entries listed a second, `resync.interval: 1m`", "50,000 / 60", short(paperPods / 60.0), short(paperPods / 60.0 * paperClusters)},
		{"the same, `10m`", "50,000 / 600", short(paperPods / 600.0), short(paperPods / 600.0 * paperClusters)},
	}
	if math.IsNaN(value(largest, rate)) || math.IsNaN(cores(apiCPU)) {
		return nil // it was no whole run
	}
	return rows
}
