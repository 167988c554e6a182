package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/history"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
	"github.com/rollcall-dev/rollcall/test/harness/wait"
)

const (
	// movers is how many requests the driver has under way, as many as the floor.
	movers = 32
	// quietFor is how long nothing happens before a measurement begins or ends.
	quietFor = 300 * time.Millisecond
	// waveTimeout bounds a wave, and podTimeout one of very many pods: the recipe takes a minute for the slowest registry.
	waveTimeout, podTimeout = 5 * time.Minute, 50 * time.Millisecond
)

// load plays Kruise: it makes pods, moves them from state to state, and sees when their hooks are flipped.
type load struct {
	k8s client.WithWatch
	// owners have the pods by turns, each in a namespace of its own: the first has all, or as many as are spread over.
	owners []*kruisev1alpha1.CloneSet
	spread int
	// services are how many the pods are of.
	services int

	mu    sync.Mutex
	pods  map[types.NamespacedName]stay
	waves map[goal]*underway
	// versions of pods that were seen, and the moves that the driver made.
	versions, moves int
	last            time.Time
}

// goal is the state that a wave's pods go to, and their service if others may be on their way there.
type goal struct {
	state   appspub.LifecycleStateType
	service string
}

// underway is a wave that has not ended: left are its pods whose hook is not flipped.
type underway struct {
	left int
	done chan struct{}
}

func (u *underway) flip() {
	if u == nil {
		return
	}
	if u.left--; u.left == 0 {
		close(u.done)
	}
}

// stay is one pod in one state.
type stay struct {
	goal

	ready          bool
	moved, flipped time.Time
}

// wave is pods that went to a state together: how long from the first move to the last flip, and for each from the one to
// the other.
type wave struct {
	took      time.Duration
	latencies []time.Duration
}

// follow has each version of the pods seen until ctx ends.
func (l *load) follow(ctx context.Context) error {
	_, err := history.Follow(ctx, l.k8s, &corev1.PodList{}, func(v history.Version[*corev1.Pod]) { l.saw(v.Object, v.Gone) },
		client.HasLabels{workloadLabel})
	return err
}

func (l *load) saw(pod *corev1.Pod, gone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.versions++
	l.last = time.Now()
	if gone {
		delete(l.pods, client.ObjectKeyFromObject(pod))
		return
	}
	now := l.pods[client.ObjectKeyFromObject(pod)]
	if state := lifecycle.State(lifecycle.PodOf(pod)); now.state != state {
		now = stay{goal: goal{state, pod.Labels[appLabel]}, moved: l.last}
	}
	now.ready = lifecycle.IsReady(lifecycle.PodOf(pod))
	if now.flipped.IsZero() && flipped(pod) {
		now.flipped = l.last
		l.waves[now.goal].flip()
		l.waves[goal{state: now.state}].flip()
	}
	l.pods[client.ObjectKeyFromObject(pod)] = now
}

func (l *load) ownerOf(number int) *kruisev1alpha1.CloneSet { return l.owners[number%l.spread] }

func (l *load) run(ctx context.Context, pod *corev1.Pod, number int) error {
	if err := kube.Create(ctx, l.k8s, pod); err != nil {
		return err
	}
	return l.report(ctx, pod, running(number))
}

func (l *load) report(ctx context.Context, pod *corev1.Pod, status []byte) error {
	return l.k8s.Status().Patch(ctx, pod, client.RawPatch(types.StrategicMergePatchType, status))
}

// clear deletes all pods, and waits until they are gone.
func (l *load) clear(ctx context.Context) error {
	l.mu.Lock()
	pods := slices.Collect(maps.Keys(l.pods))
	l.mu.Unlock()
	err := l.each(ctx, len(pods), func(ctx context.Context, i int) error {
		return l.remove(ctx, pods[i].Namespace, pods[i].Name)
	})
	if err != nil {
		return err
	}
	return await(ctx, "the pods to be gone", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.pods) == 0
	})
}

func (l *load) remove(ctx context.Context, namespace, name string) error {
	return l.k8s.Delete(ctx, kube.Pod(namespace, name), client.GracePeriodSeconds(0))
}

// each does something for each of n pods, with as many at once as there are movers.
func (l *load) each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(movers)
	for i := range n {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

// storm moves the first n pods to a state at once, and waits until all of their hooks are flipped.
func (l *load) storm(ctx context.Context, n int, state appspub.LifecycleStateType) (wave, error) {
	return l.wave(ctx, n, state, func() error {
		return l.each(ctx, n, func(ctx context.Context, i int) error { return l.move(ctx, i, state) })
	})
}

// inTurn does something for one of n pods at each interval.
func inTurn(ctx context.Context, n int, every time.Duration, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for i := range n {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return group.Wait()
		}
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

func (l *load) move(ctx context.Context, number int, state appspub.LifecycleStateType) error {
	patch := kube.Merge(`{"metadata":{"labels":{%q:%q},"annotations":{%q:%q}}}`, appspub.LifecycleStateKey, state,
		appspub.LifecycleTimestampKey, time.Now().Format(time.RFC3339))
	return l.k8s.Patch(ctx, kube.Pod(l.ownerOf(number).Namespace, podName(number)), patch)
}

// wave waits for the flips of what move moves.
func (l *load) wave(ctx context.Context, n int, state appspub.LifecycleStateType, move func() error) (wave, error) {
	return l.waveTo(ctx, n, goal{state: state}, move)
}

func (l *load) waveTo(ctx context.Context, n int, to goal, move func() error) (wave, error) {
	this, limit := &underway{left: n, done: make(chan struct{})}, max(waveTimeout, time.Duration(n)*podTimeout)
	l.mu.Lock()
	l.waves[to] = this
	l.moves += n
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.waves, to)
	}()
	if err := move(); err != nil {
		return wave{}, err
	}
	select {
	case <-this.done:
		return l.outcome(to), nil
	case <-time.After(limit):
		l.mu.Lock()
		defer l.mu.Unlock()
		return wave{}, fmt.Errorf("%d of %d pods in %s have not had their hook flipped after %s", this.left, n, to.state, limit)
	case <-ctx.Done():
		return wave{}, context.Cause(ctx)
	}
}

func (l *load) outcome(of goal) wave {
	l.mu.Lock()
	defer l.mu.Unlock()
	var w wave
	var first, last time.Time
	for _, s := range l.pods {
		if s.state != of.state || of.service != "" && s.service != of.service {
			continue
		}
		w.latencies = append(w.latencies, s.flipped.Sub(s.moved))
		if first.IsZero() || s.moved.Before(first) {
			first = s.moved
		}
		if s.flipped.After(last) {
			last = s.flipped
		}
	}
	w.took = last.Sub(first)
	return w
}

// settle waits until nothing happens, and calm says so too.
func (l *load) settle(ctx context.Context, what string, calm func() bool) error {
	return await(ctx, what, func() bool {
		l.mu.Lock()
		quiet := time.Since(l.last) >= quietFor
		l.mu.Unlock()
		return quiet && calm()
	})
}

func (l *load) ready() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.pods {
		if s.ready {
			n++
		}
	}
	return n
}

// written is how many versions of pods others have made.
func (l *load) written() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.versions - l.moves
}

func await(ctx context.Context, what string, so func() bool) error {
	const every, limit = 20 * time.Millisecond, 5 * time.Minute
	return wait.Until(ctx, limit, every, func(context.Context) error {
		if !so() {
			return errors.New("it is too early for " + what)
		}
		return nil
	})
}
