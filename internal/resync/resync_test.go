package resync

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rollcall-dev/rollcall/internal/orders"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/bubble"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
	"github.com/rollcall-dev/rollcall/test/harness/series"
)

const (
	cluster = "prod-1"
	timeout = 5 * time.Second
)

func TestRun(t *testing.T) {
	t.Parallel()
	bubble.Scenes(t, map[string]func(t *testing.T){
		"is one list for each registry": func(t *testing.T) {
			s := newScene(t, "a", "b")
			s.pods("a", "web-1", "web-2")
			s.pods("b", "api-1")
			s.start()
			s.expectLists("a run begins at once", "a", 1)
			s.expectLists("a run begins at once", "b", 1)
			time.Sleep(10 * time.Minute)
			s.stop()
			for _, name := range []string{"a", "b"} {
				if n := s.lists(name); n < 10 || n > 12 {
					t.Errorf("registry %s was listed %d times in 10 minutes, want one list a minute", name, n)
				}
				s.expectCalls("what is right is left as it is", name)
			}
			s.expectLogged("drift", 0)
		},
		"logs what differs": func(t *testing.T) {
			s := newScene(t, "a")
			s.drifts = 2
			s.start()
			s.stop()
			s.expectLogged(`"registry drift detected, reapplying" "registry"="a" "missing"=0 "different"=2`, 1)
		},
		"waits for the cache if labels choose the namespaces": func(t *testing.T) {
			s := newScene(t, "a")
			s.selector, s.synced = labels.Everything(), false
			s.start()
			s.expectLists("the cache tells which entries count", "a", 0)
			s.set(func() { s.synced = true })
			time.Sleep(syncRecheck)
			s.expectLists("it has synced", "a", 1)
			s.stop()
		},
		"that fails before the cache has synced is a failure, and is retried": func(t *testing.T) {
			s := newScene(t, "a")
			s.synced = false
			s.fakes["a"].Fail(list(), errors.New("refused"))
			s.start()
			time.Sleep(2 * firstRetry)
			s.expectLogged("resync fails", 1)
			s.expectLists("one more after a second", "a", 2)
			s.stop()
		},
		"comes once more when a list shows what earlier leaders wrote": func(t *testing.T) {
			s := newScene(t, "a")
			s.client("a", lagging{s.fakes["a"], 30 * time.Second, nil})
			s.start()
			time.Sleep(31 * time.Second)
			synctest.Wait()
			s.set(func() { expect.Equal(t, 2, len(s.listings), "runs") })
			time.Sleep(5 * time.Minute)
			s.stop()
			s.set(func() {
				if n := len(s.listings); n < 7 || n > 8 {
					t.Errorf("%d runs in five and a half minutes, want one a minute, and one after 30 s", n)
				}
			})
		},
		"leaves out entries of other clusters": func(t *testing.T) {
			s := newScene(t, "a")
			s.pods("a", "web-1")
			foreign := registry.Instance{
				Service: "web", Address: "10.9.9.9", Port: 80, Cluster: "another", Namespace: "shop", Pod: "web-9", UID: "uid-of-web-9",
			}
			expect.NoError(t, s.backends["a"].Register(t.Context(), foreign))
			s.client("a", &careless{s.fakes["a"], []registry.Entry{{Instance: foreign, State: registry.InService}}})
			s.start()
			time.Sleep(10 * time.Minute)
			s.stop()
			for _, e := range s.lastListing().Entries {
				if e.Cluster != cluster {
					t.Errorf("compared with the cluster: %+v", e)
				}
			}
			s.expectCalls("its pod lives in another cluster", "a")
		},
		"lists once until the cache has synced": func(t *testing.T) {
			s := newScene(t, "a")
			s.pods("a", "web-1", "web-2")
			s.gone("web-1")
			s.synced = false
			s.start()
			time.Sleep(20 * time.Second)
			s.expectLists("the list that the first reconciles need", "a", 1)
			s.set(func() { s.synced = true })
			time.Sleep(2 * syncRecheck)
			s.expectLists("and another one for what is gone by now", "a", 2)
			s.expectCalls("now it is known to be gone", "a", "Deregister web-1")
			s.stop()
		},
		"on demand": func(t *testing.T) {
			s := newScene(t, "a")
			s.pods("a", "web-1", "web-2")
			s.start()
			s.gone("web-1")
			s.resync.Run()
			synctest.Wait()
			s.expectCalls("it was asked for", "a", "Deregister web-1")
			s.expectLists("one at start, one on demand", "a", 2)
			s.apply()
			synctest.Wait()
			s.expectLists("and one since the configuration changed", "a", 3)
			s.stop()
		},
		"logs once that a driver can't list": func(t *testing.T) {
			s := newScene(t, "a")
			s.client("a", struct{ registry.Registry }{s.fakes["a"]})
			s.out = []registry.Instance{{Service: "web"}} // of a driver that could read applications' entries
			s.start()
			time.Sleep(time.Hour)
			s.apply()
			synctest.Wait()
			s.stop()
			s.expectLogged("can't list", 1)
			s.expectLists("there is no way", "a", 0)
			s.expectMetric("rollcall_resync_listable", "", 0)
			if got := s.resync.Status()["a"]; got != (Status{}) {
				t.Errorf("the status is %+v, want none", got)
			}
		},
		"logs nothing of drivers that have no entries": func(t *testing.T) {
			s := newScene(t, "a", "b")
			s.client("a", entryless{s.fakes["a"], registry.Traits{FollowsCondition: true}})
			s.client("b", entryless{s.fakes["b"], registry.Traits{CallsPods: true}})
			s.start()
			time.Sleep(time.Hour)
			s.stop()
			s.expectLogged("can't list", 0)
		},
		"of a slow registry holds up no other": func(t *testing.T) {
			s := newScene(t, "slow", "fast")
			s.fakes["slow"].Hold(list())
			s.start()
			time.Sleep(10 * time.Minute)
			if n := s.lists("fast"); n < 10 {
				t.Errorf("the other one was listed %d times in 10 minutes", n)
			}
			s.stop()
		},
		"shows the age of its last success from the start": func(t *testing.T) {
			const last = "rollcall_resync_last_success_timestamp_seconds"
			s := newScene(t, "a")
			heal := s.fakes["a"].Fail(list(), errors.New("refused"))
			began := time.Now()
			s.start()
			time.Sleep(5 * time.Minute)
			s.apply()
			time.Sleep(5 * time.Minute)
			s.expectMetric(last, "", seconds(began))
			if all := series.Of(s, s.metrics); !slices.Contains(all, "rollcall_resync_interval_seconds 60") {
				t.Errorf("the interval, by which the alert judges the age, is not 60 in\n%s", strings.Join(all, "\n"))
			}
			heal()
			s.resync.Run()
			synctest.Wait()
			s.expectMetric(last, "", seconds(time.Now()))
			s.stop()
		},
		"shows the age of its last success although its registry is opened anew": func(t *testing.T) {
			const last = "rollcall_resync_last_success_timestamp_seconds"
			s := newScene(t, "a")
			rotates := func() {
				s.client("a", s.fakes["a"])
				if s.resync != nil {
					s.apply()
					synctest.Wait()
				}
			}
			heal := s.fakes["a"].Fail(list(), errors.New("refused"))
			rotates()
			began := time.Now()
			s.start()
			for range 3 { // as often as a token is rotated
				time.Sleep(5 * time.Minute)
				rotates()
				s.expectMetric(last, "", seconds(began))
			}
			heal()
			s.resync.Run()
			synctest.Wait()
			succeeded := time.Now()
			s.fakes["a"].Fail(list(), errors.New("refused again"))
			time.Sleep(5 * time.Minute)
			rotates()
			s.expectMetric(last, "", seconds(succeeded))
			if got := s.resync.Status()["a"]; !got.Succeeded.Equal(succeeded) || !strings.Contains(got.Failure, "refused again") {
				t.Errorf("the status is %+v, want the last success of %s", got, succeeded)
			}
			s.stop()
		},
		"has ended when Start returns": func(t *testing.T) {
			s := newScene(t, "a")
			s.pods("a", "web-1", "web-2")
			s.gone("web-1")
			s.fakes["a"].Hold(fakeregistry.Match{Op: fakeregistry.OpDeregister})
			s.start()
			s.stop()
			for _, c := range s.fakes["a"].Calls(fakeregistry.Match{}) {
				if c.Answered.IsZero() {
					t.Errorf("%s is under way after Start returned", c.Op)
				}
			}
			if strings.Contains(s.logged(), "fails") {
				t.Errorf("a manager that stops is no failure, and the log says %s", s.logged())
			}
		},
	})
}

