package memory

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/waiting"
)

func noteOf(n *Pods, uid types.UID) *Pod {
	return n.Of(lifecycle.PodID{NamespacedName: types.NamespacedName{Namespace: "prod", Name: "web-" + string(uid)}, UID: uid})
}

func TestOneEventForAWorkload(t *testing.T) {
	t.Parallel()
	n, now := New(), time.Now()
	one, other := noteOf(n, "1"), noteOf(n, "2")
	expect := func(why string, of *Pod, workload types.UID, want bool) {
		t.Helper()
		if got := n.ClaimEvent(of, workload, now); got != want {
			t.Errorf("gets an Event: %t, want %t\nwhy: %s", got, want, why)
		}
	}
	expect("the first of its pods that waits", one, "web", true)
	expect("it stands for all of them", other, "web", false)
	expect("another workload has its own", other, "api", true)
	n.Show(one, "web", waiting.Blocker{Hook: lifecycle.PreDelete, Reason: reason.RegistryUnavailable, Said: now}, lifecycle.Circumstances{})
	expect("the first pod waits still", other, "web", false)
	n.Show(one, "web", waiting.Blocker{}, lifecycle.Circumstances{})
	expect("it has gone on", other, "web", true)
	now = now.Add(reason.EventRepeat)
	expect("the API server drops an Event after an hour", other, "web", true)
	expect("it has one again", one, "web", false)
	n.Show(other, "web", waiting.Blocker{Reason: reason.RegistryUnavailable}, lifecycle.Circumstances{})
	expect("OpenKruise waits for the other no more, whatever is still wrong with it", one, "web", true)
}

func TestWaits(t *testing.T) {
	t.Parallel()
	n := New()
	one := noteOf(n, "1")
	n.Show(one, "web", waiting.Blocker{Hook: lifecycle.PreDelete, Reason: reason.RegistryUnavailable, Message: "slow", Said: time.Now()}, lifecycle.Circumstances{})
	if got := n.Waits(); len(got) != 1 || got[0].Pod != "web-1" || got[0].Workload != "web" || got[0].Reason != "RegistryUnavailable" || !got[0].Warning {
		t.Errorf("got %+v, want the pod that waits", got)
	}
	n.Show(one, "web", waiting.Blocker{Reason: reason.NotReady}, lifecycle.Circumstances{})
	if got := n.Waits(); len(got) != 1 || got[0].Warning {
		t.Errorf("got %+v, want one that waits as in any rollout", got)
	}
	n.Show(one, "web", waiting.Blocker{}, lifecycle.Circumstances{})
	if got := n.Waits(); len(got) > 0 || one.Shown() != (waiting.Blocker{}) {
		t.Errorf("got %+v of a pod that waits for nothing", got)
	}
	n.Forget("1")
	if n.Len() > 0 {
		t.Error("a pod that was forgotten has a note")
	}
}

func TestEachIsNewOnce(t *testing.T) {
	t.Parallel()
	one := noteOf(New(), "1")
	for i, got := range []bool{one.NoteSeveral(), !one.NoteSeveral(), one.NoteReturned(), !one.NoteReturned()} {
		if !got {
			t.Errorf("answer %d is wrong: an Event comes once", i)
		}
	}
	one.NoteJoined()
	if !one.NoteReturned() || one.NoteSeveral() {
		t.Error("an entry that comes back after the pod was in rotation is news, and several entries are not")
	}
}

// TestReadOut: a record of the future lets no pod wait for longer than a drain since it was first read.
func TestReadOut(t *testing.T) {
	t.Parallel()
	pod, now := noteOf(New(), "1"), time.Unix(0, 0)
	expect := func(why string, since, now, want time.Time) {
		t.Helper()
		if pod.ReadOut(&since, now); !pod.OutRead.Equal(want) {
			t.Errorf("read at %v, want %v\nwhy: %s", pod.OutRead, want, why)
		}
	}
	ahead, later := now.Add(1000*time.Hour), now.Add(time.Minute)
	expect("it is new", ahead, now, now)
	expect("it was read before", ahead, later, now)
	expect("another drain has begun", ahead.Add(time.Minute), later, later)
}

// TestEventsOnAPodAreBounded: whoever writes the pod can make it wait and go on as often as they like.
func TestEventsOnAPodAreBounded(t *testing.T) {
	t.Parallel()
	pod, now, told := New().Of(lifecycle.PodID{UID: "1"}), time.Unix(0, 0), 0
	for range 600 {
		now = now.Add(100 * time.Millisecond)
		if pod.MayTell(now) {
			told++
		}
	}
	if want := EventBurst + int(time.Minute/EventPause); told > want || told < want-1 {
		t.Errorf("%d Events in a minute, want %d", told, want)
	}
}
