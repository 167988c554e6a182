package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/checker"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
	"github.com/rollcall-dev/rollcall/test/harness/httpserver"
)

const (
	clusterName = "chaos"
	// faultShare is how many calls, or connections, meet a fault while there is one: the others show what works beside it.
	faultShare = 0.5
	// latestLanding is when a call that is held back is done at the latest, in time-outs: later than that the design assumes
	// that it never is. What is left to 2 is for the way of the call to here.
	earliestLanding, latestLanding = 1.05, 1.6
	// diceOfCalls sets the dice of the calls apart from those of the rounds, which have the round's number there.
	diceOfCalls = math.MaxUint64
	// killAfter is how long after the answer left the manager is killed: it has the answer by then.
	killAfter = 20 * time.Millisecond
)

// leaseOfEntries is how long the leased registry keeps what is not renewed, and expireEvery how often it looks.
const (
	leaseOfEntries = 12 * time.Second
	expireEvery    = 200 * time.Millisecond
	// heartbeat is what it adds to the protocol.
	heartbeat checker.Op = "heartbeat"
)

// registryServer is the registries that the managers talk to.
type registryServer struct {
	journal *checker.Journal
	timeout time.Duration // of the managers' calls
	server  *http.Server
	address string

	// books are what the registries hold, by name. Calls that change one are done one after the other under mu, so that the
	// journal's order is the true one.
	books map[string]fakeregistry.Backend
	// expiring ends with Stop.
	expiring chan struct{}

	mu      sync.Mutex
	fault   kind // "" for none
	dice    *rand.Rand
	renewed map[checker.Key]time.Time // what the leased registry has, and when it was renewed
	// foreign are the entries that no manager may change, and uid is the cluster's.
	foreign map[identity]registry.Entry
	uid     string
	apps    map[string]*application // by their pods' UIDs
	// ownEntries are the entries that the applications wrote.
	ownEntries *fakeregistry.Apps
	killing    func(manager string) (strike func()) // armed if not nil
	// held are the calls that are held back, and late what else runs.
	held, late sync.WaitGroup
}

// identity is what makes two calls speak of one entry: a key whose pod is left out.
type identity checker.Key

func identityOf(name string, in registry.Instance) identity {
	in.UID = ""
	return identity(checker.KeyOf(name, in))
}

func startRegistry(ctx context.Context, j *checker.Journal, timeout time.Duration) (*registryServer, error) {
	r := &registryServer{
		journal: j, timeout: timeout, books: map[string]fakeregistry.Backend{}, foreign: map[identity]registry.Entry{},
		renewed: map[checker.Key]time.Time{}, expiring: make(chan struct{}), dice: rand.New(rand.NewPCG(0, diceOfCalls)),
		apps: map[string]*application{}, ownEntries: &fakeregistry.Apps{Owned: true},
	}
	r.books[appsBook] = r.ownEntries
	for _, name := range registryNames() {
		r.books[name] = fakeregistry.Memory(ctx)
	}
	protocol := http.NewServeMux()
	for name, entries := range r.books {
		protocol.Handle("/"+name+"/", http.StripPrefix("/"+name,
			httpserver.New(&backend{Backend: entries, server: r}, httpserver.Options{})))
	}
	protocol.HandleFunc("POST /"+leasedRegistry+"/v1/heartbeat", r.heartbeat)
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for the registry: %w", err)
	}
	r.address = listener.Addr().String()
	r.server = &http.Server{
		Handler:           r.handler(protocol),
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          log.New(io.Discard, "", 0), // connections that end badly are the point
	}
	go func() { _ = r.server.Serve(listener) }() // until Stop
	r.late.Go(r.expire)
	return r, nil
}

// Stop ends the server once every call that is held back was done.
func (r *registryServer) Stop() {
	close(r.expiring)
	_ = r.server.Close()
	r.held.Wait()
	r.late.Wait()
}

// reset forgets all that the registry holds, and what is armed. What calls meet from now on is drawn from the seed, in the
// order in which they come.
func (r *registryServer) reset(ctx context.Context, j *checker.Journal, seed uint64) {
	r.mu.Lock()
	r.fault, r.killing = "", nil
	r.mu.Unlock()
	r.held.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, book := range r.books {
		for _, e := range r.list(ctx, name) {
			_ = book.Deregister(ctx, e.Instance)
		}
	}
	for id, e := range r.foreign {
		e.UID = "reset" // what has no mark is no one's to remove
		_ = r.books[id.Registry].Register(ctx, e.Instance)
		_ = r.books[id.Registry].Deregister(ctx, e.Instance)
	}
	r.foreign, r.renewed = map[identity]registry.Entry{}, map[checker.Key]time.Time{}
	r.apps = map[string]*application{}
	r.ownEntries.Clear()
	r.journal, r.dice = j, rand.New(rand.NewPCG(seed, diceOfCalls))
}

