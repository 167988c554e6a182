package resync

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/bubble"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

// UIDs of the namespace kube-system: of this cluster, and of another one.
const ownUID, otherUID = "uid-of-this-cluster", "uid-of-another"

// identified has the cluster's UID read, once refused is no more.
func (s *scene) identified() (refused *atomic.Bool) {
	refused = &atomic.Bool{}
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: ownUID}}
	s.identity = clusterstate.NewIdentity(refusing{clientOf(system), refused},
		funcr.New(func(_, args string) { s.set(func() { s.log.WriteString(args + "\n") }) }, funcr.Options{}))
	return refused
}

// refusing is an API server that may lack the right.
type refusing struct {
	client.Reader
	refused *atomic.Bool
}

func (r refusing) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	if r.refused.Load() {
		return errors.New(`namespaces "kube-system" is forbidden`)
	}
	return r.Reader.Get(ctx, key, into, opts...)
}

// written puts entries into registry a for the cluster with this UID, and returns their pods.
func (s *scene) written(uid string, n int) (pods []string) {
	s.Helper()
	for range n {
		pod := fmt.Sprintf("web-%02d", s.number)
		s.register("a", pod, func(in *registry.Instance) { in.ClusterUID = uid })
		pods = append(pods, pod)
	}
	return pods
}

// told are the Events with this reason.
func (s *scene) told(reason string) (events []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if strings.Contains(e, " "+reason+": ") {
			events = append(events, e)
		}
	}
	return events
}

// expectTold expects one Event with this reason that has these words, or none where there are no words.
func (s *scene) expectTold(reason string, words ...string) {
	s.Helper()
	synctest.Wait()
	events := s.told(reason)
	if len(events) != min(1, len(words)) {
		s.Fatalf("there are %d Events %s, want %d: %q", len(events), reason, min(1, len(words)), events)
	}
	for _, word := range words {
		if !strings.Contains(events[0], word) {
			s.Errorf("the Event %q does not have %q", events[0], word)
		}
	}
}

func (s *scene) expectRemoved(why string, want int) {
	s.Helper()
	synctest.Wait()
	if got := s.calls("a"); len(got) != want {
		s.Errorf("removed %d entries, want %d: %q\nwhy: %s", len(got), want, got, why)
	}
}

func TestRemovalsOfThisVeryCluster(t *testing.T) {
	t.Parallel()
	bubble.Scenes(t, map[string]func(t *testing.T){
		"go whatever their share, a few in each run": func(t *testing.T) {
			s := newScene(t, "a")
			s.identified()
			s.gone(s.written(ownUID, 24)[:12]...)
			s.start()
			s.expectRemoved("20% of 24, rounded up", 5)
			s.expectMetric("rollcall_resync_unfinished_removals", "", 7)
			time.Sleep(pause)
			s.expectRemoved("20% of the 19 that are left", 9)
			time.Sleep(5 * time.Minute)
			s.expectRemoved("the API server has none of their pods", 12)
			s.expectTold(manyRemovals, "Normal", "12 of 24 entries", `"a"`, "at most 5 in a run")
			s.expectTold(removalBlocked)
			s.expectMetric("rollcall_resync_entries_total", "reaped", 12)
			s.expectMetric("rollcall_resync_unfinished_removals", "", 0)
			s.expectMetric("rollcall_resync_blocked_removals", "", 0)
			s.stop()
			if n := s.lists("a"); n > 10 {
				t.Errorf("listed %d times in 5 minutes, want one list a minute, and three for the removals", n)
			}
			s.expectLogged(`"msg"="removed" "namespace"="shop"`, 12)
		},
		"are told of again when there are many again": func(t *testing.T) {
			s := newScene(t, "a")
			s.identified()
			pods := s.written(ownUID, 40)
			s.gone(pods[:10]...)
			s.start()
			time.Sleep(time.Minute)
			s.gone(pods[10:30]...)
			time.Sleep(5 * time.Minute)
			s.stop()
			if events := s.told(manyRemovals); len(events) != 2 || !strings.Contains(events[1], "20 of 30 entries") {
				t.Errorf("told %q, want of 10 and then of 20", events)
			}
		},
		"wait for a person where no removal may go unasked": func(t *testing.T) {
			s := newScene(t, "a")
			s.identified()
			s.maxRemovals = "0%"
			s.gone(s.written(ownUID, 4)[0])
			s.start()
			time.Sleep(5 * time.Minute)
			s.expectRemoved("a person wants to be asked each time", 0)
			s.resync.Approve([]string{s.digest(s.warnings[0])})
			s.expectRemoved("a person has approved", 1)
			s.stop()
		},
		"that fail keep no others": func(t *testing.T) {
			s := newScene(t, "a")
			s.identified()
			pods := s.written(ownUID, 24)
			s.gone(pods[:12]...)
			for _, pod := range pods[:4] {
				s.fakes["a"].Fail(fakeregistry.Match{Op: fakeregistry.OpDeregister, Pod: pod}, errors.New("refused"))
			}
			s.start()
			time.Sleep(5 * time.Minute)
			s.stop()
			s.expectListed("those that fail go last", "a", append(pods[:4:4], pods[12:]...)...)
			s.expectMetric("rollcall_resync_unfinished_removals", "", 4)
		},
		"are made in no hurry where a dry run makes none": func(t *testing.T) {
			s := newScene(t, "a")
			s.identified()
			s.gone(s.written(ownUID, 24)[:12]...)
			s.client("a", s.fakes["a"], func(o *registryclient.Options) { o.DryRun = func(registryclient.Subject) {} })
			s.start()
			time.Sleep(10 * time.Minute)
			s.stop()
			s.expectRemoved("it is a dry run", 0)
			s.expectTold(manyRemovals, "12 of 24")
			if n := s.lists("a"); n > 12 {
				t.Errorf("listed %d times in 10 minutes, want one list a minute", n)
			}
		},
	})
}

