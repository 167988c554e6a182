package plugin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rollcall-dev/rollcall/internal/orders"
	"github.com/rollcall-dev/rollcall/test/harness/bubble"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func leaseHeld(renewed time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "rollcall", UID: "lease"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("rollcall-0"), LeaseDurationSeconds: new(int32(15)), RenewTime: &metav1.MicroTime{Time: renewed},
		},
	}
}

func installedOptions() *options {
	return &options{installation: "system", now: func() time.Time { return now }}
}

func clusterWith(objects ...client.Object) *cluster {
	return &cluster{options: installedOptions(), Client: fake.NewClientBuilder().WithScheme(clientscheme.Scheme).WithObjects(objects...).
		WithIndex(&eventsv1.Event{}, "reportingController", reporters).WithInterceptorFuncs(interceptor.Funcs{Patch: patched}).Build()}
}

// patched answers like the API server where a test of a patch fails.
func patched(ctx context.Context, to client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
	err := to.Patch(ctx, object, patch, opts...)
	if err != nil && strings.Contains(err.Error(), "test") {
		return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
	}
	return err
}

func reporters(object client.Object) []string {
	return []string{object.(*eventsv1.Event).ReportingController}
}

// blocked is the manager's Event about five entries.
func blocked(name, digest string, ago time.Duration, change ...func(*eventsv1.Event)) *eventsv1.Event {
	e := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: name}, Reason: "RemovalBlocked", Type: corev1.EventTypeWarning,
		ReportingController: "rollcall", EventTime: metav1.MicroTime{Time: now.Add(-ago)},
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "system", Name: configMapName},
		Note:      "5 of 7 entries. If they should go, " + orders.HowToApprove("two", digest) + ", or wait. Examples: web\x1b[2J.",
	}
	for _, c := range change {
		c(e)
	}
	return e
}

// renewing has a manager live that renews the Lease in less than a second, once.
func renewing(t *testing.T, c *cluster) {
	t.Helper()
	to := c.Client // which a test may wrap meanwhile
	time.AfterFunc(800*time.Millisecond, func() {
		lease := leaseHeld(now)
		expect.NoError(t, to.Get(t.Context(), client.ObjectKeyFromObject(lease), lease))
		lease.Spec.RenewTime.Time = lease.Spec.RenewTime.Add(time.Second)
		expect.NoError(t, to.Update(t.Context(), lease))
	})
}

func TestLease(t *testing.T) {
	t.Parallel()
	free := leaseHeld(now)
	free.Spec.HolderIdentity = nil
	long := leaseHeld(now.Add(-61 * time.Second))
	long.Spec.LeaseDurationSeconds = new(int32(60))
	type row struct {
		reason, want string
		lease        *coordinationv1.Lease
		// later is who holds it when it is written again, after 2 s if after is not set.
		later *string
		after time.Duration
		// fails: it can be read only once.
		fails bool
	}
	bubble.Each(t, map[string]row{
		"held":       {reason: "a manager renewed it 10 s ago", lease: leaseHeld(now.Add(-10 * time.Second))},
		"not found":  {reason: "Rollcall is somewhere else", want: "namespace system has no Lease rollcall: set --rollcall-namespace"},
		"free":       {reason: "the manager was stopped", lease: free, want: "no manager holds the Lease system/rollcall"},
		"has ended":  {reason: "the manager died", lease: leaseHeld(now.Add(-16 * time.Second)), want: "no manager holds the Lease"},
		"looks over": {reason: "this clock is ahead, and a manager renews it", lease: leaseHeld(now.Add(-16 * time.Second)), later: new("rollcall-0")},
		"looks over, and is long": {
			reason: "a manager renews it every 3.2 s, and failed to do so once", lease: long, later: new("rollcall-0"),
			after: 6400 * time.Millisecond,
		},
		"can't be read again": {
			reason: "it is not known whether a manager renews it", lease: leaseHeld(now.Add(-16 * time.Second)), fails: true,
			want: "reading Lease rollcall: connection refused",
		},
		"given back": {
			reason: "this clock is ahead, and the manager stops", lease: leaseHeld(now.Add(-16 * time.Second)), later: new(""),
			want: "no manager holds the Lease",
		},
	}, func(t *testing.T, c row) {
		cluster := clusterWith()
		if c.lease != nil {
			expect.NoError(t, cluster.Create(t.Context(), c.lease.DeepCopy()))
		}
		if c.later != nil {
			time.AfterFunc(cmp.Or(c.after, 2*time.Second), func() {
				lease := leaseHeld(now)
				expect.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(lease), lease))
				lease.Spec.HolderIdentity = c.later
				lease.Spec.RenewTime.Time = lease.Spec.RenewTime.Add(2 * time.Second)
				expect.NoError(t, cluster.Update(t.Context(), lease))
			})
		}
		var gets atomic.Int64
		cluster.Client = interceptor.NewClient(cluster.Client.(client.WithWatch), interceptor.Funcs{
			Get: func(ctx context.Context, to client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
				if gets.Add(1) > 1 && c.fails {
					return errors.New("connection refused")
				}
				return to.Get(ctx, key, object, opts...)
			},
		})
		_, err := cluster.renewed(t.Context())
		expect.Error(t, c.reason, err, c.want)
		if err != nil && (statusOf(err) == exitNoManager) == c.fails {
			t.Errorf("%s: got error %v, want exit status %d: %t", c.reason, err, exitNoManager, !c.fails)
		}
	})
}