func TestReap(t *testing.T) {
	t.Parallel()
	bubble.Scenes(t, map[string]func(t *testing.T){
		"removes entries without a pod": func(t *testing.T) {
			s := newScene(t, "a")
			s.pods("a", "web-1", "web-2", "web-3")
			s.gone("web-2")
			foreign := s.register("a", "other", func(in *registry.Instance) { in.Cluster = "prod-2" })
			s.start()
			s.expectCalls("the pod is gone and no manager takes its entry out", "a", "Deregister web-2")
			s.expectListed("all but that one stay", "a", "web-1", "web-3")
			s.expectForeign("a", foreign)
			s.expectMetric("rollcall_resync_entries_total", "reaped", 1)
			time.Sleep(2 * pause)
			s.expectLists("nothing is left to remove", "a", 1)
			time.Sleep(remembered + 2*time.Minute)
			s.stop()
			s.expectCalls("it is gone by now", "a", "Deregister web-2")
			expect.Equal(t, 0, len(s.resync.keepers["a"].tries), "tries that are remembered")
		},
		"leaves the slot to a rollout": func(t *testing.T) {
			s := newScene(t, "a")
			s.pods("a", "web-1", "web-2", "web-3")
			s.gone("web-2")
			s.client("a", s.fakes["a"], func(o *registryclient.Options) { o.MaxInFlight = 2 })
			hold := s.fakes["a"].Hold(fakeregistry.Match{Op: fakeregistry.OpFailOver})
			rolls := func(pod string) {
				rolling := registry.Change{Instance: registry.Instance{Service: "web", Namespace: "shop", Pod: pod}, State: registry.OutOfService}
				go func() {
					_ = s.registries["a"].Change(t.Context(), registryclient.Caller{ID: pod, Urgent: true}, rolling)
				}()
				synctest.Wait()
			}
			rolls("web-4")
			time.Sleep(1250 * time.Millisecond) // so that no tick of the queue comes in the moment in which the first call times out
			rolls("web-5")                      // it takes the slot as soon as the first call times out
			s.start()
			s.expectCalls("the service has one slot, and a rollout's call has that", "a", "FailOver web-4")
			time.Sleep(timeout + 3*time.Second/2)
			s.expectLists("a run whose removal had no turn is made again", "a", 2)
			hold.Release()
			time.Sleep(time.Second)
			s.expectCalls("the slot is free", "a", "Deregister web-2", "FailOver web-4", "FailOver web-5")
			s.stop()
			expect.Equal(t, 0, s.registries["a"].Status().InUse, "slots are still taken")
		},
		"retries a removal that fails": func(t *testing.T) {
			s := newScene(t, "a")
			s.pods("a", "web-1", "web-2", "web-3")
			s.gone("web-1", "web-2")
			s.fakes["a"].FailNext(fakeregistry.Match{Op: fakeregistry.OpDeregister, Pod: "web-1"}, errors.New("refused"))
			s.start()
			time.Sleep(5 * time.Second)
			s.stop()
			s.expectCalls("the one that succeeded is not repeated", "a", "Deregister web-1", "Deregister web-1", "Deregister web-2")
			s.expectLogged(`"msg"="removed"`, 2)
			s.expectMetric("rollcall_resync_entries_total", "reaped", 2)
		},
		"tells of one that may be carried out late": func(t *testing.T) {
			s := newScene(t, "a")
			s.pods("a", "web-1", "web-2", "web-3")
			s.gone("web-1", "web-2")
			s.fakes["a"].Hold(fakeregistry.Match{Op: fakeregistry.OpDeregister, Pod: "web-1"})
			s.fakes["a"].FailNext(fakeregistry.Match{Op: fakeregistry.OpDeregister, Pod: "web-2"}, errors.New("refused"))
			s.start()
			time.Sleep(timeout)
			synctest.Wait()
			s.stop()
			s.mu.Lock()
			defer s.mu.Unlock()
			if want := []string{"uid-of-web-1 for 5s"}; !slices.Equal(s.landing, want) {
				t.Errorf("got %q, want %q: the next pod at the endpoint must wait for it, and no other pod", s.landing, want)
			}
		},
		"gives up after a few failures in a row": func(t *testing.T) {
			s := newScene(t, "a")
			s.maxRemovals = "100%"
			s.gone(s.many("a", 300)...)
			heal := s.fakes["a"].Fail(fakeregistry.Match{Op: fakeregistry.OpDeregister}, errors.New("connection refused"))
			s.start()
			if n := len(s.calls("a")); n < hopeless || n >= hopeless+reapAtOnce {
				t.Errorf("%d of 300 removals were tried of a registry that refuses each, want %d and what was under way", n, hopeless)
			}
			time.Sleep(timeout + time.Second/2) // for as long as a removal waits that meets the open breaker
			s.expectLogged("left for the next run", 1)
			s.expectMetric("rollcall_resync_unfinished_removals", "", 300)
			heal()
			time.Sleep(2 * time.Minute)
			s.stop()
			s.expectListed("the registry answers again", "a")
			s.expectMetric("rollcall_resync_unfinished_removals", "", 0)
		},
		"tries failed removals last": func(t *testing.T) {
			s := newScene(t, "a")
			s.maxRemovals = "100%"
			names := s.many("a", 50)
			s.gone(names...)
			var stuck []string
			for _, name := range names[:hopeless+reapAtOnce] {
				s.fakes["a"].Fail(fakeregistry.Match{Op: fakeregistry.OpDeregister, Pod: name}, registry.Terminal(errors.New("forbidden")))
				stuck = append(stuck, name)
			}
			s.start()
			time.Sleep(30 * time.Second) // a few runs, since each gives up after a few failures in a row
			s.stop()
			s.expectListed("those that failed go last in the next run", "a", stuck...)
		},
		"that is refused is no failed comparison, and both are retried sooner and logged once": func(t *testing.T) {
			s := newScene(t, "a")
			s.pods("a", "web-1", "web-2")
			s.gone("web-1")
			heal := s.fakes["a"].Fail(fakeregistry.Match{Op: fakeregistry.OpDeregister}, registry.Terminal(errors.New("forbidden")))
			began := time.Now()
			s.start()
			time.Sleep(30 * time.Second)
			if n := s.lists("a"); n < 4 || n > 7 {
				t.Errorf("tried %d times in 30 s, want 5: after 1, 2, 4, 8 and 16 s", n)
			}
			s.expectMetric("rollcall_resync_last_success_timestamp_seconds", "", seconds(began.Add(15*time.Second)))
			time.Sleep(10 * time.Minute)
			s.expectLogged("resync fails", 0)
			s.expectLogged("without a live pod fails, retrying", 1)
			s.expectStatus("forbidden", false)
			list := s.fakes["a"].Fail(list(), errors.New("refused"))
			before := s.lists("a")
			time.Sleep(2 * time.Minute)
			if n := s.lists("a") - before; n < 6 || n > 9 {
				t.Errorf("tried %d times in 2 minutes, want 7: after 1, 2, 4 s and so on, and within a minute", n)
			}
			s.expectLogged("resync fails", 1)
			s.expectStatus("listing: ", false)
			list()
			time.Sleep(2 * time.Minute)
			s.expectLogged(`"resync succeeds again" "registry"="a" "failures"=`, 1)
			s.expectLogged(`"lastFailure"="listing: `, 1)
			s.expectLogged("without a live pod fails, retrying", 1)
			s.expectLogged("removing entries without a live pod succeeds again", 0)
			heal()
			time.Sleep(2 * time.Minute)
			s.stop()
			s.expectLogged("removing entries without a live pod succeeds again", 1)
			s.expectStatus("", false)
		},
		"in a dry run removes nothing and is no failure": func(t *testing.T) {
			s := newScene(t, "a")
			s.pods("a", "web-1", "web-2")
			s.gone("web-1")
			told := 0
			s.client("a", s.fakes["a"], func(o *registryclient.Options) { o.DryRun = func(registryclient.Subject) { told++ } })
			s.start()
			time.Sleep(10 * time.Minute)
			s.stop()
			s.expectLogged("resync fails", 0)
			s.expectLogged("removed an entry", 0)
			if n := s.lists("a"); n > 12 {
				t.Errorf("listed %d times in 10 minutes: a step that a dry run only logs is no failure", n)
			}
			s.expectCalls("nothing is removed", "a")
			if told == 0 {
				t.Error("the removal was not told")
			}
		},
		"that is blocked leaves no removal unfinished": func(t *testing.T) {
			s := newScene(t, "a")
			names := s.many("a", 20)
			s.gone(names[0])
			s.fakes["a"].Fail(fakeregistry.Match{Op: fakeregistry.OpDeregister}, errors.New("refused"))
			s.start()
			s.expectMetric("rollcall_resync_unfinished_removals", "", 1)
			s.gone(names[:10]...)
			time.Sleep(2 * time.Minute)
			s.expectMetric("rollcall_resync_blocked_removals", "", 10)
			s.expectMetric("rollcall_resync_unfinished_removals", "", 0)
			s.stop()
		},
		"of a stale list removes once": func(t *testing.T) {
			s := newScene(t, "a")
			s.pods("a", "web-1", "web-2", "web-3")
			s.gone("web-1", "web-3")
			s.fakes["a"].FailNext(fakeregistry.Match{Op: fakeregistry.OpDeregister, Pod: "web-3"}, errors.New("refused"))
			before, err := s.fakes["a"].List(t.Context(), cluster)
			expect.NoError(t, err)
			s.client("a", lagging{s.fakes["a"], 210 * time.Second, before})
			s.start()
			time.Sleep(200 * time.Second)
			s.expectCalls("for all this time the list is of before", "a", "Deregister web-1", "Deregister web-3", "Deregister web-3")
			if l := s.lastListing(); l.Confirms || l.Staleness != 210*time.Second {
				t.Errorf("a list that is 210 s old was given as %+v", l)
			}
			time.Sleep(2 * time.Minute)
			s.expectCalls("a list of now would not have it", "a", "Deregister web-1", "Deregister web-1",
				"Deregister web-3", "Deregister web-3", "Deregister web-3")
			s.stop()
		},
	})
}

