package registrytest

import "time"

// The bounds are generous: a driver that keeps the contract is faster by orders.
const (
	// callTimeout bounds a call that nothing is wrong with, prompt one whose context has ended.
	callTimeout = 3 * time.Minute
	prompt      = 5 * time.Second
	// cleanUpTimeout bounds the removal of all that a case wrote.
	cleanUpTimeout = 5 * time.Minute
	// pause is between two looks at something that is waited for.
	pause = 50 * time.Millisecond
)

// patience is how long the suite waits for what takes a registry its time.
type patience struct {
	// list is how much longer than it says a list may lag.
	list time.Duration
	// probe is how long an instance that was registered may take to reach the clients.
	probe time.Duration
	// lease is how long the shortest lease, and the registry's own round that removes what has none, may take.
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
