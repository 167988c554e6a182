package registrytest

import (
	"fmt"
	"maps"
	"strings"

	"github.com/rollcall-dev/rollcall/registry"
)

// detailCases are about weight, zone, tags and metadata.
func detailCases() []testCase {
	return []testCase{
		{
			name:  "WeightIsKept",
			why:   "a small instance that gets a large one's share of requests is overloaded",
			needs: []Capability{Weight},
			run: keepsDetail(
				func(in *registry.Instance) { in.Weight = 1 },
				func(in *registry.Instance) { in.Weight = 10000 },
				func(in *registry.Instance) { in.Weight = 150 },
			),
		},
		{
			name:  "ZoneIsKept",
			why:   "clients that prefer their own zone would pay for every request that crosses zones",
			needs: []Capability{Zone},
			run: keepsDetail(
				func(in *registry.Instance) { in.Zone = "eu-central-1a" },
				func(in *registry.Instance) { in.Zone = "Rack 7/b" },
				func(in *registry.Instance) { in.Zone = "b" },
			),
		},
		{
			name:  "TagsAreKept",
			why:   "clients and proxies select by tags; a tag left over from before the update sends them here",
			needs: []Capability{Tags},
			run: keepsDetail(
				func(in *registry.Instance) { in.Tags = []string{"http", "traefik.rule=Host(`a`, `b`) && Path(`/ü`)"} },
				func(in *registry.Instance) { in.Tags = []string{"http", "v2"} },
				func(in *registry.Instance) { in.Tags = []string{"v3"} },
			),
		},
		{
			name:  "MetadataIsKept",
			why:   "clients choose by metadata; a version left over from before the update misleads them",
			needs: []Capability{Metadata},
			run: keepsDetail(
				func(in *registry.Instance) { in.Metadata = map[string]string{"version": "v1", "canary": "true"} },
				func(in *registry.Instance) { in.Metadata = map[string]string{"version": "v2", "Track_2": "a"} },
				func(in *registry.Instance) { in.Metadata = map[string]string{"version": "v2", "track-3": ""} },
			),
		},
		{
			name:  "OddMetadata",
			why:   "labels and annotations can have any text; what is not read back as it was written looks changed forever",
			needs: []Capability{Metadata},
			run:   oddMetadata,
		},
		{
			name:  "MetadataIsNotShared",
			why:   "the caller keeps using its map; a change of the map must not change the registry",
			needs: []Capability{Metadata},
			run:   metadataIsNotShared,
		},
	}
}

func metadataIsNotShared(w *world) {
	in := w.pod(1)
	in.Metadata = map[string]string{"version": "v1"}
	want := in
	want.Metadata = maps.Clone(in.Metadata)
	d := w.newProcess()
	for _, op := range []operation{opRegister, opFailOver} {
		w.must(op, d, in)
		in.Metadata["version"] = "scribble"
		w.expect(registry.Entry{Instance: want, State: stateAfter(op)})
		maps.Copy(in.Metadata, want.Metadata)
	}
}

// stateAfter is the state of an instance after a call.
func stateAfter(op operation) registry.State {
	switch op {
	case opRegister:
		return registry.InService
	case opFailOver:
		return registry.OutOfService
	default:
		return registry.Absent
	}
}

// keepsDetail takes an instance through everything that can happen to it, with its details set in one way after the other.
// A second instance, without details, must not get any.
func keepsDetail(first, second, third func(*registry.Instance)) func(*world) {
	return func(w *world) {
		with := func(set func(*registry.Instance)) registry.Instance {
			in := w.pod(1)
			set(&in)
			return in
		}
		plain := w.pod(2)
		d := w.registered(with(first), plain)
		w.expect(inService(with(first)), inService(plain))
		w.failOver(d, with(first), plain)
		w.expect(outOfService(with(first)), outOfService(plain))
		w.registered(with(first), plain)
		w.expect(inService(with(first)), inService(plain))

		// Changed while it is in rotation, changed while it is out of rotation, and at last removed.
		w.register(d, with(second))
		w.expect(inService(with(second)), inService(plain))
		w.failOver(d, with(second))
		w.register(d, with(third))
		w.expect(inService(with(third)), inService(plain))
		w.register(d, w.pod(1))
		w.expect(inService(w.pod(1)), inService(plain))
	}
}

// oddMetadata has everything that Rollcall's configuration allows, except for keys with a dot: few registries take these.
func oddMetadata(w *world) {
	const (
		long  = 512 // bytes
		pairs = 50
	)
	all := []map[string]string{
		{"long": strings.Repeat("x", long)},
		{"long": strings.Repeat("名", long/len("名"))},
		{strings.Repeat("k", 128): "of a long key"},
		{"lines": "a\nb\tc"},
		{"camelCase": "a", "CamelCase": "b", "under_score": "c", "da-sh": "d", "number7": "e"},
		{"json": `{"a":["b",null,1e3]}`, "number": "0123", "bool": "true", "null": "null"},
	}
	for _, odd := range oddStrings() {
		all = append(all, map[string]string{"note": odd})
	}
	many := map[string]string{}
	for i := range pairs {
		many[fmt.Sprintf("key-%d", i)] = "v"
	}
	all = append(all, many)

	d := w.newProcess()
	var want []registry.Entry
	for i, metadata := range all {
		in := w.pod(i)
		in.Metadata = metadata
		w.register(d, in)
		want = append(want, inService(in))
	}
	w.expect(want...)
	for i := range want {
		w.failOver(w.newProcess(), want[i].Instance)
		want[i].State = registry.OutOfService
	}
	w.expect(want...)
}