func TestReapSpares(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		unless func(*scene)
	}
	bubble.Each(t, map[string]row{
		"before the cache has synced": {"pods that are there would be missing", func(s *scene) { s.synced = false }},
		"where the list fails":        {"an error says nothing", func(s *scene) { s.fakes["a"].Fail(list(), errors.New("refused")) }},
		"where the API server fails":  {"an error says nothing", func(s *scene) { s.failGone(errors.New("refused")) }},
		"of another namespace":        {"its pods are not known here", func(s *scene) { s.namespaces = []string{"shop-2"} }},
		"of what no pod can be called": {"the API server refuses to look for it, and others are still compared", func(s *scene) {
			s.register("a", "odd", func(in *registry.Instance) { in.Pod = "../secrets" })
			s.gone("odd")
			s.live["uid-of-web-1"] = true
		}},
		"without a pod's name": {"the API server can't be asked for it", func(s *scene) {
			s.register("a", "nameless", func(in *registry.Instance) { in.Pod = "" })
			s.gone("nameless")
			s.live["uid-of-web-1"] = true
		}},
		"of a namespace that can't be": {"the API server refuses to look there", func(s *scene) {
			s.register("a", "odd", func(in *registry.Instance) { in.Namespace = "../secrets" })
			s.gone("odd")
			s.live["uid-of-web-1"] = true
		}},
		"without a UID": {"no pod can be looked for", func(s *scene) {
			s.register("a", "no-uid", func(in *registry.Instance) { in.UID = "" })
			s.live = map[string]bool{"uid-of-web-1": true, "uid-of-web-2": true, "uid-of-web-3": true}
		}},
		"if the comparison fails": {"an error says nothing", func(s *scene) { s.compareErr = errors.New("refused") }},
	}, func(t *testing.T, tc row) {
		s := newScene(t, "a")
		s.pods("a", "web-1", "web-2", "web-3")
		s.gone("web-1")
		tc.unless(s)
		s.start()
		time.Sleep(10 * time.Minute)
		s.stop()
		s.expectCalls(tc.reason, "a")
	})
}

