package app

import "testing"

func TestRestingGivesMemoryBackAfterAStorm(t *testing.T) {
	t.Parallel()
	const quiet, busy = restBelow, restFor
	for name, tc := range map[string]struct {
		reason    string
		allocates []uint64
		want      int
	}{
		"storm":        {"the memory may be used again at once", []uint64{busy, busy, busy, quiet}, 0},
		"after it":     {"nothing will use it soon", []uint64{busy, busy, quiet, quiet}, 1},
		"still quiet":  {"there is nothing more to give back", []uint64{busy, quiet, quiet, quiet, quiet}, 1},
		"small matter": {"collecting garbage costs more than that is worth", []uint64{quiet, quiet, quiet, quiet}, 0},
		"second storm": {"it has made garbage of its own", []uint64{busy, quiet, quiet, busy, quiet, quiet}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			released, allocated := 0, uint64(0)
			r := &resting{release: func() { released++ }}
			for _, bytes := range tc.allocates {
				allocated += bytes
				r.look(allocated)
			}
			if released != tc.want {
				t.Errorf("memory was given back %d times, want %d\nreason: %s", released, tc.want, tc.reason)
			}
		})
	}
}