// TestRemovalsOfOthers: what another cluster wrote, or an older version, goes by the share or when a person approves.
func TestRemovalsOfOthers(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		uid    string
		// unreadable: this cluster's own can't be read.
		unreadable bool
		note       string
	}
	bubble.Each(t, map[string]row{
		"another cluster's": {
			"it may live there, or the kubeconfig is the wrong one", otherUID, false, "12 carry the UID of another cluster with the same name, such as " + otherUID,
		},
		"an older version's": {"it may be another cluster's too", "", false, "(20%) allows: Rollcall removes none of them. If"},
		"where the UID is not read": {"then nothing tells the clusters apart", ownUID, true, "13 carry the UID of a cluster, such as " + ownUID +
			", which may be another one: this cluster's own, the UID of its namespace kube-system, could not be read"},
	}, func(t *testing.T, tc row) {
		s := newScene(t, "a")
		s.identified().Store(tc.unreadable)
		s.gone(s.written(tc.uid, 12)...)
		own := s.written(ownUID, 12)
		s.gone(own[0])
		s.start()
		time.Sleep(5 * time.Minute)
		held, removed := 12, 1
		if tc.unreadable {
			held, removed = 13, 0
			s.expectLogged("this cluster can't be told from another one", 1)
		}
		s.expectTold(removalBlocked, "Warning", fmt.Sprintf("%d of 2", held), tc.note)
		s.expectRemoved(tc.reason+"; what is this cluster's own goes all the same", removed)
		s.expectMetric("rollcall_resync_blocked_removals", "", float64(held))
		s.expectTold(clusterNameShared)
		s.resync.Approve([]string{s.digest(s.warnings[0])})
		s.expectRemoved("a person has approved", 13)
		s.stop()
	})
}

// TestTheUIDIsReadAsSoonAsItMayBe: a right that is granted takes no restart.
func TestTheUIDIsReadAsSoonAsItMayBe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, "a")
		refused := s.identified()
		refused.Store(true)
		s.gone(s.written(ownUID, 12)...)
		s.start()
		time.Sleep(5 * time.Minute)
		s.expectRemoved("nothing tells whose they are", 0)
		refused.Store(false)
		time.Sleep(5 * time.Minute)
		s.expectRemoved("they are this cluster's", 12)
		s.expectMetric("rollcall_resync_blocked_removals", "", 0)
		s.stop()
	})
}