// careless lists what is other clusters' too, as a driver may whose registry can't be asked for one cluster's entries.
type careless struct {
	*fakeregistry.Registry
	others []registry.Entry
}

func (c *careless) List(ctx context.Context, cluster string) ([]registry.Entry, error) {
	entries, err := c.Registry.List(ctx, cluster)
	return append(entries, c.others...), err
}

func TestApproval(t *testing.T) {
	t.Parallel()
	bubble.Scenes(t, map[string]func(t *testing.T){
		"is needed for too many removals": func(t *testing.T) {
			s := newScene(t, "a")
			names := s.many("a", 20)
			s.gone(names[:6]...)
			s.start()
			time.Sleep(5 * time.Minute)
			s.expectCalls("20% of 20 are 4", "a")
			s.expectMetric("rollcall_resync_blocked_removals", "", 6)
			s.expectStatus("", true)
			if len(s.warnings) != 1 {
				t.Fatalf("warned %d times, want once: %q", len(s.warnings), s.warnings)
			}
			digest := s.digest(s.warnings[0])
			if held := s.resync.Status()["a"].Held; held == nil || held.Digest != digest || held.Total != 6 || len(held.Entries) != 6 {
				t.Errorf("the status has %+v, want the six entries that a person approves of", held)
			}
			for _, part := range []string{"6 of 20", "web-", "20%", orders.Annotation} {
				if !strings.Contains(s.warnings[0], part) {
					t.Errorf("the warning %q does not say %q", s.warnings[0], part)
				}
			}
			if strings.Contains(s.warnings[0], "()") {
				t.Errorf("the warning %q has an ID that the registry does not give", s.warnings[0])
			}

			lists := s.lists("a")
			s.resync.Approve([]string{"0123456789ab"})
			s.expectLists("nothing new is approved", "a", lists)
			s.expectCalls("another digest approves of nothing", "a")
			s.gone(names[6])
			s.resync.Approve([]string{digest})
			synctest.Wait()
			s.expectCalls("no person approved of the seventh", "a")
			if len(s.warnings) != 2 {
				t.Fatalf("warned %d times, want again: they are others", len(s.warnings))
			}
			s.resync.Approve([]string{digest, s.digest(s.warnings[1])})
			synctest.Wait()
			s.stop()
			if held := s.resync.Status()["a"].Held; held != nil {
				t.Errorf("the status still has %+v", held)
			}
			if got := s.calls("a"); len(got) != 7 {
				t.Errorf("made %q, want 7 removals", got)
			}
			s.expectMetric("rollcall_resync_blocked_removals", "", 0)
		},
		"holds while no removal succeeds": func(t *testing.T) {
			s := newScene(t, "a")
			s.gone(s.many("a", 5)...)
			heal := s.fakes["a"].Fail(fakeregistry.Match{Op: fakeregistry.OpDeregister}, errors.New("refused"))
			s.start()
			s.resync.Approve([]string{s.digest(s.warnings[0])})
			time.Sleep(5 * time.Minute)
			heal()
			time.Sleep(2 * time.Minute)
			s.stop()
			s.expectListed("they are what was approved", "a")
			s.expectLogged("removal approved", 1)
			expect.Equal(t, 1, len(s.warnings), "times a person was asked")
		},
		"is offered again to a person who asks": func(t *testing.T) {
			s := newScene(t, "a")
			s.gone(s.many("a", 5)...)
			s.start()
			time.Sleep(5 * time.Minute)
			s.resync.Run()
			synctest.Wait()
			s.stop()
			if len(s.warnings) != 2 || s.digest(s.warnings[0]) != s.digest(s.warnings[1]) {
				t.Errorf("warned %q, want the same twice: the first may have expired", s.warnings)
			}
		},
		"is offered again before the Event expires": func(t *testing.T) {
			s := newScene(t, "a")
			s.gone(s.many("a", 5)...)
			s.start()
			time.Sleep(reason.EventRepeat + 5*time.Minute)
			s.stop()
			if len(s.warnings) != 2 || s.warnings[0] != s.warnings[1] {
				t.Errorf("warned %q, want the same twice: the API server drops an Event after an hour", s.warnings)
			}
		},
		"is not offered without a lease": func(t *testing.T) {
			s := newScene(t, "a")
			s.leaseNamespace = ""
			s.gone(s.many("a", 5)...)
			s.start()
			time.Sleep(time.Minute)
			s.stop()
			if len(s.warnings) != 1 || strings.Contains(s.warnings[0], "lease") || !strings.Contains(s.warnings[0], "raise resync.maxRemovals") {
				t.Errorf("warned %q, want once, of the limit and of no lease: there is none", s.warnings)
			}
		},
		"by raising the limit": func(t *testing.T) {
			s := newScene(t, "a")
			s.gone(s.many("a", 5)...)
			s.start()
			time.Sleep(time.Minute)
			s.expectCalls("all of it is more than a few", "a")
			s.resync.Apply(Policy{Interval: time.Minute, MaxRemovals: intstr.FromInt32(5)}, s.registries)
			synctest.Wait()
			if got := s.calls("a"); len(got) != 5 {
				t.Errorf("made %q, want 5 removals at once", got)
			}
			s.stop()
		},
	})
}

