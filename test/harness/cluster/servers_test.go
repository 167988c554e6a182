package cluster

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rollcall-dev/rollcall/test/harness/cache"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestPinnedVersions(t *testing.T) {
	t.Parallel()
	modules, err := serverModules(t.Context())
	expect.NoError(t, err)
	got := map[string]string{}
	for _, m := range modules {
		version, err := cache.PinnedVersion(t.Context(), m.Dir, m.Requires)
		expect.NoError(t, err)
		got[m.Name] = version
	}
	want := map[string]string{"etcd": "v3.6.16", "kubernetes": "v1.34.4", "kruise": "v1.8.3", "kwok": "v0.7.0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the pins are others than the documented ones (-want +got):\n%s", diff)
	}
	_, err = cache.PinnedVersion(t.Context(), modules[0].Dir, "example.com/absent")
	expectError(t, "a module that is not required has no version", err, "requires no example.com/absent")
}

func TestReportedVersions(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		parse  func(string) string
		output string
		want   string
	}{
		"kubernetes": {
			reason: "one line",
			parse:  kubernetesVersion, output: "Kubernetes v1.34.4\n", want: "v1.34.4",
		},
		"kubernetes +": {
			reason: "a vendor's build is another",
			parse:  kubernetesVersion, output: "Kubernetes v1.34.4+k3s1\n", want: "v1.34.4+k3s1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.parse(tc.output); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestKubernetesLDFlags(t *testing.T) {
	t.Parallel()
	got := kubernetesLDFlags("v1.34.4")
	for _, want := range []string{"gitVersion=v1.34.4", "gitMajor=1 ", "version.gitMinor=34"} {
		if !strings.Contains(got, want) {
			t.Errorf("flags %q lack %q: clients would see v0.0.0", got, want)
		}
	}
}

func expectError(t *testing.T, reason string, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: unexpected error: %v", reason, err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("%s: got error %v, want one with %q", reason, err, want)
	}
}