// TestApprove has Events about three sets of entries, of which the last is approved already.
func TestApprove(t *testing.T) {
	t.Parallel()
	const one, two, approved = "111111111111", "222222222222", "0123456789ab"
	type row struct {
		reason, answer, want, err string
		yes                       bool
	}
	expect.Each(t, map[string]row{
		"yes":      {reason: "a person has read what goes", answer: "yes\n", want: approved + "," + two},
		"no":       {reason: "nothing goes without the word", answer: "n\n", want: "2026-11-22T11:00:00Z," + approved, err: "nothing was approved"},
		"in a job": {reason: "with --yes there is no question", yes: true, want: approved + "," + two},
	}, func(t *testing.T, c row) {
		lease := leaseHeld(now)
		lease.Annotations = map[string]string{orders.Annotation: "2026-11-22T11:00:00Z," + approved}
		cluster := clusterWith(lease, blocked("a", one, time.Hour), blocked("b", two, time.Minute), blocked("c", approved, time.Second))
		cluster.where = "context prod"
		var out strings.Builder
		cluster.IOStreams = genericiooptions.IOStreams{In: strings.NewReader(c.answer), Out: &out, ErrOut: &out}
		expect.Error(t, c.reason, cluster.approve(t.Context(), lease, c.yes), c.err)
		expect.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(lease), lease))
		if got := lease.Annotations[orders.Annotation]; got != c.want || !strings.Contains(out.String(), "60s ago: 5 of 7 entries") ||
			strings.Contains(out.String(), "context prod: Rollcall removes all 5 entries; ") == c.yes || !strings.Contains(out.String(), "resync --approve --rollcall-namespace=two, or with kubectl -n two annotate lease ") ||
			strings.Contains(out.String(), "\x1b") {
			t.Errorf("%s: approved %q, want %q; it printed\n%s", c.reason, got, c.want, &out)
		}
	})
	single, lease := blocked("a", one, time.Minute), leaseHeld(now)
	single.Note = "1 of 7" + strings.TrimPrefix(single.Note, "5 of 7")
	var asked strings.Builder
	cluster := clusterWith(lease, single)
	cluster.IOStreams = genericiooptions.IOStreams{In: strings.NewReader(""), Out: io.Discard, ErrOut: &asked}
	expect.Error(t, "nothing goes without the word", cluster.approve(t.Context(), lease, false), "nothing was approved")
	if !strings.Contains(asked.String(), "Rollcall removes the entry above. ") {
		t.Errorf("of one entry it asks %q", &asked)
	}
	err := clusterWith().approve(t.Context(), leaseHeld(now), true)
	expect.Error(t, "nothing is held back", err, "no Event in namespace system")
}