// TestOneReadOfTheUIDFails: until the UID is read, an entry with a UID can be another cluster's, at work or former.
func TestOneReadOfTheUIDFails(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		uid    string
		// removed is how many go once the UID is read.
		removed int
		// told is what the Event says first.
		told string
	}
	bubble.Each(t, map[string]row{
		"another cluster's":  {"they may live there", otherUID, 0, "2 carry the UID of a cluster, such as " + otherUID + ", which may be another one"},
		"this cluster's":     {"the API server has none of their pods", ownUID, 2, "2 carry the UID of a cluster, such as " + ownUID + ", which may be another one"},
		"an older version's": {"they go by the share, as ever", "", 2, ""},
	}, func(t *testing.T, tc row) {
		s := newScene(t, "a")
		refused := s.identified()
		refused.Store(true)
		s.written(ownUID, 20)
		s.gone(s.written(tc.uid, 2)...) // less than the share that needs no approval
		s.start()
		removed := 0
		if tc.uid == "" {
			removed = tc.removed
		}
		s.expectRemoved("whose they are is not known yet", removed)
		refused.Store(false)
		time.Sleep(5 * time.Minute)
		s.expectRemoved(tc.reason, tc.removed)
		s.expectTold(clusterNameShared) // nothing was written meanwhile
		if blocked := s.told(removalBlocked); tc.told != "" && (len(blocked) == 0 || !strings.Contains(blocked[0], tc.told)) ||
			tc.told == "" && len(blocked) > 0 {
			t.Errorf("told %q, want first %q", blocked, tc.told)
		}
		s.stop()
	})
}

// TestTheUIDIsReadLate: what a former cluster left has not come in that moment, and what changed before is most likely this cluster's own.
func TestTheUIDIsReadLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, "a")
		refused := s.identified()
		refused.Store(true)
		s.written(ownUID, 1)
		s.written(otherUID, 1)
		s.start()
		s.written(ownUID, 1)
		time.Sleep(2 * time.Minute)
		s.expectTold(clusterNameShared)
		refused.Store(false)
		time.Sleep(2 * time.Minute)
		s.expectTold(clusterNameShared)
		s.written(otherUID, 1)
		time.Sleep(2 * time.Minute)
		s.expectTold(clusterNameShared, "Warning", otherUID, ownUID)
		s.stop()
	})
}

// TestTwoClustersWithOneName: nothing that another cluster wrote is removed unasked, be it ever so little and at rest, and one that is at
// work under this one's name is told of.
func TestTwoClustersWithOneName(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		// works is what happens between two lists.
		works func(s *scene, theirs registry.Instance)
		// seen: it can only be the other cluster's work.
		seen bool
	}
	bubble.Each(t, map[string]row{
		"registers a pod": {"somebody did that", func(s *scene, theirs registry.Instance) {
			theirs.Port, theirs.Pod, theirs.UID = 9999, "new", "uid-of-new"
			expect.NoError(s, s.backends["a"].Register(s.Context(), theirs))
		}, true},
		"registers pod after pod": {"a person knows of it for a while", func(s *scene, theirs registry.Instance) {
			for i := range 3 {
				theirs.Port, theirs.Pod, theirs.UID = 9990+i, "new", "uid-of-new"
				expect.NoError(s, s.backends["a"].Register(s.Context(), theirs))
				s.resync.Run()
				synctest.Wait()
			}
		}, true},
		"takes a pod out": {"somebody did that", func(s *scene, theirs registry.Instance) {
			expect.NoError(s, s.backends["a"].FailOver(s.Context(), theirs))
		}, true},
		"is at rest": {"its pod may serve for months before it moves", func(*scene, registry.Instance) {}, false},
		"has another name": {"it may do as it likes", func(s *scene, theirs registry.Instance) {
			theirs.Port, theirs.Cluster = 9999, "prod-2"
			expect.NoError(s, s.backends["a"].Register(s.Context(), theirs))
		}, false},
		"is this one":     {"a pod was registered, as usual", func(s *scene, _ registry.Instance) { s.written(ownUID, 1) }, false},
		"may be this one": {"an older version of Rollcall may be the leader", func(s *scene, _ registry.Instance) { s.written("", 1) }, false},
	}, func(t *testing.T, tc row) {
		s := newScene(t, "a")
		s.identified()
		s.written(ownUID, 20)
		theirs := s.register("a", "theirs", func(in *registry.Instance) { in.ClusterUID = otherUID })
		s.start()
		s.expectTold(clusterNameShared)
		tc.works(s, theirs)
		s.set(func() { delete(s.live, "uid-of-new") })
		s.gone("theirs")
		time.Sleep(5 * time.Minute)
		var told []string
		if tc.seen {
			told = []string{"Warning", `"prod-1"`, otherUID, ownUID, "set another cluster"}
		}
		s.expectTold(clusterNameShared, told...)
		s.expectRemoved(tc.reason, 0)
		if blocked := s.told(removalBlocked); len(blocked) == 0 || !strings.Contains(blocked[0], "carry the UID of another cluster with the same name, such as "+otherUID) {
			t.Fatalf("told %q, want that a removal waits, and whose entry it is", blocked)
		}
		time.Sleep(2 * reason.EventRepeat)
		s.expectTold(clusterNameShared, told...) // once, since it does nothing any more
		s.resync.Approve([]string{s.digest(s.warnings[len(s.warnings)-1])})
		synctest.Wait()
		if len(s.calls("a")) == 0 {
			t.Error("a person has approved, and nothing is removed")
		}
		s.stop()
	})
}