func TestApprovalHoldsForItsEntriesUntilTheyAreGone(t *testing.T) {
	t.Parallel()
	const all, named = 300, 200
	type row struct {
		reason string
		// amid comes between the run that was approved, which leaves some of what was named, and the next one.
		amid func(s *scene, names []string)
		// rest: they stay.
		rest bool
		told int
	}
	bubble.Each(t, map[string]row{
		"a run that gives up": {"the rest was named too", func(*scene, []string) {}, false, 1},
		"a reload": {"the registry is the same, and so is what was named",
			func(s *scene, _ []string) { s.apply() }, false, 1},
		"a rotated token": {"the servers are the same, and so is what was named", func(s *scene, _ []string) {
			s.client("a", s.fakes["a"])
			s.apply()
		}, false, 1},
		"another pod that vanishes": {"no person approved of that one",
			func(s *scene, names []string) { s.gone(names[named]) }, true, 2},
		"another pod that vanishes, and is back": {"what is left was named", func(s *scene, names []string) {
			s.gone(names[named])
			time.Sleep(2 * timeout)
			s.set(func() { s.live["uid-of-"+names[named]] = true })
		}, false, 2},
		"an approval that is withdrawn": {"a person has seen that it was wrong",
			func(s *scene, _ []string) { s.resync.Approve(nil) }, true, 2},
	}, func(t *testing.T, tc row) {
		s := newScene(t, "a")
		names := s.many("a", all)
		s.gone(names[:named]...)
		s.start()
		var heal []func() // what keeps half of them
		for _, pod := range names[named/2 : named] {
			heal = append(heal, s.fakes["a"].Fail(fakeregistry.Match{Op: fakeregistry.OpDeregister, Pod: pod}, errors.New("refused")))
		}
		s.resync.Approve([]string{s.digest(s.warnings[0])})
		synctest.Wait()
		tc.amid(s, names)
		for _, h := range heal {
			h()
		}
		time.Sleep(3 * time.Minute)
		s.stop()
		entries, err := s.backends["a"].List(t.Context(), cluster)
		expect.NoError(t, err)
		if rest := len(entries) > all-named; rest != tc.rest || len(s.warnings) != tc.told {
			t.Errorf("of %d entries for %d pods some are left: %t, want %t; a person was asked %d times, want %d\nreason: %s",
				len(entries), all-named, rest, tc.rest, len(s.warnings), tc.told, tc.reason)
		}
	})
}

