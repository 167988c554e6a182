package registrytest

import "time"

// The bounds are generous: a driver that keeps the contract is faster by orders of magnitude.
const (
	// callTimeout bounds a normal call, prompt a call whose context has ended.
	callTimeout = 3 * time.Minute
	prompt      = 5 * time.Second
	// cleanUpTimeout bounds the removal of everything that a case wrote.
	cleanUpTimeout = 5 * time.Minute
	// pause is the time between two checks of something that the suite waits for.
	pause = 50 * time.Millisecond
)

// patience is how long the suite waits for what is slow in a registry.
type patience struct {
	// list is how much longer than its Staleness a list may lag.
	list time.Duration
	// probe is how long an instance that was registered may take to reach the clients.
	probe time.Duration
	// lease is how long the shortest lease may last, with the time until the registry removes what has expired.
	lease time.Duration
	// restart is how long after a restart a driver may take until its calls succeed again.
	restart time.Duration
}

func (h Harness) patience() patience {
	if h.impatient != nil {
		return *h.impatient
	}
	return patience{list: 20 * time.Second, probe: 2 * time.Minute, lease: 5 * time.Minute, restart: 2 * time.Minute}
}
