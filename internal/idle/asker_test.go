package idle

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/rollcall-dev/rollcall/internal/drain"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/bubble"
)

// asking is an Asker whose pods answer as the test says, after a while. Its time is the bubble's.
type asking struct {
	*testing.T
	*Asker

	mu       sync.Mutex
	answers  answers
	takes    time.Duration
	asked    map[types.UID][]time.Time
	under    map[types.UID]int
	parallel int
	most     int
	wakes    []time.Time
}

func startAsking(t *testing.T) *asking {
	t.Helper()
	a := &asking{T: t, asked: map[types.UID][]time.Time{}, under: map[types.UID]int{}, answers: busy(3)}
	a.Asker = New(Options{Clock: clock.RealClock{}, Wake: func(lifecycle.PodID) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.wakes = append(a.wakes, time.Now())
	}})
	a.call = a.answer
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = a.Start(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	return a
}

type answers func(drain.Question) drain.Answer

func (a answers) of(_ context.Context, q drain.Question) drain.Answer { return a(q) }

func busy(left int64) answers {
	return func(drain.Question) drain.Answer { return drain.Answer{Left: left} }
}

func (a *asking) answer(ctx context.Context, q drain.Question) drain.Answer {
	a.mu.Lock()
	a.asked[q.Pod.UID] = append(a.asked[q.Pod.UID], time.Now())
	a.parallel++
	a.most = max(a.most, a.parallel)
	if a.under[q.Pod.UID]++; a.under[q.Pod.UID] > 1 {
		a.Errorf("pod %s is asked while it is asked", q.Pod.UID)
	}
	answers, takes := a.answers, a.takes
	a.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.parallel--
	a.under[q.Pod.UID]--
	return answers(q)
}

func questionOf(name string) drain.Question {
	q := drain.Question{IP: "10.0.0.1", Until: drain.Until{Port: 8080, Path: "/idle"}, Since: time.Now()}
	q.Pod.Namespace, q.Pod.Name, q.Pod.UID = "shop", name, types.UID(name)
	return q
}

// drains repeats the question for so long, as visits do.
func (a *asking) drains(q drain.Question, during time.Duration) {
	for end := time.Now().Add(during); time.Now().Before(end); {
		a.Ask(q)
		time.Sleep(min(30*time.Second, time.Until(end)))
	}
	synctest.Wait()
}

func (a *asking) times(uid types.UID) []time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked[uid]
}

func (a *asking) woken() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.wakes)
}