// TestApprovalIsUsedUp: an approval is for what a person has seen once. Another cluster at work puts its entries back each minute.
func TestApprovalIsUsedUp(t *testing.T) {
	t.Parallel()
	const all = 5
	type row struct {
		reason string
		// fails are how many of the removals fail at first, and back is how many of the entries come back after each run.
		fails, back int
		// amid comes once the entries are gone and before they are back.
		amid func(s *scene, digest string)
		// removed is how many entries are removed in the end, and told how often a person was asked.
		removed, told int
	}
	bubble.Each(t, map[string]row{
		"all come back before the next run": {"nobody has approved that they go again", 0, all, nil, all, 2},
		"some come back":                    {"these are others than a person has seen", 0, all - 1, nil, all, 2},
		"they come back later": {"they were gone for an hour", 0, all, func(*scene, string) {
			time.Sleep(time.Hour)
		}, all, 2},
		"some are left, and the others come back": {"the set is the same, and so is its digest", 2, all - 2, nil, all - 2, 2},
		"nothing comes back":                      {"nothing is asked", 0, 0, nil, all, 1},
		"it is withdrawn and given again": {"a person has seen them twice", 0, all, func(s *scene, digest string) {
			s.resync.Approve(nil)
			time.AfterFunc(5*time.Minute, func() { s.resync.Approve([]string{digest}) })
		}, 2 * all, 3},
	}, func(t *testing.T, tc row) {
		s := newScene(t, "a")
		names := s.many("a", all)
		entries, err := s.backends["a"].List(t.Context(), cluster)
		expect.NoError(t, err)
		s.gone(names...)
		s.start()
		var heal []func()
		for _, pod := range names[all-tc.fails:] {
			heal = append(heal, s.fakes["a"].Fail(fakeregistry.Match{Op: fakeregistry.OpDeregister, Pod: pod}, errors.New("refused")))
		}
		digest := s.digest(s.warnings[0])
		s.resync.Approve([]string{digest})
		synctest.Wait()
		if tc.amid != nil {
			tc.amid(s, digest)
		}
		for until := time.Now().Add(15 * time.Minute); time.Now().Before(until); time.Sleep(10 * time.Second) {
			for _, e := range entries[:tc.back] {
				expect.NoError(t, s.backends["a"].Register(t.Context(), e.Instance))
			}
		}
		for _, h := range heal {
			h()
		}
		time.Sleep(10 * time.Minute)
		s.stop()
		removed := 0
		for _, call := range s.fakes["a"].Calls(fakeregistry.Match{Op: fakeregistry.OpDeregister}) {
			if call.Acknowledged() {
				removed++
			}
		}
		if removed != tc.removed || len(s.warnings) != tc.told {
			t.Errorf("removed %d entries, want %d; a person was asked %d times, want %d\nreason: %s",
				removed, tc.removed, len(s.warnings), tc.told, tc.reason)
		}
	})
}