// TestEntriesElsewhere: after a change of an option, the entries of before have this cluster's tag, and no call removes them.
func TestEntriesElsewhere(t *testing.T) {
	t.Parallel()
	bubble.Scenes(t, map[string]func(t *testing.T){"are told of once in a while, and if there are more": func(t *testing.T) {
		s := newScene(t, "a", "b")
		copied := s.register("a", "web-1", func(in *registry.Instance) { in.Registry = "a" })
		gone := s.fakes["a"].Copy(copied, "web on node old-07")
		s.fakes["a"].Foreign(copied)
		foreign := func(change func(*registry.Instance)) {
			other := copied
			change(&other)
			s.fakes["a"].Copy(other, "x")
		}
		foreign(func(in *registry.Instance) { in.Cluster = "prod-2" })
		foreign(func(in *registry.Instance) { in.Registry = "b" })
		s.gone("web-1")
		s.start()
		s.expectTold(entriesElsewhere, "Warning", `"a"`, "given 1 entries", "shop/web-1 (web on node old-07)")
		s.expectCalls("what is where the driver has it is removed, as ever", "a", "Deregister web-1")
		time.Sleep(10 * time.Minute)
		s.expectTold(entriesElsewhere, "Warning")
		time.Sleep(reason.EventRepeat)
		expect.Equal(t, 2, len(s.told(entriesElsewhere)), "Events once the first may have expired")
		ofDropped := copied
		ofDropped.Registry = "dropped"
		gone2 := s.fakes["a"].Copy(ofDropped, "web on node old-08")
		time.Sleep(2 * time.Minute)
		if events := s.told(entriesElsewhere); len(events) != 3 || !strings.Contains(events[2], "given 2 entries") {
			t.Errorf("got events %q, want another one of two entries", events)
		}
		gone()
		gone2()
		time.Sleep(2 * reason.EventRepeat)
		expect.Equal(t, 3, len(s.told(entriesElsewhere)), "Events after all are removed")
		s.stop()
	}})
}

// behind is a registry whose servers are more than its addresses.
type behind struct {
	*fakeregistry.Registry
	servers atomic.Pointer[[]string]
}

func (b *behind) UnlistedMembers() []string { return *b.servers.Load() }

// TestServersNotListed: what one server lacks others may give to clients.
func TestServersNotListed(t *testing.T) {
	t.Parallel()
	bubble.Scenes(t, map[string]func(t *testing.T){"are told of once, and again if they change": func(t *testing.T) {
		s := newScene(t, "a")
		b := &behind{Registry: s.fakes["a"]}
		b.servers.Store(&[]string{"10.0.0.1:8848", "10.0.0.2:8848"})
		s.client("a", b)
		s.start()
		s.expectTold(serversNotListed, "Warning", `"a" has 2 servers`, "10.0.0.1:8848, 10.0.0.2:8848", "only if 2 answers agree")
		time.Sleep(2 * reason.EventRepeat)
		s.expectTold(serversNotListed, "Warning", "has 2 servers")
		b.servers.Store(&[]string{"10.0.0.1:8848", "10.0.0.2:8848", "10.0.0.3:8848"})
		time.Sleep(reason.EventRepeat)
		if events := s.told(serversNotListed); len(events) != 2 || !strings.Contains(events[1], "has 3 servers") {
			t.Errorf("got events %q, want another one of three servers", events)
		}
		b.servers.Store(&[]string{})
		time.Sleep(reason.EventRepeat)
		expect.Equal(t, 2, len(s.told(serversNotListed)), "Events once all servers are listed")
		s.stop()
	}})
}
