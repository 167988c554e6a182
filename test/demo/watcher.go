package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/history"
	"github.com/rollcall-dev/rollcall/test/harness/registries/read"
)

const (
	// lookEvery is how often the watcher looks whether the registry says something new of a pod that did not change.
	lookEvery = 50 * time.Millisecond
	// eventsKept is more than the demo's pods ever have to tell at once.
	eventsKept = 1024

	absent = "absent"
)

// watcher writes a line whenever a pod, or what the registry says of it, changes.
type watcher struct {
	read   read.Reader
	out    *screen
	events chan podEvent
	pods   map[types.UID]*watched
}

type podEvent struct {
	pod  *corev1.Pod
	gone bool
}

// watched is a pod and what was last written of it.
type watched struct {
	podEvent

	shown row
	// changing is what the registry said at the last look, if that was news: it is shown at the next look, unless an event
	// of the pod comes first. The pod's news may be a moment behind the registry's, and never the other way round.
	changing string
}

// row is what a line says of a pod.
type row struct{ image, state, ready, registry string }

// startWatcher watches the pods of a namespace until ctx ends or stop is called. After stop it writes nothing more.
func startWatcher(
	ctx context.Context, k8s client.WithWatch, namespace string, reader read.Reader, out *screen,
) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &watcher{read: reader, out: out, events: make(chan podEvent, eventsKept), pods: map[types.UID]*watched{}}
	var running sync.WaitGroup
	running.Go(func() { w.run(ctx) })
	stop = func() {
		cancel()
		running.Wait()
	}
	_, err = history.Follow(ctx, k8s, &corev1.PodList{}, func(v history.Version[*corev1.Pod]) {
		select {
		case w.events <- podEvent{pod: v.Object, gone: v.Gone}:
		case <-ctx.Done():
		}
	}, client.InNamespace(namespace))
	if err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

func (w *watcher) run(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-w.events:
			w.observe(ctx, event)
		case <-ticker.C:
			w.look(ctx)
		}
	}
}

// observe shows a pod that changed. The registry is asked after the event: Rollcall tells the registry first and the pod
// after, so the answer is not older than the event.
func (w *watcher) observe(ctx context.Context, event podEvent) {
	p := w.pods[event.pod.UID]
	if p == nil {
		p = &watched{}
		w.pods[event.pod.UID] = p
	}
	p.podEvent = event
	states, ok := w.states(ctx)
	if !ok {
		return
	}
	w.show(p, registryWord(states, event.pod.UID))
}

// look shows the pods of which the registry says something new.
func (w *watcher) look(ctx context.Context) {
	states, ok := w.states(ctx)
	if !ok {
		return
	}
	for uid, p := range w.pods {
		says := registryWord(states, uid)
		if says == p.shown.registry {
			p.changing = ""
			continue
		}
		if says != p.changing {
			p.changing = says
			continue
		}
		w.show(p, says)
	}
}

// states is false where the registry can't be read: then nothing is known, and nothing is said.
func (w *watcher) states(ctx context.Context) (map[types.UID]registry.State, bool) {
	entries, err := w.read(ctx)
	if err != nil {
		return nil, false
	}
	states := make(map[types.UID]registry.State, len(entries))
	for _, entry := range entries {
		states[types.UID(entry.UID)] = entry.State
	}
	return states, true
}

func registryWord(states map[types.UID]registry.State, uid types.UID) string {
	switch state := states[uid]; state {
	case registry.InService:
		return "in rotation"
	case registry.OutOfService:
		return "out of rotation"
	case "":
		return absent
	default:
		return string(state)
	}
}

// show writes the pod's line, if it says anything new.
func (w *watcher) show(p *watched, says string) {
	p.changing = ""
	now := rowOf(p.podEvent, says)
	if now != p.shown {
		p.shown = now
		w.out.at(time.Now(), p.pod.Name, "%s", now)
	}
	if p.gone && says == absent {
		delete(w.pods, p.pod.UID)
	}
}

func rowOf(event podEvent, says string) row {
	_, image, _ := strings.Cut(event.pod.Spec.Containers[0].Image, ":")
	r := row{image: image, state: event.pod.Labels[appspub.LifecycleStateKey], ready: "not ready", registry: says}
	switch {
	case event.gone:
		r.ready = "gone"
	case event.pod.DeletionTimestamp != nil:
		r.ready = "stopped"
	case lifecycle.IsReady(lifecycle.PodOf(event.pod)):
		r.ready = "ready"
	}
	return r
}

func (r row) String() string {
	return fmt.Sprintf("%-5s  %-16s  %-9s  %s", r.image, r.state, r.ready, r.registry)
}

// columns is the heading of the watcher's lines.
func columns() string {
	return fmt.Sprintf("%-10s  %-9s  %s", "time", "pod", row{"image", "OpenKruise state", "pod is", "in the registry"})
}
