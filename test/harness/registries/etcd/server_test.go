package etcd

import "testing"

func TestReportedVersion(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ reason, output, want string }{
		"etcd": {
			reason: "the first line names the version without a v",
			output: "etcd Version: 3.6.16\nGit SHA: Not provided\nGo Version: go1.26.8\n", want: "v3.6.16",
		},
		"other": {reason: "anything else is no version", output: "usage: etcd\n", want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := reportedVersion(tc.output); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
