package httpregistry

import (
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
)

// FuzzListing: whatever a server answers to a list, it is taken whole or not at all, and nothing of other clusters is. What
// statuses mean is the kit's, and fuzzed there.
func FuzzListing(f *testing.F) {
	for _, seed := range []string{
		"", "garbage", `{"instances": []}`, `{"instances": null}`, `{"instances": [{"cluster":"prod-1","state":"Absent"}]}`,
		`{"instances": [{"cluster":"prod-1","state":"InService","port":80,"metadata":{},"tags":["b","a"]}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		entries, err := decodeListing(raw, "prod-1")
		if err != nil && entries != nil {
			t.Errorf("gave %+v and %v", entries, err)
		}
		for _, e := range entries {
			if e.Cluster != "prod-1" || e.State != registry.InService && e.State != registry.OutOfService {
				t.Errorf("gave %+v", e)
			}
		}
	})
}
