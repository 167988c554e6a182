package app

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/orders"
)

var (
	errDeposed    = errors.New("another manager has held the lease since, or may have: what this one knows of the registry may be out of date")
	errNotRenewed = errors.New("the lease was not renewed in time: another manager may act before this call ends")
)

// identitySeparator stands behind the pod's name in an identity.
const identitySeparator = "_"

// unknownHolder holds a lease that is not there, for as long as one lasts: see [lease.orphaned].
const unknownHolder = "unknown"

// lease is what one manager holds while it works. The election alone does not make managers exclude one another: a process that
// was stopped for longer than the lease continues when it wakes. So calls to the registry and writes to the API server are
// permitted by the time of the last renewal, and a manager that finds another holder after itself exits.
type lease struct {
	resourcelock.Interface
	now func() moment
	// times are those of the election.
	times config.Lease

	mu sync.Mutex
	// holder is who held the lease when it was last read or written; empty if it was free.
	holder string
	// renewed is when the last renewal that succeeded was sent; zero while another manager leads.
	renewed moment
	lost    bool
	// theirs is the last renewal by another holder that was seen here, and ahead how much later this clock read when it was.
	theirs time.Time
	ahead  time.Duration
	// settled is when the last of the calls that timed out can no longer be carried out.
	settled time.Time
	// deposed is called once when another holder is found.
	deposed func()
	// failing returns why this manager could do nothing with the lease, or nothing.
	failing func() string
	// yields is since when it leaves the lease, of that holder or of none, to another.
	yields moment
	// orphan is since when nothing shows who led last; zero while a lease does.
	orphan moment
	logger logr.Logger
}

// moment is one reading of both clocks. The monotonic clock stands still while the machine sleeps, and the wall clock can
// be set.
type moment struct{ monotonic, wall time.Time }

func readClocks() moment {
	now := time.Now()
	return moment{monotonic: now, wall: now.Round(0)} // rounding strips the monotonic reading, which Sub would prefer
}

// since returns how much time has passed by the clock that counted more of it.
func (m moment) since(earlier moment) time.Duration {
	return max(m.monotonic.Sub(earlier.monotonic), m.wall.Sub(earlier.wall))
}

// newLease makes the lease. The election makes no events: the lease itself has the leader's name.
func newLease(to *rest.Config, namespace string, times config.Lease, logger logr.Logger) (*lease, error) {
	host, err := podName()
	if err != nil {
		return nil, fmt.Errorf("reading the host name, which identifies this manager in the lease: %w", err)
	}
	identity := resourcelock.ResourceLockConfig{Identity: host + identitySeparator + string(uuid.NewUUID())}
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, namespace, orders.Lease, identity, to, times.RenewDeadline())
	if err != nil {
		return nil, fmt.Errorf("making the lease: %w", err)
	}
	return &lease{
		Interface: lock, now: readClocks, times: times, deposed: func() {}, failing: func() string { return "" },
		logger: logger.WithName("lease"),
	}, nil
}

// Get reads the lease, for the election. After this manager has held it, another holder's name in it is the end.
func (l *lease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case apierrors.IsNotFound(err), err == nil && record.HolderIdentity == "" && record.RenewTime.IsZero():
		return l.orphaned(record, raw, err)
	case err != nil:
		return record, raw, err
	}
	l.orphan = moment{}
	if record.HolderIdentity != l.holder {
		l.yields = moment{}
	}
	l.holder = record.HolderIdentity
	if at := record.RenewTime.Time; record.HolderIdentity != l.Identity() && !at.IsZero() && !at.Equal(l.theirs) {
		l.theirs, l.ahead = at, l.now().wall.Sub(at)
	}
	if l.renewed != (moment{}) && record.HolderIdentity != l.Identity() {
		l.lose()
	}
	if l.lost {
		return nil, nil, errDeposed
	}
	return record, raw, nil
}

func (l *lease) lose() {
	if !l.lost {
		l.lost = true
		l.deposed()
	}
}