// setFault has about half of the calls meet a fault; "" ends it.
func (r *registryServer) setFault(k kind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = k
}

// killNext has the manager killed to which the next changing call is acknowledged. strike is called once the answer has
// left; prepare just before, and where it returns nil the next answer is waited for.
func (r *registryServer) killNext(prepare func(manager string) (strike func())) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.killing = prepare
}

func (r *registryServer) list(ctx context.Context, name string) []registry.Entry {
	entries, err := r.books[name].List(ctx, clusterName)
	if err != nil {
		return nil // the context has ended
	}
	return entries
}

// wipe removes about half of what our cluster has.
func (r *registryServer) wipe(ctx context.Context, rng *rand.Rand) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	wiped := 0
	for _, name := range registryNames() {
		for _, e := range r.list(ctx, name) {
			_, foreign := r.foreign[identityOf(name, e.Instance)]
			// What is wrong in a registry that can't be asked, no manager can find.
			if name != unlistedRegistry && !foreign && rng.IntN(2) == 0 {
				r.forget(ctx, name, e.Instance)
				wiped++
			}
		}
	}
	return wiped
}

// forget removes an entry that no one asked to remove. The caller holds the lock.
func (r *registryServer) forget(ctx context.Context, name string, in registry.Instance) {
	_ = r.books[name].Deregister(ctx, in)
	r.journal.Wiped(checker.KeyOf(name, in), time.Now())
}

// expire removes what was not renewed in time, until Stop.
func (r *registryServer) expire() {
	ticker := time.NewTicker(expireEvery)
	defer ticker.Stop()
	for {
		select {
		case <-r.expiring:
			return
		case <-ticker.C:
			r.expireBy(time.Now())
		}
	}
}

func (r *registryServer) expireBy(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx := context.Background()
	for _, e := range r.list(ctx, leasedRegistry) {
		k := checker.KeyOf(leasedRegistry, e.Instance)
		if at, known := r.renewed[k]; known && now.Sub(at) < leaseOfEntries {
			continue
		}
		delete(r.renewed, k)
		r.forget(ctx, leasedRegistry, e.Instance)
	}
}

// heartbeat renews one entry, for the manager whose pod has it.
func (r *registryServer) heartbeat(w http.ResponseWriter, request *http.Request) {
	var in registry.Instance
	if err := json.NewDecoder(request.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	state, err := r.books[leasedRegistry].Get(request.Context(), in)
	if err != nil || state == registry.Absent {
		http.Error(w, "there is no such entry", http.StatusNotFound)
		return
	}
	r.renewed[checker.KeyOf(leasedRegistry, in)] = time.Now()
	w.WriteHeader(http.StatusNoContent)
}

const (
	// foreignPort is one that no workload has, and foreignService such a service.
	foreignPort    = 7070
	foreignService = "legacy"
)

// addForeign puts in entries of another cluster, or without any mark. Half of them are at the address of one of the pods,
// and those of another cluster then have its UID too, with its service and another port or the other way round: the protocol
// knows an entry by all three, so it has no place for two that share them all. The first is another cluster's, of a pod that is not here.
func (r *registryServer) addForeign(ctx context.Context, rng *rand.Rand, services []string, count int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range count {
		listed := i == 0 // by another cluster, of a pod that is not here
		// What expires can't be told from what was removed.
		name := []string{defaultRegistry, secondRegistry, unlistedRegistry}[rng.IntN(3)]
		if listed {
			name = defaultRegistry
		}
		in := registry.Instance{
			Service: services[rng.IntN(len(services))], Port: 8080,
			Address: fmt.Sprintf("10.%d.%d.%d", rng.IntN(256), rng.IntN(256), 1+rng.IntN(254)),
		}
		mark := registry.Instance{Namespace: "default", Pod: "other-pod", UID: fmt.Sprintf("other-%d", rng.Uint64())}
		if ours := r.list(ctx, name); !listed && len(ours) > 0 && rng.IntN(2) == 0 {
			mark = ours[rng.IntN(len(ours))].Instance
			in.Service, in.Address, in.Port = mark.Service, mark.Address, foreignPort
			if rng.IntN(2) == 0 {
				in.Service, in.Port = foreignService, mark.Port
			}
		}
		if listed || rng.IntN(2) == 0 {
			in.Cluster, in.Namespace, in.Pod, in.UID = "other", mark.Namespace, mark.Pod, mark.UID
		}
		_ = r.books[name].Register(ctx, in)
		r.foreign[identityOf(name, in)] = registry.Entry{Instance: in, State: registry.InService}
	}
}

// leave puts in entries of a cluster of our name behind which no pod stands. Those that stay must not be removed.
func (r *registryServer) leave(ctx context.Context, rng *rand.Rand, services []string, count int, uid string, stay bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for range count {
		id := rng.Uint32()
		name := []string{defaultRegistry, secondRegistry}[rng.IntN(2)]
		in := registry.Instance{
			Service: services[rng.IntN(len(services))], Port: 8080,
			Address: fmt.Sprintf("10.%d.%d.%d", byte(id>>16), byte(id>>8), byte(id)),
			Cluster: clusterName, ClusterUID: uid, Namespace: "chaos-a", Pod: fmt.Sprintf("gone-%d", id), UID: fmt.Sprintf("gone-%d", id),
		}
		_ = r.books[name].Register(ctx, in)
		if stay {
			r.foreign[identityOf(name, in)] = registry.Entry{Instance: in, State: registry.InService}
		}
	}
}

// ours are the cluster's entries in a registry, but for those that no manager may change.
func (r *registryServer) ours(ctx context.Context, name string) []registry.Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(r.list(ctx, name), func(e registry.Entry) bool {
		_, foreign := r.foreign[identityOf(name, e.Instance)]
		return foreign
	})
}