// TestApproveWhatTheManagerReported: in Rollcall's namespace others may create Events.
func TestApproveWhatTheManagerReported(t *testing.T) {
	t.Parallel()
	const theirs, ours = "111111111111", "222222222222"
	for name, change := range map[string]func(*eventsv1.Event){
		"another reporter":   func(e *eventsv1.Event) { e.ReportingController = "tenant" },
		"another object":     func(e *eventsv1.Event) { e.Regarding.Kind = "Pod" },
		"another ConfigMap":  func(e *eventsv1.Event) { e.Regarding.Name = "mine" },
		"another namespace":  func(e *eventsv1.Event) { e.Regarding.Namespace = "tenant" },
		"another reason":     func(e *eventsv1.Event) { e.Reason = "ManyRemovals" },
		"nothing to approve": func(e *eventsv1.Event) { e.Note = "5 of 7 entries" },
	} {
		lease := leaseHeld(now)
		cluster := clusterWith(lease, blocked("a", ours, time.Minute), blocked("b", theirs, time.Second, change))
		cluster.IOStreams = genericiooptions.NewTestIOStreamsDiscard()
		expect.NoError(t, cluster.approve(t.Context(), lease, true))
		expect.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(lease), lease))
		if got := lease.Annotations[orders.Annotation]; got != ours {
			t.Errorf("%s: approved %q, want %q, which the manager has reported", name, got, ours)
		}
	}
}

// asked is a person who answers yes once something has happened.
type asked func()

func (a asked) Read(answer []byte) (int, error) {
	a()
	return copy(answer, "yes\n"), io.EOF
}

// TestApproveReadsAgain: a person thinks for a while, and somebody else does not wait.
func TestApproveReadsAgain(t *testing.T) {
	t.Parallel()
	const before, other, digest = "0123456789ab", "ba9876543210", "222222222222"
	annotate := func(value string) func(*testing.T, *cluster) {
		return func(t *testing.T, c *cluster) {
			t.Helper()
			lease := leaseHeld(now)
			expect.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(lease), lease))
			lease.Annotations = map[string]string{orders.Annotation: value}
			expect.NoError(t, c.Update(t.Context(), lease))
		}
	}
	hold := func(holder string) func(*testing.T, *cluster) {
		return func(t *testing.T, c *cluster) {
			t.Helper()
			lease := leaseHeld(now)
			expect.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(lease), lease))
			lease.Spec.HolderIdentity, lease.Spec.RenewTime.Time = &holder, lease.Spec.RenewTime.Add(time.Second)
			expect.NoError(t, c.Update(t.Context(), lease))
		}
	}
	type row struct {
		reason string
		// asked happens while the person is asked, and late whenever the answer is about to be written.
		asked, late func(*testing.T, *cluster)
		want, err   string
	}
	nothing := func(*testing.T, *cluster) {}
	expect.Each(t, map[string]row{
		"an approval is withdrawn": {"it stays withdrawn", annotate(""), nothing, digest, ""},
		"another is given":         {"both hold", annotate(before + "," + other), nothing, before + "," + other + "," + digest, ""},
		"another is given late":    {"both hold", nothing, annotate(before + "," + other), before + "," + other + "," + digest, ""},
		"the Lease is renewed":     {"it is all the time, and the connection may be slow", nothing, hold("rollcall-0"), before + "," + digest, ""},
		"another leads at last":    {"it has not asked", nothing, hold("rollcall-1"), before, "nothing was approved: rollcall-0 leads no more"},
		"the same is given":        {"once is enough", annotate(before + "," + digest), nothing, before + "," + digest, ""},
		"another manager leads":    {"it has not asked", hold("rollcall-1"), nothing, before, "nothing was approved: rollcall-0 leads no more"},
		"none leads":               {"the next one asks", hold(""), nothing, before, "nothing was approved: rollcall-0 leads no more"},
		"other entries are held": {"the person has not seen them", func(t *testing.T, c *cluster) {
			t.Helper()
			expect.NoError(t, c.Create(t.Context(), blocked("later", other, 0)))
		}, nothing, before, "nothing was approved: the manager holds back other entries by now: kubectl rollcall resync --approve shows them"},
		"another registry's are held": {"they are asked about next", func(t *testing.T, c *cluster) {
			t.Helper()
			expect.NoError(t, c.Create(t.Context(), blocked("later", other, 0, func(e *eventsv1.Event) {
				e.Note = orders.Holds(9, 9, "other") + ": " + orders.HowToApprove("system", other)
			})))
		}, nothing, before + "," + digest, ""},
	}, func(t *testing.T, c row) {
		lease := leaseHeld(now)
		lease.Annotations = map[string]string{orders.Annotation: before}
		of := clusterWith(lease, blocked("a", digest, time.Minute))
		calm := of.Client.(client.WithWatch)
		of.Client = interceptor.NewClient(calm, interceptor.Funcs{
			Patch: func(ctx context.Context, to client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
				c.late(t, &cluster{options: of.options, Client: calm})
				return to.Patch(ctx, object, patch, opts...)
			},
		})
		of.IOStreams = genericiooptions.IOStreams{In: asked(func() { c.asked(t, of) }), Out: io.Discard, ErrOut: io.Discard}
		expect.Error(t, c.reason, of.approve(t.Context(), lease, false), c.err)
		expect.NoError(t, of.Get(t.Context(), client.ObjectKeyFromObject(lease), lease))
		if got := lease.Annotations[orders.Annotation]; got != c.want {
			t.Errorf("%s: the Lease has %q, want %q", c.reason, got, c.want)
		}
	})
}

