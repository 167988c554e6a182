package registrytest

import "time"

// Impatient waits no longer than d for anything, so that a driver that is broken by design costs little time.
func Impatient(h Harness, d time.Duration) Harness {
	h.impatient = &patience{list: d, probe: d, lease: d, restart: d}
	return h
}
