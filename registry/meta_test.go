package registry_test

import (
	"maps"
	"reflect"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// marked is an instance with its mark, as SetMeta leaves all else.
func marked() registry.Instance {
	return registry.Instance{
		Service: "web", Address: "10.0.0.1", Port: 80, Cluster: "prod-1", Namespace: "shop", Pod: "web-1", UID: "uid-1",
	}
}

func mark(more map[string]string) map[string]string {
	m := map[string]string{"rollcall-cluster": "prod-1", "rollcall-namespace": "shop", "rollcall-pod": "web-1", "rollcall-uid": "uid-1"}
	maps.Copy(m, more)
	return m
}

func TestMetaIsReadBack(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		set    func(*registry.Instance)
		want   map[string]string // besides the mark
	}
	expect.Each(t, map[string]row{
		"mark alone": {reason: "what is not said is not written", set: func(*registry.Instance) {}},
		"weight":     {reason: "a number is a text there", set: func(in *registry.Instance) { in.Weight = 150 }, want: map[string]string{"weight": "150"}},
		"zone":       {reason: "as it is", set: func(in *registry.Instance) { in.Zone = "eu 1a" }, want: map[string]string{"zone": "eu 1a"}},
		"metadata": {
			reason: "as it is, empty values too",
			set: func(in *registry.Instance) {
				in.Metadata = map[string]string{"version": "v1", "canary": "", "Zone": "x", "rollcall": "y", "weights": "z"}
			},
			want: map[string]string{"version": "v1", "canary": "", "Zone": "x", "rollcall": "y", "weights": "z"},
		},
		"all": {
			reason: "side by side",
			set: func(in *registry.Instance) {
				in.Weight, in.Zone, in.Metadata = 1, "a", map[string]string{"version": "v1"}
			},
			want: map[string]string{"weight": "1", "zone": "a", "version": "v1"},
		},
		"metadata that is ours": {
			reason: "a mark that anybody could set would be none",
			set: func(in *registry.Instance) {
				in.Zone, in.Weight = "a", 7
				in.Metadata = map[string]string{"rollcall-uid": "stolen", "zone": "b", "weight": "9"}
			},
			want: map[string]string{"zone": "a", "weight": "7"},
		},
		"cluster's UID": {
			reason: "two clusters may have one name",
			set:    func(in *registry.Instance) { in.ClusterUID = "uid-of-kube-system" },
			want:   map[string]string{"rollcall-cluster-uid": "uid-of-kube-system"},
		},
		"registry": {
			reason: "two names may mean one server",
			set:    func(in *registry.Instance) { in.Registry = "main" },
			want:   map[string]string{"rollcall-registry": "main"},
		},
	}, func(t *testing.T, tc row) {
		in := marked()
		tc.set(&in)
		given := maps.Clone(in.Metadata)
		got := in.Meta()
		expect.Equal(t, mark(tc.want), got, "Meta: %s", tc.reason)
		if !maps.Equal(in.Metadata, given) {
			t.Errorf("Meta changed what it was given: %v, was %v", in.Metadata, given)
		}
		back := registry.Instance{Service: "web", Address: "10.0.0.1", Port: 80, Zone: "old", Weight: 3, Metadata: map[string]string{"old": ""}}
		back.SetMeta(got)
		maps.DeleteFunc(in.Metadata, func(key, _ string) bool { return registry.ReservedMeta(key) })
		if !back.Equal(in) || back.ClusterUID != in.ClusterUID {
			t.Errorf("read back: got %+v, want %+v\nreason: %s", back, in, tc.reason)
		}
		if len(back.Metadata) == 0 && back.Metadata != nil {
			t.Error("read back: metadata is empty, want nil")
		}
		clear(got)
		if !back.Equal(in) {
			t.Error("read back: it shares the map that it was read from")
		}
	})
}