// TestApprovalsAnswerThisLeader: another leader's question was about another moment.
func TestApprovalsAnswerThisLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, "a")
		s.gone(s.many("a", 5)...)
		entries, err := s.backends["a"].List(t.Context(), cluster)
		expect.NoError(t, err)
		digest := digestOf("a", entries)
		s.approved = []string{digest}
		s.start()
		time.Sleep(10 * time.Minute)
		s.expectCalls("this leader had not asked", "a")
		expectSpent := func(why string, want bool) {
			t.Helper()
			if spent := s.resync.Approve([]string{digest}); slices.Contains(spent, digest) != want {
				t.Errorf("digests %q count no more, want this of %s: %t\nwhy: %s", spent, digest, want, why)
			}
		}
		expectSpent("the Lease still has it", true)
		s.resync.Approve(nil)
		expectSpent("a person has given it to this leader", false)
		synctest.Wait()
		if got := s.calls("a"); len(got) != 5 {
			t.Errorf("made %q, want 5 removals", got)
		}
		expectSpent("its entries are removed", true)
		s.stop()
	})
}

func TestAllowed(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		limit  intstr.IntOrString
		owned  int
		want   int
	}
	expect.Each(t, map[string]row{
		"a share":            {"20% of 100", intstr.FromString("20%"), 100, 20},
		"half an entry":      {"a share is rounded up", intstr.FromString("20%"), 101, 21},
		"of few":             {"one of three can have gone, and two, and three", intstr.FromString("20%"), 3, 3},
		"of none":            {"there is nothing to remove", intstr.FromString("20%"), 0, 3},
		"nothing":            {"0% is a word", intstr.FromString("0%"), 100, 0},
		"all":                {"100% is one too", intstr.FromString("100%"), 7, 7},
		"a number":           {"it counts as it stands", intstr.FromInt32(1), 100, 1},
		"the number nothing": {"it counts as it stands", intstr.FromInt32(0), 100, 0},
		"a broken one":       {"nothing goes by mistake", intstr.FromString("20"), 100, 0},
	}, func(t *testing.T, tc row) {
		expect.Equal(t, tc.want, allowed(tc.limit, tc.owned), "%s of %d: %s", tc.limit.String(), tc.owned, tc.reason)
	})
}

func TestListConfirmsOnlyWhatIsSure(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		made   func(*fakeregistry.Registry) registry.Registry
		want   bool
	}
	expect.Each(t, map[string]row{
		"a plain one": {"what it lists was acknowledged", func(f *fakeregistry.Registry) registry.Registry { return f }, true},
		"one that is stale": {
			"it may have changed since", func(f *fakeregistry.Registry) registry.Registry { return lagging{f, time.Second, nil} }, false,
		},
		"one with expiring entries": {
			"the entry may go with the last leader's lease", func(f *fakeregistry.Registry) registry.Registry { return leasing{Registry: f} }, false,
		},
	}, func(t *testing.T, tc row) {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t, "a")
			s.client("a", tc.made(s.fakes["a"]))
			s.start()
			s.stop()
			if got := s.lastListing(); got.Confirms != tc.want {
				t.Errorf("got %+v, want confirms %t\nreason: %s", got, tc.want, tc.reason)
			}
		})
	})
}

func TestListedIsClosedAfterTheFirstLists(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		change func(*scene)
		after  time.Duration
	}
	bubble.Each(t, map[string]row{
		"one that comes":           {"it is there", func(*scene) {}, 0},
		"one that fails":           {"nothing comes of waiting", func(s *scene) { s.fakes["a"].Fail(list(), errors.New("refused")) }, 0},
		"one that is slow":         {"all registries are waited for", func(s *scene) { time.AfterFunc(time.Second, s.fakes["b"].Hold(list()).Release) }, time.Second},
		"one that hangs":           {"not for longer than for a call", func(s *scene) { s.fakes["a"].Hold(list()) }, timeout},
		"two that hang":            {"not one after the other", func(s *scene) { s.fakes["a"].Hold(list()); s.fakes["b"].Hold(list()) }, timeout},
		"a driver that can't list": {"nothing will come", func(s *scene) { s.client("a", struct{ registry.Registry }{s.fakes["a"]}) }, 0},
	}, func(t *testing.T, tc row) {
		s := newScene(t, "a", "b")
		tc.change(s)
		began := time.Now()
		s.start()
		<-s.listed
		expect.Equal(t, tc.after, time.Since(began), "pods were held back for: %s", tc.reason)
		s.stop()
	})
}

