package cluster

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rollcall-dev/rollcall/test/harness/cache"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestOptions(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason     string
		opts, want Options
		err        string
	}{
		"zero":         {reason: "the zero value is complete", want: Options{Nodes: DefaultNodes, PodCIDR: DefaultPodCIDR}},
		"nodes":        {reason: "no cluster has fewer than no nodes", opts: Options{Nodes: -1}, err: "Options.Nodes is -1"},
		"no range":     {reason: "an address is not a range", opts: Options{PodCIDR: "127.0.0.1"}, err: "Options.PodCIDR"},
		"not loopback": {reason: "other machines have that address", opts: Options{PodCIDR: "10.0.0.0/8"}, err: "Options.PodCIDR"},
		"ipv6":         {reason: "IPv6 has one loopback address", opts: Options{PodCIDR: "::1/128"}, err: "Options.PodCIDR"},
	} {
		got := tc.opts
		expect.Error(t, name+": "+tc.reason, got.complete(), tc.err)
		if diff := cmp.Diff(tc.want, got); tc.err == "" && diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, tc.reason, diff)
		}
	}
}

// TestStages: each stage has a file and a word in pod-next.jq, and each file a stage.
func TestStages(t *testing.T) {
	t.Parallel()
	next, err := stageFiles.ReadFile("stages/pod-next.jq")
	expect.NoError(t, err)
	files := map[string]bool{"pod-next.jq": true}
	for _, s := range podStages() {
		_, err := s.document(string(next))
		expect.NoError(t, err)
		files["pod-"+s.name+".yaml"] = true
		if want := strconv.Quote(s.name); !strings.Contains(string(next), want) {
			t.Errorf("pod-next.jq never says %s", want)
		}
	}
	entries, err := stageFiles.ReadDir("stages")
	expect.NoError(t, err)
	for _, entry := range entries {
		if !files[entry.Name()] {
			t.Errorf("no stage uses %s", entry.Name())
		}
	}
}

// TestVersions: each server's module pins a version, and Kubernetes' servers say theirs.
func TestVersions(t *testing.T) {
	t.Parallel()
	modules, err := serverModules(t.Context())
	expect.NoError(t, err)
	for _, m := range modules {
		version, err := cache.PinnedVersion(t.Context(), m.Dir, m.Requires)
		if err != nil || !strings.HasPrefix(version, "v") {
			t.Errorf("%s: got version %q, %v", m.Name, version, err)
		}
	}
	_, err = cache.PinnedVersion(t.Context(), modules[0].Dir, "example.com/absent")
	expect.Error(t, "a module that is not required has no version", err, "requires no example.com/absent")
	flags := kubernetesLDFlags("v1.34.4")
	for _, want := range []string{"gitVersion=v1.34.4", "gitMajor=1 ", "version.gitMinor=34"} {
		if !strings.Contains(flags, want) {
			t.Errorf("flags %q lack %q: clients would see v0.0.0", flags, want)
		}
	}
}