func TestSetMetaOfOthersEntries(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		meta   map[string]string
		want   registry.Instance
	}
	expect.Each(t, map[string]row{
		"nothing":           {reason: "an entry may have none", meta: nil},
		"a weight in words": {reason: "others write what they want", meta: map[string]string{"weight": "heavy"}},
		"a broken weight":   {reason: "others write what they want", meta: map[string]string{"weight": "1.5"}},
		"no mark": {
			reason: "it has no owner", meta: map[string]string{"version": "v1"},
			want: registry.Instance{Metadata: map[string]string{"version": "v1"}},
		},
		"a mark of a later version": {
			reason: "what begins with the prefix is no metadata", meta: map[string]string{"rollcall-revision": "7"},
		},
	}, func(t *testing.T, tc row) {
		var got registry.Instance
		got.SetMeta(tc.meta)
		if !got.Equal(tc.want) {
			t.Errorf("got %+v, want %+v\nreason: %s", got, tc.want, tc.reason)
		}
	})
}

func TestReservedMeta(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]bool{
		registry.MetaCluster: true, registry.MetaClusterUID: true, "rollcall-namespace": true, "rollcall-pod": true, registry.MetaUID: true,
		"rollcall-registry": true, registry.MetaZone: true, registry.MetaWeight: true, "rollcall-": true, "rollcall-later": true,
		"rollcall": false, "Zone": false, "zones": false, "version": false, "": false,
	} {
		if got := registry.ReservedMeta(key); got != want {
			t.Errorf("%q: got reserved %t, want %t", key, got, want)
		}
	}
}

func TestEqual(t *testing.T) {
	t.Parallel()
	of := func(metadata map[string]string) registry.Instance {
		return registry.Instance{Service: "web", Metadata: metadata}
	}
	for name, tc := range map[string]struct {
		reason     string
		one, other map[string]string
		want       bool
	}{
		"another map":   {"the content counts", map[string]string{"a": ""}, map[string]string{"a": ""}, true},
		"an empty map":  {"clients see no difference", nil, map[string]string{}, true},
		"another value": {"clients see it", map[string]string{"a": "v1"}, map[string]string{"a": "v2"}, false},
		"one pair more": {"clients see it", map[string]string{"a": ""}, map[string]string{"a": "", "b": ""}, false},
	} {
		if one, other := of(tc.one), of(tc.other); one.Equal(other) != tc.want || other.Equal(one) != tc.want {
			t.Errorf("%s: want equal: %t, and both ways\nreason: %s", name, tc.want, tc.reason)
		}
	}
	for i := range reflect.TypeFor[registry.Instance]().NumField() {
		var other registry.Instance
		switch field := reflect.ValueOf(&other).Elem().Field(i); field.Kind() {
		case reflect.String:
			field.SetString("x")
		case reflect.Int:
			field.SetInt(1)
		case reflect.Slice:
			other.Tags = []string{"x"}
		default:
			other.Metadata = map[string]string{"x": ""}
		}
		name := reflect.TypeFor[registry.Instance]().Field(i).Name
		// An upgrade would register every pod again.
		if want := name == "ClusterUID"; (registry.Instance{}).Equal(other) != want || other.Equal(registry.Instance{}) != want {
			t.Errorf("field %s: want equal: %t, and both ways", name, want)
		}
	}
}

func TestOwns(t *testing.T) {
	t.Parallel()
	type row struct {
		reason          string
		in              registry.Instance
		uid, registered string
		want            bool
	}
	expect.Each(t, map[string]row{
		"the same":              {"its own entry", registry.Instance{UID: "a", Registry: "main"}, "a", "main", true},
		"another pod":           {"it has the address now", registry.Instance{UID: "a", Registry: "main"}, "b", "main", false},
		"another name":          {"it was registered there later", registry.Instance{UID: "a", Registry: "main"}, "a", "new", false},
		"an entry with no name": {"an older version wrote it", registry.Instance{UID: "a", Registry: "main"}, "a", "", true},
		"a call with no name":   {"it is for the entry whichever it names", registry.Instance{UID: "a"}, "a", "new", true},
		"no UID":                {"no pod is called that, nor is an entry without a mark", registry.Instance{}, "", "", false},
	}, func(t *testing.T, tc row) {
		meta := registry.Instance{UID: tc.uid, Registry: tc.registered}.Meta()
		if got, by := tc.in.Owns(tc.uid, tc.registered), tc.in.OwnsMeta(meta); got != tc.want || by != tc.want {
			t.Errorf("got %t, and %t by the metadata, want %t\nreason: %s", got, by, tc.want, tc.reason)
		}
	})
}