// identify reads which cluster it is: the UID of its namespace kube-system is part of each ownership tag.
func (r *registryServer) identify(ctx context.Context, c client.Client) error {
	var system corev1.Namespace
	if err := c.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &system); err != nil {
		return fmt.Errorf("reading the cluster's UID: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.uid = string(system.UID)
	return nil
}

// written is what the managers are configured with.
func (*registryServer) written(usual string) checker.Written {
	return checker.Written{
		Usual: usual, Books: map[string]string{appsRegistry: appsBook}, Places: map[string]string{placedRegistry: placeLabel},
		Metadata: map[string]string{"version": "{label:" + versionKey + "}", "run": clusterName},
	}
}

// touched says which foreign entries are no longer as they were added.
func (r *registryServer) touched(ctx context.Context) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := map[identity]registry.Entry{}
	for name, book := range r.books {
		for _, cluster := range []string{"other", "", clusterName} {
			entries, err := book.List(ctx, cluster)
			if err != nil {
				return nil // the context has ended
			}
			for _, e := range entries {
				held[identityOf(name, e.Instance)] = e
			}
		}
	}
	var all []string
	for id, e := range r.foreign {
		if now, found := held[id]; !found || now.State != e.State || !now.Equal(e.Instance) {
			all = append(all, fmt.Sprintf("%s of cluster %q", checker.Key(id), e.Cluster))
		}
	}
	slices.Sort(all)
	return all
}

type callKey struct{}

// handler journals every request, and lets it meet its fault. The path begins with the manager's name and the
// registry's.
func (r *registryServer) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		manager, path, _ := strings.Cut(strings.TrimPrefix(request.URL.Path, "/"), "/")
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return // the manager has gone
		}
		name, _, _ := strings.Cut(path, "/v1/")
		o := checker.Op(path[strings.LastIndex(path, "/")+1:])
		var in registry.Instance
		if o.Changes() {
			_ = json.Unmarshal(body, &in) // the server behind says what is wrong with it
		} else {
			in = asked(request.URL.Query())
		}
		fault := r.meets(o)
		c := r.journal.CallReceived(checker.Call{
			Manager: manager, Registry: name, Op: o, Instance: in, Fault: string(fault), Received: time.Now(),
		})
		inner := request.Clone(context.WithValue(request.Context(), callKey{}, c))
		inner.URL.Path, inner.Body = "/"+path, io.NopCloser(bytes.NewReader(body))
		r.serve(w, inner, next, c)
	})
}

// asked is what a list is narrowed to.
func asked(query url.Values) registry.Instance {
	port, _ := strconv.Atoi(query.Get("port")) // 0 where it is not narrowed
	return registry.Instance{
		Cluster: query.Get("cluster"), Service: query.Get("service"), Address: query.Get("address"), Port: port,
	}
}

