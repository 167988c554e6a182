package consul

import "testing"

func TestReportedVersion(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ reason, output, want string }{
		"consul": {
			reason: "the first line names the version",
			output: "Consul v1.19.2\nBuild Date 1970-01-01T00:00:01Z\nProtocol 2 spoken by default\n", want: "v1.19.2",
		},
		"other": {reason: "anything else is no version", output: "usage: consul\n", want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := reportedVersion(tc.output); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
