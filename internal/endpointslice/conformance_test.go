package endpointslice

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestConformance: what Rollcall, kubelet and the EndpointSlice controller do is done before each call.
func TestConformance(t *testing.T) {
	t.Parallel()
	const none = "EndpointSlices have no place for it"
	k := &kubernetes{pods: map[client.ObjectKey]*placed{}}
	registrytest.Run(t, registrytest.Harness{Open: k.open, Truth: k.truth, Lacks: map[registrytest.Capability]string{
		registrytest.Weight: none, registrytest.Zone: none, registrytest.Tags: none, registrytest.Metadata: none,
		registrytest.EachApart: "a pod is ready for all its Services or for none",
	}})
}

// kubernetes has the pods of several clusters, by cluster and name.
type kubernetes struct {
	mu   sync.Mutex
	pods map[client.ObjectKey]*placed
}

type placed struct {
	registry.Instance

	in bool
}

func (k *kubernetes) open(t testing.TB, cluster string) registry.Registry {
	w := NewWatch()
	w.synced.Store(&now)
	cache := &clusterReader{k: k, cluster: cluster}
	w.Cluster = Cluster{Cache: cache, Pod: cache.pod, Failure: func(time.Time) error { return nil }}
	d, err := w.New(t.Context(), registry.Config{})
	expect.NoError(t, err)
	return &followed{d, k}
}

func (k *kubernetes) truth(_ context.Context, cluster string) (entries []registry.Entry, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, pod := range k.pods {
		if key.Namespace != cluster {
			continue
		}
		e := registry.Entry{Instance: pod.Instance, State: registry.OutOfService}
		if e.Weight, e.Zone, e.Tags, e.Metadata = 0, "", nil, nil; pod.in {
			e.State = registry.InService
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// followed writes the condition, which kubelet and the controller follow, and then asks the driver.
type followed struct {
	registry.Registry

	k *kubernetes
}

// of calls with the pod's place, if the pod is there and of that registry.
func (k *kubernetes) of(in registry.Instance, do func(client.ObjectKey, *placed)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := client.ObjectKey{Namespace: in.Cluster, Name: in.Service + in.Pod}
	if pod := k.pods[key]; pod != nil && in.Owns(pod.UID, pod.Registry) {
		do(key, pod)
	}
}

func (f *followed) Register(ctx context.Context, in registry.Instance) error {
	f.k.mu.Lock()
	for key, pod := range f.k.pods { // who had the address is gone
		if ctx.Err() == nil && pod.Service == in.Service && pod.Endpoint() == in.Endpoint() {
			delete(f.k.pods, key)
		}
	}
	if ctx.Err() == nil {
		f.k.pods[client.ObjectKey{Namespace: in.Cluster, Name: in.Service + in.Pod}] = &placed{in, true}
	}
	f.k.mu.Unlock()
	return f.Registry.Register(ctx, in)
}

func (f *followed) FailOver(ctx context.Context, in registry.Instance) error {
	f.k.of(in, func(_ client.ObjectKey, pod *placed) { pod.in = pod.in && ctx.Err() != nil })
	return f.Registry.FailOver(ctx, in)
}

func (f *followed) Deregister(ctx context.Context, in registry.Instance) error {
	f.k.of(in, func(key client.ObjectKey, _ *placed) {
		if ctx.Err() == nil {
			delete(f.k.pods, key)
		}
	})
	return f.Registry.Deregister(ctx, in)
}

// clusterReader is the cache of one cluster.
type clusterReader struct {
	client.Reader

	k       *kubernetes
	cluster string
}

func (r *clusterReader) find(is func(*placed) bool) *placed {
	r.k.mu.Lock()
	defer r.k.mu.Unlock()
	for key, pod := range r.k.pods {
		if key.Namespace == r.cluster && is(pod) {
			found := *pod
			return &found
		}
	}
	return nil
}

func (r *clusterReader) pod(_ context.Context, key types.NamespacedName) (*lifecycle.Pod, error) {
	found := r.find(func(p *placed) bool { return p.Pod == key.Name })
	if found == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, key.Name)
	}
	status := corev1.ConditionFalse
	if found.in {
		status = corev1.ConditionTrue
	}
	pod := shown(status, status, 0, 0)
	pod.UID = types.UID(found.UID)
	at := metav1.Now().Rfc3339Copy()
	for i := range pod.Status.Conditions {
		pod.Status.Conditions[i].LastTransitionTime = at
	}
	return lifecycle.PodOf(pod), nil
}

func (r *clusterReader) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var options client.ListOptions
	for _, o := range opts {
		o.ApplyToList(&options)
	}
	uid, indexed := options.FieldSelector.RequiresExactMatch(uidIndex)
	if !indexed {
		return errors.New("a list of all EndpointSlices costs too much")
	}
	if found := r.find(func(p *placed) bool { return p.UID == uid }); found != nil {
		slice := of(found.Service, &found.in, &found.in)
		slice.Endpoints[1].TargetRef.UID = types.UID(uid)
		list.(*discoveryv1.EndpointSliceList).Items = []discoveryv1.EndpointSlice{*slice}
	}
	return nil
}

