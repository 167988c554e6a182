package checker

import (
	"fmt"
	"time"
)

// leaseSlack is what a call may be on its way, and awakes how long a manager that was paused may need to notice.
const leaseSlack, awakes = time.Second, 2 * time.Second

// unleased says that a manager changes something at a time although it may not lead any more, or nothing. Renewed are the times of its
// writes of the lease that were accepted, and lasts is how long each counts.
func unleased(at time.Time, renewed []time.Time, lasts time.Duration) string {
	var latest time.Time
	for _, r := range renewed {
		if !r.After(at) && r.After(latest) { // their answers may overtake each other
			latest = r
		}
	}
	switch {
	case latest.IsZero():
		return "it has never written the lease"
	case at.Sub(latest) > lasts+leaseSlack:
		return fmt.Sprintf("it wrote the lease %s before, which lasts %s", at.Sub(latest).Round(time.Millisecond), lasts)
	default:
		return ""
	}
}

// Renewed writes down that a manager wrote the lease, and that the API server accepted that.
func (j *Journal) Renewed(manager string, at time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.renewed[manager] = append(j.renewed[manager], at)
}

// checkLease finds a manager that changes something without the lease. One that was just paused may not know yet. The caller holds the
// lock.
func (j *Journal) checkLease(manager, what, uid string, at time.Time) {
	if j.Lease == 0 {
		return
	}
	for _, b := range j.blindnesses {
		if b.ended.IsZero() || at.Before(b.ended.Add(awakes)) {
			return
		}
	}
	if why := unleased(at, j.renewed[manager], j.Lease); why != "" {
		j.violations = append(j.violations, Violation{UID: uid, At: at, Text: fmt.Sprintf("lease: %s by manager %s, and %s", what, manager, why)})
	}
}
