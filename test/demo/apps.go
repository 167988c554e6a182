package main

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/cluster/podserver"
	"github.com/rollcall-dev/rollcall/test/harness/history"
	"github.com/rollcall-dev/rollcall/test/harness/registries/read"
	"github.com/rollcall-dev/rollcall/test/harness/wait"
)

// glanceEvery is how often it is checked that the applications' entries are still there.
const glanceEvery = 500 * time.Millisecond

// apps runs an application for each pod while the pod's containers run. It registers itself under the pod's namespace, and
// deregisters itself when the containers stop. It knows nothing of Rollcall, and does not wait for it.
type apps struct {
	field  *field
	port   int
	failed func(error)

	mu    sync.Mutex
	all   map[types.UID]*app
	at    map[string]registry.Instance // the last one at each address and port
	found account
}

// app is the application of a pod.
type app struct {
	at registry.Instance
	// runs has whether it should run: the latest word only.
	runs chan bool
	// stands: it has registered itself, and has not begun to deregister itself. seen: the registry has shown its entry since.
	stands, seen bool
	// turns counts how often stands has changed.
	turns int
}

// account is what became of the applications' entries.
type account struct {
	// glances is how often an entry was looked for.
	glances int
	// removed are the entries that were gone while their applications stood by them.
	removed []string
}

// startApps runs the applications of all pods until ctx ends, and one of a machine that is no pod.
func startApps(ctx context.Context, k8s client.WithWatch, f *field, port int, failed func(error)) (*apps, error) {
	a := newApps(f, port, failed)
	machine := registry.Instance{Service: "machines", Address: cmp.Or(f.machine, "127.0.0.1"), Port: port, Pod: "machine", UID: "machine"}
	a.want(ctx, machine, true)
	_, err := history.Follow(ctx, k8s, &corev1.PodList{}, func(v history.Version[*corev1.Pod]) { a.observe(ctx, v.Object, v.Gone) })
	if err != nil {
		return nil, err
	}
	go func() {
		for ; ctx.Err() == nil; wait.Pause(ctx, glanceEvery) {
			a.glance(ctx)
		}
	}()
	return a, nil
}

func newApps(f *field, port int, failed func(error)) *apps {
	return &apps{field: f, port: port, failed: failed, all: map[types.UID]*app{}, at: map[string]registry.Instance{}}
}

func (a *apps) observe(ctx context.Context, pod *corev1.Pod, gone bool) {
	at := registry.Instance{
		Service: pod.Namespace, Address: pod.Status.PodIP, Port: a.port,
		Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID),
	}
	a.want(ctx, at, !gone && podserver.CanServe(pod))
	if gone {
		a.forget(pod.UID)
	}
}

// want has the application at the instance run, or not.
func (a *apps) want(ctx context.Context, at registry.Instance, runs bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	one := a.all[types.UID(at.UID)]
	if one == nil {
		if !runs {
			return
		}
		one = &app{at: at, runs: make(chan bool, 1)}
		a.all[types.UID(at.UID)], a.at[at.Endpoint()] = one, at
		go a.live(ctx, one)
	}
	select {
	case <-one.runs: // not taken yet, and out of date
	default:
	}
	one.runs <- runs
}

func (a *apps) forget(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if one := a.all[uid]; one != nil {
		delete(a.all, uid)
		close(one.runs)
	}
}

// live runs an application until its pod is gone.
func (a *apps) live(ctx context.Context, one *app) {
	var stop func(context.Context) error
	for runs := range one.runs {
		var err error
		switch {
		case runs && stop == nil:
			if stop, err = a.field.start(ctx, one.at); err == nil {
				a.stands(one, true)
			}
		case !runs && stop != nil:
			a.stands(one, false)
			err, stop = stop(ctx), nil
		}
		if err != nil {
			if ctx.Err() == nil {
				a.failed(fmt.Errorf("the application of %s: %w", one.at.Pod, err))
			}
			return
		}
	}
}

func (a *apps) stands(one *app, stands bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	one.stands, one.seen = stands, false
	one.turns++
}

// glance looks for the entry of each application that stands by it. A registry that does not answer says nothing.
func (a *apps) glance(ctx context.Context) {
	for one, turns := range a.standing() {
		if has, err := a.field.has(ctx, one.at); err == nil {
			a.judge(one, turns, has)
		}
	}
}

func (a *apps) standing() map[*app]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	standing := map[*app]int{}
	for _, one := range a.all {
		if one.stands {
			standing[one] = one.turns
		}
	}
	return standing
}

// judge counts an entry that was there and is no more, once, unless its application has turned meanwhile.
func (a *apps) judge(one *app, turns int, has bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if one.turns != turns {
		return
	}
	a.found.glances++
	if one.seen && !has {
		a.found.removed = append(a.found.removed, fmt.Sprintf("%s in %s", one.at.Pod, one.at.Service))
	}
	one.seen = has
}

// account returns what was found so far; nil where no application registers itself.
func (a *apps) account() *account {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	found := a.found
	return &found
}

// named adds the pods to what a reader has: applications do not register them.
func (a *apps) named(reader read.Reader) read.Reader {
	return func(ctx context.Context) ([]registry.Entry, error) {
		entries, err := reader(ctx)
		a.mu.Lock()
		defer a.mu.Unlock()
		for i := range entries {
			at := a.at[entries[i].Endpoint()]
			entries[i].Pod, entries[i].UID = at.Pod, at.UID
		}
		return entries, err
	}
}