// orphaned is the answer for a lease that is not there, or that nobody has held and given back. It may have been deleted a moment ago,
// and nothing shows whether its holder still works: so it counts as held, for as long as it would have. A leader makes it again, unless
// its own last renewal is so long ago that another may have led since.
func (l *lease) orphaned(
	record *resourcelock.LeaderElectionRecord, raw []byte, err error,
) (*resourcelock.LeaderElectionRecord, []byte, error) {
	now := l.now()
	if l.lost || l.renewed != (moment{}) {
		if err == nil || now.since(l.renewed) >= l.times.Duration() {
			l.lose()
		}
		if l.lost {
			return nil, nil, errDeposed
		}
		return record, raw, err
	}
	if l.orphan == (moment{}) {
		l.holder, l.yields, l.orphan = "", moment{}, now
		l.logger.Info("no lease shows whether another manager led a moment ago: waiting for as long as its lease would have lasted",
			"for", l.times.Duration().String())
	}
	// The clock that a machine's time server does not set.
	if now.monotonic.Sub(l.orphan.monotonic) >= l.times.Duration() {
		return record, raw, err
	}
	return &resourcelock.LeaderElectionRecord{
		HolderIdentity: unknownHolder, LeaseDurationSeconds: int(l.times.Duration() / time.Second),
		AcquireTime: metav1.NewTime(l.orphan.wall), RenewTime: metav1.NewTime(l.orphan.wall),
	}, []byte(unknownHolder), nil
}

// Create takes the lease if there was none, for the election.
func (l *lease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.hold(func() error { return l.Interface.Create(ctx, record) })
}

// Update takes or renews the lease, for the election.
func (l *lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.hold(func() error { return l.Interface.Update(ctx, record) })
}

func (l *lease) hold(write func() error) error {
	if err := l.yield(); err != nil {
		return err
	}
	sent := l.now()
	if err := write(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost {
		return errDeposed
	}
	l.renewed, l.holder = sent, l.Identity()
	return nil
}

// yield leaves the lease, for long enough, to a manager that can work with it: one without its caches would lead and do nothing.
func (l *lease) yield() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	why := l.failing()
	switch {
	case why == "" || l.renewed != moment{}:
		return nil
	case l.yields == moment{}:
		l.yields = l.now()
	case l.now().since(l.yields) >= l.times.YieldFor():
		return nil
	}
	return fmt.Errorf("leaving the lease for %s to a manager that is ready: %s", l.times.YieldFor(), why)
}

// pods returns the names of the pods of this manager and of the one that leads, as far as the lease has been read. A nil lease
// names none.
func (l *lease) pods() (own, leader string) {
	if l == nil {
		return "", ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	own, _, _ = strings.Cut(l.Identity(), identitySeparator)
	leader, _, _ = strings.Cut(l.holder, identitySeparator)
	return own, leader
}

// aheadOfLast returns how much later, at most, this manager's clock reads than that of the one which led before: a renewal is
// seen after it was made. If none was seen, as without a lease, there is no bound.
func (l *lease) aheadOfLast() time.Duration {
	if l == nil {
		return math.MaxInt64
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.theirs.IsZero() {
		return math.MaxInt64
	}
	return l.ahead
}

// permit refuses what takes up to timeout if it might end after another manager has begun to act. A nil lease permits
// everything.
func (l *lease) permit(timeout time.Duration) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.lost:
		return errDeposed
	case l.renewed == moment{}, l.now().since(l.renewed)+timeout >= l.times.Duration():
		return errNotRenewed
	default:
		return nil
	}
}

// mayLand notes that a call whose outcome is unknown may still be carried out until then.
func (l *lease) mayLand(until time.Time) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if until.After(l.settled) {
		l.settled = until
	}
}

// unsettled returns for how long a call that timed out may still be carried out. It is never longer than the lease: see
// permit and registryclient.Fence.
func (l *lease) unsettled() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, l.settled.Sub(l.now().monotonic))
}

// release gives the lease back, so that the next manager need not wait for it to expire. It must be called only when
// nothing works any more and nothing is unsettled. The election's own release is not used: after a renewal that failed it
// gives the lease back while the controllers still work.
func (l *lease) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.times.RenewDeadline())
	defer cancel()
	// The election's last renewal may land between reading and writing.
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		record, _, err := l.Interface.Get(ctx)
		if err != nil || record.HolderIdentity != l.Identity() {
			return client.IgnoreNotFound(err) // a manager that stops early may not have made it
		}
		record.HolderIdentity = ""
		record.LeaseDurationSeconds = 1
		record.RenewTime.Time = l.now().wall
		record.AcquireTime = record.RenewTime
		return l.Interface.Update(ctx, *record)
	})
	if err != nil {
		return fmt.Errorf("giving the lease back: %w", err)
	}
	return nil
}