func TestAsker(t *testing.T) {
	t.Parallel()
	bubble.Scenes(t, map[string]func(t *testing.T){
		"a busy pod is asked each second, and less often later": func(t *testing.T) {
			a, q := startAsking(t), questionOf("web-1")
			a.drains(q, 10*time.Minute)
			times := a.times("web-1")
			for i, at := range times[1:] {
				if since := at.Sub(times[i]); since < time.Second || since > 11*time.Second {
					t.Errorf("asked %s after the last time", since)
				}
			}
			if n := len(times); n < 90 || n > 140 {
				t.Errorf("asked %d times in 10 minutes", n)
			}
			if got := a.Last(q); got.Left != 3 || !got.Asked.Equal(times[len(times)-1]) {
				t.Errorf("the last answer is %+v", got)
			}
			if n := a.woken(); n != 1 {
				t.Errorf("woken %d times for the same answer", n)
			}
		},
		"a slow pod has one question at a time": func(t *testing.T) {
			a, q := startAsking(t), questionOf("web-1")
			a.takes = 2 * time.Second
			a.drains(q, 20*time.Second)
			if n := len(a.times("web-1")); n < 6 || n > 8 {
				t.Errorf("asked %d times in 20 s by calls of 2 s and pauses of 1 s", n)
			}
		},
		"an idle pod wakes its reconciler immediately": func(t *testing.T) {
			a, q := startAsking(t), questionOf("web-1")
			began := time.Now()
			a.answers = func(drain.Question) drain.Answer {
				return drain.Answer{Idle: time.Since(began) >= 3*time.Second, Left: 1}
			}
			a.drains(q, 4*time.Second)
			if n := a.woken(); n != 2 || time.Since(a.wakes[1]) > 1100*time.Millisecond {
				t.Errorf("woken %d times: %v", n, a.wakes)
			}
			if !a.Last(q).Idle {
				t.Error("the last answer is not idle")
			}
		},
		"what changes all the time wakes it every 5 s": func(t *testing.T) {
			a, q := startAsking(t), questionOf("web-1")
			var n int64
			a.answers = func(drain.Question) drain.Answer {
				n++
				return drain.Answer{Left: n}
			}
			a.drains(q, 20*time.Second)
			if n := a.woken(); n < 4 || n > 5 {
				t.Errorf("woken %d times in 20 s", n)
			}
		},
		"a pod that is stopped is asked no more": func(t *testing.T) {
			a, q := startAsking(t), questionOf("web-1")
			a.drains(q, 3*time.Second)
			a.Stop("web-1")
			a.Stop("unknown")
			n := len(a.times("web-1"))
			time.Sleep(time.Minute)
			if got := len(a.times("web-1")); got != n || !a.Last(q).Asked.IsZero() || len(a.pods) > 0 {
				t.Errorf("asked %d times since, last answer %+v, %d pods kept", got-n, a.Last(q), len(a.pods))
			}
		},
		"a pod of before the start is asked": func(t *testing.T) {
			a := New(Options{Clock: clock.RealClock{}, Wake: func(lifecycle.PodID) {}})
			a.call = busy(1).of
			a.Ask(questionOf("web-1"))
			ctx, stop := context.WithTimeout(t.Context(), time.Second)
			defer stop()
			_ = a.Start(ctx)
			if got := a.Last(questionOf("web-1")); got.Left != 1 {
				t.Errorf("the last answer is %+v", got)
			}
		},
		"stopped and asked again, it has one turn": func(t *testing.T) {
			a, q := startAsking(t), questionOf("web-1")
			for range 100 {
				a.Stop("web-1")
				a.Ask(q)
				time.Sleep(100 * time.Millisecond)
			}
			if n := len(a.times("web-1")); n > 11 {
				t.Errorf("asked %d times in 10 s", n)
			}
		},
		"a pod that nobody visits any more is forgotten": func(t *testing.T) {
			a := startAsking(t)
			a.Ask(questionOf("web-1"))
			time.Sleep(keptFor + time.Minute)
			synctest.Wait()
			if len(a.pods) > 0 {
				t.Error("the pod is kept")
			}
		},
		"an answer to another question does not count": func(t *testing.T) {
			a, q := startAsking(t), questionOf("web-1")
			a.takes = time.Second
			a.answers = func(drain.Question) drain.Answer { return drain.Answer{Idle: true} }
			a.Ask(q)
			time.Sleep(500 * time.Millisecond)
			q.Until.Path = "/other"
			a.Ask(q)
			time.Sleep(time.Second)
			if got := a.Last(q); got.Idle || a.woken() > 0 {
				t.Errorf("the answer to the question before counts: %+v, woken %d times", got, a.woken())
			}
			time.Sleep(3 * time.Second)
			if !a.Last(q).Idle {
				t.Error("the new question has no answer")
			}
		},
		"the clients' silence in one namespace leaves room for another": func(t *testing.T) {
			a := startAsking(t)
			a.takes = timeout
			for n := range 1000 {
				q := questionOf(fmt.Sprintf("silent-%d", n))
				q.Pod.Namespace = "hostile"
				a.Ask(q)
			}
			time.Sleep(10 * time.Second)
			a.Ask(questionOf("web-1"))
			time.Sleep(5 * time.Second)
			if n := len(a.times("web-1")); n == 0 {
				t.Error("the other namespace's pod was not asked within 5 s")
			}
			if a.most > workers/2+1 {
				t.Errorf("%d calls of one namespace were under way", a.most)
			}
		},
		"ten thousand pods are asked 500 times a second": func(t *testing.T) {
			a := startAsking(t)
			for n := range 10_000 {
				q := questionOf(fmt.Sprintf("web-%d", n))
				q.Pod.Namespace = fmt.Sprintf("shop-%d", n%20)
				a.Ask(q)
			}
			const during = 60
			time.Sleep(during * time.Second)
			asked, never := 0, 0
			a.mu.Lock()
			defer a.mu.Unlock()
			for n := range 10_000 {
				times := len(a.asked[types.UID(fmt.Sprintf("web-%d", n))])
				if asked += times; times == 0 {
					never++
				}
			}
			if asked > perSecond*during+workers || asked < perSecond*during/2 || never > 0 || a.most > workers {
				t.Errorf("asked %d times in %d s, %d at once, %d pods never", asked, during, a.most, never)
			}
		},
	})
}
