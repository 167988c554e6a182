package resync

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// server is an API server that answers a list in pages of one pod, however many are asked for, as one may.
type server struct {
	client.Reader

	reads, lists int
}

func (s *server) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	s.reads++
	return s.Reader.Get(ctx, key, obj, opts...)
}

func (s *server) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := s.Reader.List(ctx, list, opts...); err != nil {
		return err
	}
	pods, asked := list.(*metav1.PartialObjectMetadataList), (&client.ListOptions{}).ApplyOptions(opts)
	first, _ := strconv.Atoi(asked.Continue)
	if first == 0 {
		s.lists++
	}
	if next := first + 1; next < len(pods.Items) {
		pods.Continue, pods.Items = strconv.Itoa(next), pods.Items[:next]
	}
	pods.Items = pods.Items[first:]
	return nil
}

// clientOf has copies of the objects: the fake client writes to what it is given.
func clientOf(objects ...client.Object) client.WithWatch {
	builder := fake.NewClientBuilder()
	for _, object := range objects {
		builder.WithObjects(object.DeepCopyObject().(client.Object))
	}
	return builder.Build()
}

func TestGone(t *testing.T) {
	t.Parallel()
	pod := func(name string, uid types.UID, change ...func(*corev1.Pod)) client.Object {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: uid, Finalizers: []string{"example.com/a"}}}
		for _, c := range change {
			c(p)
		}
		return p
	}
	web := pod("web-1", "1")
	dying := pod("web-1", "1", func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) })
	ended := pod("web-1", "1", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	misnamed := func(in *registry.Instance) { in.Pod = "web-9" }
	elsewhere := func(in *registry.Instance) { in.Namespace = "other" }
	const dies = "it may have to be freed"
	type pods []client.Object
	type row struct {
		reason       string
		cached, live pods
		// beside is what a second entry of the pod says otherwise than the first; nil where there is none.
		beside func(in *registry.Instance)
		want   bool
		reads  int
	}
	expect.Each(t, map[string]row{
		"a live pod":                    {"the cache has it", pods{web}, pods{web}, nil, false, 0},
		"a pod that is no more":         {"no pod answers there", nil, nil, nil, true, 0},
		"a pod the cache does not have": {"the cache may lag, or the pod lack the label", nil, pods{web}, nil, false, 1},
		"a dying one":                   {dies, nil, pods{dying}, nil, false, 1},
		"an ended one":                  {"it never comes back", nil, pods{ended}, nil, true, 1},
		"another pod of the name":       {"its UID is another", nil, pods{pod("web-1", "2")}, nil, true, 0},

		"an entry with a name that no pod has":  {"the pod of its UID lives under another", pods{web}, pods{web}, misnamed, false, 0},
		"an entry with another live pod's name": {"both live", pods{web, pod("web-9", "9")}, pods{web, pod("web-9", "9")}, misnamed, false, 0},
		"an entry in another namespace":         {"the pod of its UID lives in its own", pods{web}, pods{web}, elsewhere, false, 0},
		"an unseen pod's entry with a wrong name": {
			"the API server knows the name that the other entry says", nil, pods{web}, misnamed, false, 1,
		},
	}, func(t *testing.T, tc row) {
		entries := []registry.Entry{{
			Instance: registry.Instance{Service: "web", Address: "10.0.0.1", Port: 80, Namespace: "shop", Pod: "web-1", UID: "1"},
			State:    registry.InService,
		}}
		if tc.beside != nil {
			entries = append(entries, entries[0])
			tc.beside(&entries[1].Instance)
		}
		for range entries { // in either order
			cache := clusterstate.CacheThrough(clientOf(tc.cached...))
			api := &server{Reader: clientOf(append(tc.live, pod("a-page-of-its-own", "p"))...)}
			c := &Cluster{
				Cache: cache, Pods: clusterstate.PodsThrough(cache), API: api, Synced: func() bool { return true }, Tracker: tracker.New(),
				Claims: clusterstate.New(cache, nil, nil).Claims, Clock: clocktesting.NewFakePassiveClock(time.Now()),
			}
			found, err := c.Compare(t.Context(), tracker.Listing{Registry: "default", Asked: c.Clock.Now(), Entries: entries})
			expect.NoError(t, err)
			got, err := c.Gone(t.Context(), found.Unknown)
			expect.NoError(t, err)
			if (len(got) == len(entries)) != tc.want || len(got) > 0 && !tc.want || api.reads != tc.reads {
				t.Errorf("got %v with %d reads of the API server, want gone %t with %d: %s", got, api.reads, tc.want, tc.reads, tc.reason)
			}
			expect.Equal(t, len(tc.cached) == 0, api.lists == 1, "one list of the namespace, if the cache lacks a pod: %d", api.lists)
			var visited []lifecycle.PodID // whose entry it is, or whose hooks
			if len(tc.cached) > 0 || tc.reason == dies {
				visited = []lifecycle.PodID{{NamespacedName: client.ObjectKeyFromObject(web), UID: "1"}}
			}
			_, doubted := c.TakeDoubted()
			expect.Equal(t, visited, slices.Compact(doubted), "pods to visit: %s", tc.reason)
			if holds, _ := c.Claims.Size(); (holds == 1) != (len(tc.cached) > 0) {
				t.Errorf("%d pods have a name: only what the cache has gives its namespace a right to that", holds)
			}
			slices.Reverse(entries)
		}
	})
}

