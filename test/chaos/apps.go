package main

import (
	"hash/fnv"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/checker"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

// appsRegistry is where applications register themselves, and appsBook has their entries.
const (
	appsRegistry = "applications"
	appsBook     = appsRegistry + "/app"
)

// How long an application takes to register once its container runs, and how long its entry stays when that has ended: mostly little, and
// much if it starts late, or was killed and its entry has to expire.
const (
	registersAfter, registersLate = 300 * time.Millisecond, 6 * time.Second
	endsAfter, expiresAfter       = 200 * time.Millisecond, 4 * time.Second
	// oneIn says how often it takes long.
	oneIn = 4
)

// application is that of one pod.
type application struct {
	instances []registry.Instance
	// container is the one that runs; empty if none does.
	container string
}

// registersItself reports whether the pod's application does.
func registersItself(pod *corev1.Pod) bool {
	return pod.Annotations[registriesAnnotation] == appsRegistry
}

// plays has the application of a pod do what it does by itself: register when its container runs, and end.
func (r *registryServer) plays(pod *corev1.Pod, gone bool) {
	if !registersItself(pod) {
		return
	}
	container := ""
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Running != nil && pod.DeletionTimestamp == nil && !gone {
			container = c.ContainerID
		}
	}
	uid := string(pod.UID)
	r.mu.Lock()
	defer r.mu.Unlock()
	app := r.apps[uid]
	if app == nil {
		app = &application{}
		r.apps[uid] = app
	}
	if app.container == container {
		return
	}
	after, late, then := endsAfter, expiresAfter, r.vanishes
	if container != "" {
		app.instances = nil
		for _, k := range r.written(appsRegistry).Keys(pod) {
			app.instances = append(app.instances, registry.Instance{
				Service: k.Service, Address: k.Address, Port: k.Port, Cluster: clusterName,
				Namespace: pod.Namespace, Pod: pod.Name, UID: uid,
			})
		}
		after, late, then = registersAfter, registersLate, r.appears
	}
	if takesLong(uid + container + app.container) {
		after = late
	}
	app.container = container
	r.later(app, container, after, then)
}

func takesLong(what string) bool {
	dice := fnv.New32a()
	_, _ = dice.Write([]byte(what)) // it never fails
	return dice.Sum32()%oneIn == 0
}

// later does something for the application unless another container runs by then. The caller holds the lock.
func (r *registryServer) later(app *application, container string, after time.Duration, do func(registry.Instance)) {
	time.AfterFunc(after, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, in := range app.instances {
			if app.container == container && r.apps[in.UID] == app { // else the game is over
				do(in)
			}
		}
	})
}

// client is the application's client.
func (r *registryServer) client(in registry.Instance) fakeregistry.App {
	return fakeregistry.App{Apps: r.ownEntries, At: in}
}

// appears has an application write its entry, which is out of rotation where it was taken out before. The caller holds the lock.
func (r *registryServer) appears(in registry.Instance) {
	app := r.client(in)
	if app.Register(); app.State() == registry.InService {
		r.journal.Appeared(checker.KeyOf(appsBook, in), time.Now())
	}
}

// vanishes has an application's entry go. The caller holds the lock.
func (r *registryServer) vanishes(in registry.Instance) {
	if app := r.client(in); app.State() != registry.Absent {
		app.Deregister()
		r.journal.Wiped(checker.KeyOf(appsBook, in), time.Now())
	}
}

// loseApps has about half of the applications lose their entries, and write them again after a while.
func (r *registryServer) loseApps(rng *rand.Rand, lasts time.Duration) (lost int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, app := range r.apps {
		if app.container == "" || rng.IntN(2) == 0 {
			continue
		}
		for _, in := range app.instances {
			r.vanishes(in)
		}
		r.later(app, app.container, lasts, r.appears)
		lost++
	}
	return lost
}