// TestApproveNamesThem: with the status page a person sees what they approve of.
func TestApproveNamesThem(t *testing.T) {
	t.Parallel()
	const digest = "111111111111"
	names := []string{"web at 10.0.0.1:80 of pod prod/web-1", "api at 10.0.0.2:80 of pod prod/api-1\x1b[2J"}
	type row struct {
		reason, err  string
		held         *orders.Held
		status, says int
		wants        []string
	}
	expect.Each(t, map[string]row{
		"all": {
			reason: "nothing else goes", held: &orders.Held{Digest: digest, Total: 2, Entries: names},
			wants: []string{"\n- " + names[0] + "\n- api at", "removes the 2 entries above."},
		},
		"some": {
			reason: "the page has a limit", held: &orders.Held{Digest: digest, Total: 501, Entries: names},
			wants: []string{"- " + names[0], "the lines above show 2 of them."},
		},
		"others": {
			reason: "the set has changed since the Event", held: &orders.Held{Digest: "222", Total: 2, Entries: names},
			err: "manager rollcall-0 does not hold back the removals of its last Event by now: kubectl rollcall resync makes it check again",
		},
		"more than the Event says": {
			reason: "anybody who can create Events can make one", held: &orders.Held{Digest: digest, Total: 2, Entries: names}, says: 1,
			wants: []string{"1 of 900 entries.", "removes the 2 entries above."},
		},
		"no page": {
			reason: "it is off by default", status: http.StatusNotFound,
			wants: []string{"Can't list the entries: the manager rollcall-0 runs with statusPage: false", "shows at most three of them."},
		},
	}, func(t *testing.T, c row) {
		api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if want := "/api/v1/namespaces/system/pods/http:rollcall-0:8080/proxy/status.json"; r.URL.Path != want {
				t.Errorf("it asks %s, want %s", r.URL, want)
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(cmp.Or(c.status, http.StatusOK))
			expect.NoError(t, json.NewEncoder(w).Encode(map[string]any{"registries": []any{
				map[string]any{"name": "calm"}, map[string]any{"name": "default", "heldRemovals": c.held},
			}}))
		}))
		t.Cleanup(api.Close)
		count := 2
		if c.held != nil {
			count = cmp.Or(c.says, c.held.Total)
		}
		lease := leaseHeld(now)
		cluster := clusterWith(lease, blocked("a", digest, 0, func(e *eventsv1.Event) {
			e.Note = fmt.Sprintf("%d of 900 entries. If they should go, %s.", count, orders.HowToApprove(orders.Namespace, digest))
		}), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "rollcall-0"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: metricsPort, ContainerPort: 8080}}}}},
		})
		var err error
		cluster.pods, err = corev1client.NewForConfig(&rest.Config{Host: api.URL})
		expect.NoError(t, err)
		var out strings.Builder
		cluster.IOStreams = genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out}
		expect.Error(t, c.reason, cluster.approve(t.Context(), lease, false), cmp.Or(c.err, "nothing was approved"))
		for _, want := range c.wants {
			if !strings.Contains(out.String(), want) || strings.Contains(out.String(), "\x1b") {
				t.Errorf("%s: no %q in\n%s", c.reason, want, &out)
			}
		}
	})
}

