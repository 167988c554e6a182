package app

import (
	stdcmp "cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/rollcall-dev/rollcall/internal/orders"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestWithoutElectionTheCallsOfTheProcessBeforeAreOver: that process may have been killed in the middle of a call just before this one
// began.
func TestWithoutElectionTheCallsOfTheProcessBeforeAreOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDrivers(t, newFake)
		opened, err := d.open(t.Context(), configured(t, strings.Replace(minimal, "registry:\n  driver: fake",
			"registries:\n- {name: quick, default: true, driver: fake, timeout: 1s}\n- {name: slow, driver: fake, timeout: 3s}", 1)))
		must(t, err)
		must(t, d.replace(opened))
		began, worked, log := time.Now(), time.Time{}, &strings.Builder{}
		alone := &app{drivers: d}
		s := &settling{
			Runnable: manager.RunnableFunc(func(context.Context) error { worked = time.Now(); return nil }), until: alone.settles(),
			logger: funcr.New(func(_, args string) { log.WriteString(args + "\n") }, funcr.Options{}),
		}
		if got := s.unready(); !strings.Contains(got, "pods wait for 6s") {
			t.Errorf("the manager is unready because of %q, want it to say that it waits", got)
		}
		must(t, s.Start(t.Context()))
		if waited := worked.Sub(began); waited < 6*time.Second {
			t.Errorf("pods are worked on after %s, want at least twice the longest timeout", waited)
		}
		if got := s.unready(); got != "" || !strings.Contains(log.String(), "may still be carried out") {
			t.Errorf("after that it is unready because of %q, and logged %q", got, log)
		}
		for name, a := range map[string]*app{"a lease": {drivers: d, lease: &lease{}}, "a dry run": {drivers: d, dryRun: &dryRun{}}} {
			if until := a.settles(); !until.IsZero() {
				t.Errorf("with %s the manager waits until %s, want it not to", name, until)
			}
		}
	})
}

func TestRequestsFollowTheLeasesAnnotation(t *testing.T) {
	t.Parallel()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: "system", Name: "rollcall", Annotations: map[string]string{orders.Annotation: "of the last leader"},
	}}
	var refusal, refusedWrite error
	api := clientfake.NewClientBuilder().WithObjects(lease).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return stdcmp.Or(refusal, c.Get(ctx, key, o, opts...))
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if refusedWrite != nil {
				return refusedWrite
			}
			return c.Update(ctx, o, opts...)
		},
	}).Build()
	asked, log := &askedResync{}, &strings.Builder{}
	r := &requests{
		server: api, lease: client.ObjectKeyFromObject(lease), resync: asked,
		logger: funcr.New(func(_, args string) { log.WriteString(args + "\n") }, funcr.Options{}),
	}
	annotate := func(value string) {
		must(t, api.Get(t.Context(), r.lease, lease))
		lease.Annotations = map[string]string{orders.Annotation: value}
		must(t, api.Update(t.Context(), lease))
	}
	expectAnnotation := func(why, want string) {
		t.Helper()
		must(t, api.Get(t.Context(), r.lease, lease))
		expect.Equal(t, want, lease.Annotations[orders.Annotation], "the annotation: %s", why)
	}

	r.look(t.Context())
	asked.expect(t, "the annotation is old, and a leader begins with a run anyway", 0)
	annotate("now")
	r.look(t.Context())
	r.look(t.Context())
	asked.expect(t, "the value is new once", 1)
	annotate("0123456789ab, ba9876543210 now,")
	r.look(t.Context())
	asked.expect(t, "there are two digests, and the value is new", 2, "0123456789ab", "ba9876543210")
	expectAnnotation("both count", "0123456789ab, ba9876543210 now,")
	annotate("ba9876543210")
	r.look(t.Context())
	asked.expect(t, "one is taken back, and the value is new", 3, "ba9876543210")
	annotate("")
	r.look(t.Context())
	asked.expect(t, "nothing is left to ask for", 3)

	annotate("0123456789ab,now,ba9876543210")
	asked.spent = []string{"0123456789ab"}
	refusedWrite = apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, "rollcall", nil)
	r.look(t.Context())
	asked.expect(t, "one is used up", 4, "0123456789ab", "ba9876543210")
	expectAnnotation("the lease was renewed in between", "0123456789ab,now,ba9876543210")
	refusedWrite = nil
	r.look(t.Context())
	expectAnnotation("what a person asks for stays", "now,ba9876543210")
	asked.spent = []string{"ba9876543210"}
	r.look(t.Context())
	r.look(t.Context())
	asked.expect(t, "what this manager writes asks for nothing", 4)
	annotate("ba9876543210")
	r.look(t.Context())
	asked.expect(t, "a person gives it again", 5, "ba9876543210")
	if must(t, api.Get(t.Context(), r.lease, lease)); len(lease.Annotations) > 0 {
		t.Errorf("the lease has %v, want no annotation without a word in it", lease.Annotations)
	}

	refusal = errors.New("forbidden")
	r.look(t.Context())
	r.look(t.Context())
	if got := strings.Count(log.String(), "forbidden"); got != 1 {
		t.Errorf("logged %d errors, want one:\n%s", got, log)
	}
}

type askedResync struct {
	runs            int
	approved, spent []string
}

func (a *askedResync) Run() { a.runs++ }

// Approve says that those that are spent count no more.
func (a *askedResync) Approve(digests []string) []string {
	a.approved = digests
	return slices.DeleteFunc(slices.Clone(digests), func(d string) bool { return !slices.Contains(a.spent, d) })
}

func (a *askedResync) expect(t *testing.T, why string, runs int, approved ...string) {
	t.Helper()
	if diff := cmp.Diff(approved, append([]string(nil), a.approved...)); diff != "" || a.runs != runs {
		t.Errorf("asked for %d runs, want %d; approved (-want +got):\n%s\nwhy: %s", a.runs, runs, diff, why)
	}
}
