// Package idle asks draining pods whether they are idle.
//
//	asker.go     which pod is asked when
//	call.go      one question, by HTTP
//	metrics.go   the sum of a metric's series
package idle

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/rollcall-dev/rollcall/internal/drain"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

const (
	// workers are the calls that can be under way. Each waits for a pod, which can be slow by intention: see [Asker.enter].
	workers = 64
	// perSecond bounds the calls of all pods. If more than that drain, each is asked less often.
	perSecond = 500
	// shortestPause and longestPause are between two questions to a pod. The longer it drains, the less a second matters.
	shortestPause, longestPause = time.Second, 10 * time.Second
	// share of its drain that a pause can cost a pod.
	share = 30
	// wakePause is between two wakes of a pod that stays busy, for people who watch what is left.
	wakePause = 5 * time.Second
	// keptFor is how long a question counts unless it is repeated.
	keptFor = 3 * time.Minute
)

// Options of an Asker.
type Options struct {
	// Wake reconciles a pod that is idle, or of which something new is known.
	Wake  func(lifecycle.PodID)
	Clock clock.WithTicker
}

// Asker asks pods again and again, each at most once a second and never twice at the same time. It is safe for concurrent use, and keeps
// nothing that a new leader would miss: that one asks itself.
type Asker struct {
	Options

	call    func(context.Context, drain.Question) drain.Answer
	limiter *rate.Limiter

	mu sync.Mutex
	// queue is nil before Start.
	queue workqueue.TypedDelayingInterface[types.UID]
	pods  map[types.UID]*asked
	// under has the calls under way by namespace, and busy their sum.
	under map[string]int
	busy  int
}

// asked is a pod. Only its turn in the queue removes it, so it never has two.
type asked struct {
	drain.Question

	last drain.Answer
	// renewed is when the question was last repeated. Stopped: it need not be answered any more.
	renewed time.Time
	stopped bool
	// woken is when, and shown is what for.
	woken time.Time
	shown string
}

// New returns an Asker, which asks once it is started.
func New(o Options) *Asker {
	return &Asker{
		Options: o, call: newCaller().ask, limiter: rate.NewLimiter(perSecond, workers),
		pods: map[types.UID]*asked{}, under: map[string]int{},
	}
}

// Ask has a pod asked until [Asker.Stop], or until the question has not been repeated for a while. It does not wait.
func (a *Asker) Ask(q drain.Question) {
	a.mu.Lock()
	defer a.mu.Unlock()
	one, now := a.pods[q.Pod.UID], a.Clock.Now()
	switch {
	case one == nil:
		one = &asked{Question: q}
		a.pods[q.Pod.UID] = one
		if a.queue != nil {
			a.queue.Add(q.Pod.UID)
		}
	case one.stopped || !one.Asks(q):
		one.last, one.shown = drain.Answer{}, ""
	}
	one.Question, one.renewed, one.stopped = q, now, false
}

// Stop ends the questions to a pod.
func (a *Asker) Stop(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if one := a.pods[uid]; one != nil {
		one.stopped = true
	}
}

// Last returns the last answer to the question.
func (a *Asker) Last(q drain.Question) drain.Answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	one := a.pods[q.Pod.UID]
	if one == nil || one.stopped || !one.Asks(q) {
		return drain.Answer{}
	}
	return one.last
}

// Start implements controller-runtime's Runnable: it asks until ctx ends.
func (a *Asker) Start(ctx context.Context) error {
	queue := a.open()
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for a.next(ctx, queue) {
				continue
			}
		})
	}
	<-ctx.Done()
	queue.ShutDown()
	all.Wait()
	return nil
}

// open returns the queue, with the pods of before Start.
func (a *Asker) open() workqueue.TypedDelayingInterface[types.UID] {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queue = workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[types.UID]{Clock: a.Clock})
	for uid := range a.pods {
		a.queue.Add(uid)
	}
	return a.queue
}

// next asks one pod, and reports whether there is more to do.
func (a *Asker) next(ctx context.Context, queue workqueue.TypedDelayingInterface[types.UID]) bool {
	uid, ends := queue.Get()
	if ends {
		return false
	}
	defer queue.Done(uid)
	q, wanted := a.take(uid)
	if !wanted {
		return true
	}
	pause := shortestPause
	if a.hasRoom(q.Pod.Namespace) && a.limiter.Wait(ctx) == nil && a.enter(q.Pod.Namespace) {
		pause = a.ask(ctx, q)
	}
	queue.AddAfter(uid, pause)
	return true
}

// take returns what a pod is to be asked, if that is still wanted.
func (a *Asker) take(uid types.UID) (q drain.Question, wanted bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	one := a.pods[uid]
	if one.stopped || a.Clock.Since(one.renewed) > keptFor {
		delete(a.pods, uid)
		return drain.Question{}, false
	}
	return one.Question, true
}

// hasRoom comes before the limit on calls of all pods, of which a namespace without room must not use up any.
func (a *Asker) hasRoom(namespace string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.under[namespace] < workers-a.busy
}

// enter lets a namespace have as many calls under way as are free. Tenants whose pods don't answer so leave room for the others.
func (a *Asker) enter(namespace string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.under[namespace] >= workers-a.busy {
		return false
	}
	a.under[namespace]++
	a.busy++
	return true
}

func (a *Asker) leave(namespace string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.busy--
	if a.under[namespace]--; a.under[namespace] == 0 {
		delete(a.under, namespace)
	}
}

// ask puts the question, and returns when to put it again.
func (a *Asker) ask(ctx context.Context, q drain.Question) (pause time.Duration) {
	defer a.leave(q.Pod.Namespace)
	at := a.Clock.Now()
	answer := a.call(ctx, q)
	answer.Asked = at
	if ctx.Err() == nil && a.answered(q, answer) {
		a.Wake(q.Pod)
	}
	return min(max(a.Clock.Since(q.Since)/share, shortestPause), longestPause)
}

// answered notes an answer, and reports whether to wake the pod.
func (a *Asker) answered(q drain.Question, answer drain.Answer) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	one := a.pods[q.Pod.UID]
	if one.stopped || !one.Asks(q) {
		return false
	}
	one.last = answer
	now, shown := a.Clock.Now(), answer.String()
	if shown == one.shown || !answer.Idle && now.Sub(one.woken) < wakePause {
		return false
	}
	one.woken, one.shown = now, shown
	return true
}