// TestMayNotAsk: a person sees which Role they lack.
func TestMayNotAsk(t *testing.T) {
	t.Parallel()
	c := clusterWith()
	c.Client = interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "rollcall-0", errors.New("no right"))
		},
	})
	_, err := c.known(t.Context(), &world{lease: leaseHeld(now)}, "")
	expect.Error(t, "most people may not read the manager's pod", err, "the Role rollcall-status-reader of config/components/plugin-roles")
}

// TestViewWithoutALeader: what a view says, and that a watch finds only once that a Lease is renewed no longer.
func TestViewWithoutALeader(t *testing.T) {
	t.Parallel()
	type row struct {
		reason, want string
		change       func(*coordinationv1.Lease)
		leads        time.Time
		waited       time.Duration
		renews       bool
	}
	acquired := now.Add(-time.Hour)
	bubble.Each(t, map[string]row{
		"held": {reason: "since then its word counts", change: func(*coordinationv1.Lease) {}, leads: acquired},
		"has ended": {
			reason: "the manager died", want: "No manager holds Lease system/rollcall (last renewed 12m ago): no hook is set or released.",
			change: func(l *coordinationv1.Lease) { l.Spec.RenewTime.Time = now.Add(-12 * time.Minute) }, waited: 5 * time.Second,
		},
		"looks over": {
			reason: "this clock is ahead, and each look reads the Lease once", leads: acquired, waited: 4 * time.Second, renews: true,
			change: func(l *coordinationv1.Lease) { l.Spec.RenewTime.Time = now.Add(-12 * time.Minute) },
		},
		"given back": {
			reason: "the manager was stopped", want: "No manager holds Lease system/rollcall (last renewed 5s ago): no hook is set or released.",
			change: func(l *coordinationv1.Lease) {
				l.Spec.HolderIdentity, l.Spec.RenewTime.Time = new(""), now.Add(-5*time.Second)
			},
		},
		"another": {reason: "a dry run has none", change: func(l *coordinationv1.Lease) { l.Name = "other" }},
	}, func(t *testing.T, c row) {
		lease := leaseHeld(now)
		lease.Spec.AcquireTime = &metav1.MicroTime{Time: acquired}
		c.change(lease)
		cluster, _ := installed(t, configText, lease)
		began := time.Now()
		cluster.now = func() time.Time { return now.Add(time.Since(began)) }
		for _, at := range []time.Duration{1500 * time.Millisecond, 3500 * time.Millisecond} {
			if c.renews {
				time.AfterFunc(at, func() {
					expect.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(lease), lease))
					lease.Spec.RenewTime.Time = lease.Spec.RenewTime.Add(time.Second)
					expect.NoError(t, cluster.Update(t.Context(), lease))
				})
			}
		}
		for range 2 {
			w, err := cluster.world(t.Context(), "prod")
			expect.NoError(t, err)
			if _, err := cluster.known(t.Context(), w, "prod"); err == nil || !w.now.Equal(cluster.now()) {
				t.Errorf("%s: the view is of %v, want %v", c.reason, w.now, cluster.now())
			}
			if w.leaderless != c.want || !w.leads.Equal(c.leads) {
				t.Errorf("%s: got %q and %v, want %q and %v", c.reason, w.leaderless, w.leads, c.want, c.leads)
			}
		}
		if waited := time.Since(began); waited != c.waited {
			t.Errorf("%s: it took %v, want %v", c.reason, waited, c.waited)
		}
		var out, notes strings.Builder
		expect.NoError(t, (&status{leaderless: c.want}).write(&out, &notes, terminal{}, &form{name: "json"}, false))
		if !strings.HasPrefix(notes.String(), c.want) || out.String() != "[]\n" {
			t.Errorf("%s: status notes %q beside %q", c.reason, &notes, &out)
		}
	})
}
