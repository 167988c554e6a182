package cluster

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestOptions(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		opts   Options
		want   Options
		err    string
	}{
		"zero": {
			reason: "the zero value is complete",
			want:   Options{Nodes: DefaultNodes, PodCIDR: DefaultPodCIDR},
		},
		"kept": {
			reason: "what is set stays",
			opts:   Options{Nodes: 1, PodCIDR: "127.9.0.0/24"},
			want:   Options{Nodes: 1, PodCIDR: "127.9.0.0/24"},
		},
		"nodes": {
			reason: "no cluster has fewer than no nodes",
			opts:   Options{Nodes: -1}, err: "Options.Nodes is -1",
		},
		"no range": {
			reason: "an address is not a range",
			opts:   Options{PodCIDR: "127.0.0.1"}, err: "Options.PodCIDR",
		},
		"not loopback": {
			reason: "nothing answers at addresses of other machines",
			opts:   Options{PodCIDR: "10.0.0.0/8"}, err: "Options.PodCIDR",
		},
		"ipv6": {
			reason: "IPv6 has one loopback address",
			opts:   Options{PodCIDR: "::1/128"}, err: "Options.PodCIDR",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := tc.opts
			err := got.complete()
			expectError(t, tc.reason, err, tc.err)
			if diff := cmp.Diff(tc.want, got); tc.err == "" && diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestStages(t *testing.T) {
	t.Parallel()
	next, err := stageFiles.ReadFile("stages/pod-next.jq")
	expect.NoError(t, err)
	files := map[string]bool{"pod-next.jq": true}
	for _, s := range podStages() {
		if _, err := s.document(string(next)); err != nil {
			t.Error(err)
		}
		if !s.deletes {
			files["pod-"+s.name+".yaml"] = true
		}
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