func TestNewRefusesWhatItHasNoUseFor(t *testing.T) {
	t.Parallel()
	for field, cfg := range map[string]registry.Config{
		"endpoint":       {Endpoint: "https://registry.example.com"},
		"tls.caFile":     {TLS: registry.TLS{CAFile: "/etc/ca.crt"}},
		"auth.tokenFile": {Auth: registry.Auth{TokenFile: "/etc/token"}},
		"options":        {Options: []byte(`{"service":"web"}`)},
	} {
		w := NewWatch()
		_, err := w.New(t.Context(), cfg)
		if named, _ := registry.FieldOf(err); named != field || w.Wanted() {
			t.Errorf("got error %v of field %q, want one of field %s, and no watch", err, named, field)
		}
	}
}

// TestConditionOfAnotherManager: how long it has been shown counts by this process's own clock, from when this process first saw it.
func TestConditionOfAnotherManager(t *testing.T) {
	t.Parallel()
	w, of := NewWatch(), func(status corev1.ConditionStatus, ahead time.Duration) lifecycle.PodCondition {
		return lifecycle.PodCondition{Status: status, LastTransitionTime: metav1.NewTime(now.Add(ahead))}
	}
	for i, step := range []struct {
		condition lifecycle.PodCondition
		at, want  time.Duration
	}{
		{of(corev1.ConditionFalse, time.Hour), 0, 0},
		{of(corev1.ConditionFalse, time.Hour), 3 * time.Second, 3 * time.Second},
		{of(corev1.ConditionTrue, -time.Hour), 4 * time.Second, 0},
		{of(corev1.ConditionFalse, time.Hour), 5 * time.Second, 0},
		{of(corev1.ConditionFalse, 2*time.Hour), 6 * time.Second, 0},
	} {
		expect.Equal(t, step.want, w.shownFor("1", step.condition, now.Add(step.at)), "step %d: it has been shown for", i)
	}
}

// TestStaleViews: nothing is taken for out, or for in, while the EndpointSlices can't be read.
func TestStaleViews(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "endpointslices"}, "", errors.New("no right"))
	type row struct {
		synced bool
		failed error
		want   string
	}
	expect.Each(t, map[string]row{
		"not listed": {want: "have not been listed yet"},
		"failing":    {failed: errors.New("refused"), want: "listing EndpointSlices: refused"},
		"no rights":  {synced: true, failed: forbidden, want: "config/components/endpointslice"},
	}, func(t *testing.T, tc row) {
		w := NewWatch()
		w.Cluster = Cluster{Failure: func(time.Time) error { return tc.failed }}
		if tc.synced {
			w.synced.Store(&now)
		}
		d, err := w.New(t.Context(), registry.Config{})
		expect.NoError(t, err)
		for _, call := range []func(context.Context, registry.Instance) error{d.Register, d.FailOver, d.Deregister} {
			if err := call(t.Context(), registry.Instance{}); err == nil || !strings.Contains(err.Error(), tc.want) || registry.CodeOf(err) == registry.CodeNotYet {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		}
	})
}