// TestWhatIsListedGivesARightToAName: some registries make an entry of what is to be out of service.
func TestWhatIsListedGivesARightToAName(t *testing.T) {
	t.Parallel()
	never := func(want lifecycle.Want) lifecycle.Record {
		return lifecycle.Record{Want: want, NeverInService: true}
	}
	type row struct {
		reason   string
		state    registry.State
		record   lifecycle.Record
		unsynced bool
		// uncached: the cache lacks the pod.
		uncached bool
		want     bool
	}
	expect.Each(t, map[string]row{
		"in service":                    {"clients are given it", registry.InService, never(lifecycle.OutOfService), false, false, true},
		"out":                           {"it was in before it was out", registry.OutOfService, lifecycle.Record{Want: lifecycle.OutOfService}, false, false, true},
		"out, without a record":         {"that may have got lost", registry.OutOfService, lifecycle.Record{}, false, false, true},
		"out, and never in":             {"it was only taken out", registry.OutOfService, never(lifecycle.OutOfService), false, false, false},
		"absent in between":             {"the same", registry.OutOfService, never(lifecycle.Absent), false, false, false},
		"out, and in by its record":     {"a tenant has written it", registry.OutOfService, never(lifecycle.InService), false, false, true},
		"out, and the cache is not yet": {"the record can't be read", registry.OutOfService, never(lifecycle.OutOfService), true, false, true},
		"out, and the cache lacks it":   {"the cache has not synced", registry.OutOfService, never(lifecycle.OutOfService), true, true, true},
	}, func(t *testing.T, tc row) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "1"}}
		if tc.record.Want != "" {
			tc.record.Stamp = lifecycle.StampOf(lifecycle.PodOf(pod))
			text, err := json.Marshal(tc.record)
			expect.NoError(t, err)
			pod.Annotations = map[string]string{lifecycle.AnnotationRecord: string(text)}
		}
		cache := clusterstate.CacheThrough(clientOf(pod))
		if tc.uncached {
			cache = clusterstate.CacheThrough(clientOf())
		}
		c := &Cluster{
			Cache: cache, Pods: clusterstate.PodsThrough(cache), Synced: func() bool { return !tc.unsynced }, Tracker: tracker.New(),
			Claims: clusterstate.New(cache, nil, nil).Claims, Clock: clocktesting.NewFakePassiveClock(time.Now()),
		}
		_, err := c.Compare(t.Context(), tracker.Listing{Registry: "default", Asked: c.Clock.Now(), Entries: []registry.Entry{{
			Instance: registry.Instance{Service: "web", Address: "10.0.0.1", Port: 80, Namespace: "shop", Pod: "web-1", UID: "1"},
			State:    tc.state,
		}}})
		expect.NoError(t, err)
		if holds, _ := c.Claims.Size(); (holds == 1) != tc.want {
			t.Errorf("%d pods have a name, want %t: %s", holds, tc.want, tc.reason)
		}
	})
}

// failing is a reader that answers so.
type failing struct {
	client.WithWatch
	list, get error
}

func (f failing) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if f.list != nil {
		return f.list
	}
	return f.WithWatch.List(ctx, list, opts...)
}

func (f failing) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if f.get != nil {
		return f.get
	}
	return f.WithWatch.Get(ctx, key, obj, opts...)
}