// meets draws what a call meets.
func (r *registryServer) meets(o checker.Op) kind {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fault == holdBack && !o.Changes() || r.dice.Float64() > faultShare {
		return ""
	}
	return r.fault
}

func (r *registryServer) serve(w http.ResponseWriter, request *http.Request, next http.Handler, c *checker.Call) {
	switch kind(c.Fault) {
	case answer500:
		r.journal.CallAnswered(c, http.StatusInternalServerError, time.Now())
		http.Error(w, "fault on purpose", http.StatusInternalServerError)
	case loseAnswers:
		next.ServeHTTP(httptest.NewRecorder(), request)
		r.journal.CallAnswered(c, 0, time.Now())
		panic(http.ErrAbortHandler)
	case holdBack:
		r.hold(request, next, c)
		panic(http.ErrAbortHandler)
	default:
		r.answer(w, request, next, c)
	}
}

// hold does the call when its sender has given up.
func (r *registryServer) hold(request *http.Request, next http.Handler, c *checker.Call) {
	r.held.Add(1)
	defer r.held.Done()
	r.mu.Lock()
	held := earliestLanding + r.dice.Float64()*(latestLanding-earliestLanding)
	r.mu.Unlock()
	timer := time.NewTimer(time.Until(c.Received.Add(time.Duration(held * float64(r.timeout)))))
	defer timer.Stop()
	<-timer.C
	next.ServeHTTP(httptest.NewRecorder(), request.WithContext(context.WithoutCancel(request.Context())))
	r.journal.CallAnswered(c, 0, time.Now())
}

// answer does the call and answers it, and kills the manager after that if that is armed.
func (r *registryServer) answer(w http.ResponseWriter, request *http.Request, next http.Handler, c *checker.Call) {
	recorded := httptest.NewRecorder()
	next.ServeHTTP(recorded, request)
	var strike func()
	if c.Op.Changes() && recorded.Code/100 == 2 {
		strike = r.arm(c.Manager)
	}
	r.journal.CallAnswered(c, recorded.Code, time.Now())
	maps.Copy(w.Header(), recorded.Header())
	w.WriteHeader(recorded.Code)
	_, err := w.Write(recorded.Body.Bytes())
	if strike == nil {
		return
	}
	if flusher, ok := w.(http.Flusher); ok && err == nil {
		flusher.Flush()
	}
	time.AfterFunc(killAfter, strike)
}

// arm takes the kill that is armed, if one is. It stays armed where this manager is not to be killed.
func (r *registryServer) arm(manager string) (strike func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.killing == nil {
		return nil
	}
	if strike = r.killing(manager); strike != nil {
		r.killing = nil
	}
	return strike
}

// backend does the work of a call and writes down when.
type backend struct {
	fakeregistry.Backend

	server *registryServer
}

var errNoCall = errors.New("this call did not come through the journal")

func (b *backend) change(ctx context.Context, do func() error) error {
	c, ok := ctx.Value(callKey{}).(*checker.Call)
	if !ok {
		return errNoCall
	}
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	if err := do(); err != nil {
		return err
	}
	now := time.Now()
	if c.Registry == leasedRegistry && c.Op != checker.Deregister {
		b.server.renewed[c.Key()] = now
	}
	b.server.journal.CallApplied(c, now)
	return nil
}

func (b *backend) Register(ctx context.Context, in registry.Instance) error {
	return b.change(ctx, func() error { return b.Backend.Register(ctx, in) })
}

func (b *backend) FailOver(ctx context.Context, in registry.Instance) error {
	return b.change(ctx, func() error { return b.Backend.FailOver(ctx, in) })
}

func (b *backend) Deregister(ctx context.Context, in registry.Instance) error {
	return b.change(ctx, func() error { return b.Backend.Deregister(ctx, in) })
}

func (b *backend) List(ctx context.Context, cluster string) ([]registry.Entry, error) {
	c, ok := ctx.Value(callKey{}).(*checker.Call)
	if !ok {
		return nil, errNoCall
	}
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	entries, err := b.Backend.List(ctx, cluster)
	if err != nil {
		return nil, err
	}
	seen := map[checker.Key]registry.State{}
	for _, e := range entries {
		seen[checker.KeyOf(c.Registry, e.Instance)] = e.State
	}
	b.server.journal.CallSaw(c, seen, time.Now())
	return entries, nil
}
