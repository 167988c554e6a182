package app

import (
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/resync"
	"github.com/rollcall-dev/rollcall/internal/statuspage"
	"github.com/rollcall-dev/rollcall/internal/tracker"
)

// facts are what the status page is built from.
func (a *app) facts(unready string, resyncs *resync.Resync, waits []metrics.Wait, known *tracker.Tracker) statuspage.Facts {
	f := statuspage.Facts{
		Manager: statuspage.Manager{Leads: isClosed(a.manager.Elected()), DryRun: a.dryRun != nil, NotReady: unready},
		Drivers: a.drivers.current.Load().drivers(), Clients: a.drivers.slots(), Resyncs: resyncs.Status(),
		Instances: known.Seen(), Waits: waits,
	}
	f.Name, f.Leader = a.lease.pods()
	return f
}

// isClosed reports whether elected is closed: whether this manager has begun to lead. One that leads no more ends.
func isClosed(elected <-chan struct{}) bool {
	select {
	case <-elected:
		return true
	default:
		return false
	}
}