// TestWhatCannotBeRead fails the call: an error shows nothing about a pod.
func TestWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	entry := registry.Entry{
		Instance: registry.Instance{Service: "web", Address: "10.0.0.1", Port: 80, Namespace: "shop", Pod: "web-1", UID: "1"},
		State:    registry.OutOfService,
	}
	compare := func(c *Cluster) error {
		_, err := c.Compare(t.Context(), tracker.Listing{Registry: "default", Asked: c.Clock.Now(), Entries: []registry.Entry{entry}})
		return err
	}
	known := func(c *Cluster) error { // so that the entry needs no list of the cache
		c.Open(lifecycle.PodID{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "web-1"}, UID: "1"})
		return compare(c)
	}
	type row struct {
		reason     string
		cache, api failing
		ask        func(c *Cluster) error
		fails      bool
		// claims: the entry gives its namespace a right to the name.
		claims bool
	}
	never := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "2"}}
	record := lifecycle.Record{Want: lifecycle.OutOfService, NeverInService: true, Stamp: lifecycle.StampOf(lifecycle.PodOf(never))}
	text, err := json.Marshal(record)
	expect.NoError(t, err)
	never.Annotations = map[string]string{lifecycle.AnnotationRecord: string(text)}
	first := never.DeepCopy()
	first.UID = "1"
	expect.Each(t, map[string]row{
		"the pods in the cache":           {"any of them may have the entry", failing{list: refused}, failing{}, compare, true, false},
		"those, and the entry's is known": {"it is not asked for", failing{list: refused, get: apierrors.NewNotFound(schema.GroupResource{}, "")}, failing{}, known, false, true},
		"the entry's pod":                 {"its record may show that it was never in", failing{WithWatch: clientOf(first), get: refused}, failing{}, compare, true, false},
		"the next pod of the name":        {"its record is of another pod", failing{WithWatch: clientOf(never)}, failing{}, known, false, true},
		"the places": {"pods may belong in any", failing{list: refused}, failing{}, func(c *Cluster) error {
			_, err := c.Places(t.Context(), "default", "{label:team}")
			return err
		}, true, false},
		"a pod that was listed": {"it may live", failing{}, failing{WithWatch: clientOf(first), get: refused}, func(c *Cluster) error {
			_, err := c.Gone(t.Context(), []registry.Entry{entry})
			return err
		}, true, false},
	}, func(t *testing.T, tc row) {
		cache := clusterstate.CacheThrough(tc.cache)
		c := &Cluster{
			Cache: cache, Pods: clusterstate.PodsThrough(cache), API: tc.api, Synced: func() bool { return true }, Tracker: tracker.New(),
			Claims: clusterstate.New(cache, nil, nil).Claims, Clock: clocktesting.NewFakePassiveClock(time.Now()),
		}
		if err := tc.ask(c); (err != nil) != tc.fails {
			t.Errorf("got %v, want an error: %t: %s", err, tc.fails, tc.reason)
		}
		holds, _ := c.Claims.Size()
		expect.Equal(t, tc.claims, holds == 1, "it gives a right to the name: %s", tc.reason)
	})
}

// vanishing is an API server whose pod is deleted after it was listed.
type vanishing struct{ client.Reader }

func (vanishing) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*metav1.PartialObjectMetadataList).Items = []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: "web-1", UID: "uid"}}}
	return nil
}

func (vanishing) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "web-1")
}

func TestGoneCountsAPodThatVanishesAfterTheList(t *testing.T) {
	t.Parallel()
	c := &Cluster{API: vanishing{}}
	got, err := c.Gone(t.Context(), []registry.Entry{{Instance: registry.Instance{Namespace: "shop", Pod: "web-1", UID: "uid"}}})
	if err != nil || len(got) != 1 {
		t.Errorf("got %v, %v, want the entry", got, err)
	}
}

// forbidding is an API server that lets nothing be read in namespaces, and has none or all of them.
type forbidding struct {
	client.Reader

	namespaces bool
}

func (forbidding) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil)
}

func (f forbidding) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	if f.namespaces {
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, key.Name)
}

func TestGoneWithItsNamespace(t *testing.T) {
	t.Parallel()
	entries := []registry.Entry{{Instance: registry.Instance{Namespace: "shop", Pod: "web-1", UID: "uid"}}}
	got, err := (&Cluster{API: forbidding{}}).Gone(t.Context(), entries)
	if err != nil || len(got) != 1 {
		t.Errorf("got %v, %v where the namespace is gone, and the rights in it with it", got, err)
	}
	if got, err = (&Cluster{API: forbidding{namespaces: true}}).Gone(t.Context(), entries); !apierrors.IsForbidden(err) {
		t.Errorf("got %v, %v where pods of a namespace that is there can't be listed", got, err)
	}
}