func TestApply(t *testing.T) {
	t.Parallel()
	bubble.Scenes(t, map[string]func(t *testing.T){
		"ends the run of a dropped registry": func(t *testing.T) {
			s := newScene(t, "a", "b")
			hold := s.fakes["a"].Hold(list())
			s.start()
			s.resync.Apply(Policy{Interval: time.Minute, MaxRemovals: intstr.FromString("20%")}, registryclient.Registries{"b": s.registries["b"]})
			synctest.Wait()
			if calls := s.fakes["a"].Calls(list()); len(calls) != 1 || calls[0].Answered.IsZero() {
				t.Errorf("its list is still under way: %+v", calls)
			}
			hold.Release()
			time.Sleep(10 * time.Minute)
			s.stop()
			s.expectLists("it is no longer asked", "a", 1)
		},
		"forgets the metrics of a dropped registry": func(t *testing.T) {
			s := newScene(t, "a", "b")
			s.pods("a", "web-1", "web-2")
			s.gone("web-1")
			s.fakes["a"].Hold(fakeregistry.Match{Op: fakeregistry.OpDeregister})
			s.start()
			s.expectShown("both are compared", "a", "b")
			s.resync.Apply(Policy{Interval: time.Minute, MaxRemovals: intstr.FromString("20%")}, registryclient.Registries{"b": s.registries["b"]})
			time.Sleep(timeout) // a removal that was begun is finished
			synctest.Wait()
			s.expectShown("the end of its last run must not bring it back", "b")
			s.stop()
		},
		"begins again with a driver that can't list": func(t *testing.T) {
			s := newScene(t, "a")
			s.start()
			s.expectMetric("rollcall_resync_listable", "", 1)
			s.client("a", struct{ registry.Registry }{s.fakes["a"]})
			s.apply()
			synctest.Wait()
			s.expectMetric("rollcall_resync_listable", "", 0)
			s.stop()
		},
		"forgets what a dropped registry asked": func(t *testing.T) {
			s := newScene(t, "a")
			s.gone(s.many("a", 5)...)
			s.start()
			digest := s.digest(s.warnings[0])
			s.resync.Apply(Policy{Interval: time.Minute, MaxRemovals: intstr.FromString("20%")}, nil)
			expect.Equal(t, []string{digest}, s.resync.Approve([]string{digest}), "digests that count no more")
			s.stop()
		},
		"renamed by a restart is in the history": func(t *testing.T) {
			s := newScene(t, "main")
			s.renamed = []string{"default"}
			s.start()
			synctest.Wait()
			s.stop()
			s.expectLogged(`"registry"="main" "former"="default"`, 1)
		},
		"during a run is no failure": func(t *testing.T) {
			s := newScene(t, "a")
			s.start()
			_, keepers := s.resync.inForce()
			s.resync.Apply(Policy{Interval: time.Minute, MaxRemovals: intstr.FromString("20%")}, nil)
			synctest.Wait()
			expect.NoError(t, s.registries["a"].Close())
			keepers["a"].turn(t.Context()) // as one that has yet to hear of it
			s.stop()
			s.expectLogged("resync fails", 0)
		},
	})
}

func seconds(at time.Time) float64 { return float64(at.UnixMilli()) / 1000 }

// TestALargeRegistryIsComparedLessOften unless the configuration says how often.
func TestALargeRegistryIsComparedLessOften(t *testing.T) {
	t.Parallel()
	type row struct {
		reason   string
		interval time.Duration
		entries  int
		least    int64
		most     int64
	}
	bubble.Each(t, map[string]row{
		"small":          {"each minute", 0, 10, 25, 36},
		"large":          {"every 3 minutes", 0, 30_000, 9, 13},
		"large, and set": {"the configuration wins", time.Minute, 30_000, 25, 36},
	}, func(t *testing.T, tc row) {
		s := newScene(t, "a")
		c := &crowded{Registry: s.fakes["a"], entries: make([]registry.Entry, tc.entries)}
		s.client("a", c)
		s.start()
		s.resync.Apply(Policy{Interval: tc.interval, MaxRemovals: intstr.FromString("20%")}, s.registries)
		time.Sleep(30 * time.Minute)
		s.stop()
		if n := c.lists.Load(); n < tc.least || n > tc.most {
			t.Errorf("%s: listed %d times in half an hour, want %d to %d", tc.reason, n, tc.least, tc.most)
		}
	})
}

// crowded lists what others have written.
type crowded struct {
	*fakeregistry.Registry

	entries []registry.Entry
	lists   atomic.Int64
}

func (c *crowded) List(context.Context, string) ([]registry.Entry, error) {
	c.lists.Add(1)
	return slices.Clone(c.entries), nil
}

// entryless is a registry that the application or the pod's condition steers.
type entryless struct {
	registry.Registry
	traits registry.Traits
}

func (e entryless) Traits() registry.Traits { return e.traits }

func TestIntervalFollowsFromEntries(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		set     time.Duration
		entries int
		want    time.Duration
		reason  string
	}{
		{0, 0, time.Minute, "nothing was listed yet"},
		{0, 10_000, time.Minute, "the most that is listed each minute"},
		{0, 30_000, 3 * time.Minute, "as many entries a minute as of 10,000"},
		{0, 4_000_000, 10 * time.Minute, "drift is found before the alert fires"},
		{30 * time.Second, 4_000_000, 30 * time.Second, "the configuration wins"},
		{time.Hour, 1, time.Hour, "the configuration wins"},
	} {
		expect.Equal(t, tt.want, Policy{Interval: tt.set}.interval(tt.entries), "%s", tt.reason)
	}
}
