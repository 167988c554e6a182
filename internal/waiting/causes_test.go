package waiting

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"

	"github.com/rollcall-dev/rollcall/internal/drain"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

type entryNamed string

func (e entryNamed) String() string { return string(e) }

func detached() Blocker {
	in := lifecycle.Input{Pod: &lifecycle.Pod{}}
	in.Pod.Name, in.Pod.Labels = "web-x7k2p", map[string]string{kruisev1alpha1.CloneSetInstanceID: "x7k2p"}
	return OutDetached(in.Detach().Ending)
}

func heldOut() Blocker {
	in := lifecycle.Input{Pod: &lifecycle.Pod{}}
	in.Pod.Namespace, in.Pod.Name = "prod", "web-x7k2p"
	return HeldOut(in.HoldOut(lifecycle.Hold{Until: time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC), Why: "heap dump"}).Ending)
}

// TestSentences holds every sentence about a pod against testdata/sentences.txt, which is there to be read aloud.
func TestSentences(t *testing.T) {
	t.Parallel()
	entry := entryNamed(`service "web" at 10.0.0.1:8080`)
	err, at := errors.New("connection refused"), time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)
	const after = 5 * time.Second
	untilIdle := drain.Policy{Min: 5 * time.Second, Max: 10 * time.Minute, Until: drain.Until{Port: 8080, Path: "/idle"}}
	later := at.Add(time.Minute)
	all := []Blocker{
		Draining(at, drain.Fixed(15*time.Second), drain.State{Most: at.Add(15 * time.Second)}, drain.Answer{}, at),
		Draining(at, untilIdle, untilIdle.At(at, at, drain.Answer{}), drain.Answer{}, at),
		Draining(at, untilIdle, untilIdle.At(later, at, drain.Answer{}), drain.Answer{Asked: later, Left: 3}, later),
		{Message: DrainTimeout(lifecycle.PreDelete, untilIdle.Max, drain.Answer{Asked: later, Left: 3}), Reason: reason.DrainTimeout},
		ReadersLag(entry, at, after),
		WarmingUp(after),
		NotServing(entry, err, after),
		Settling(entry, after),
		NotConfirmed(entry, lifecycle.OutOfService, registry.InService, after),
		NotYetListed("nacos"),
		UnknownRegistry(entry),
		Failed(entry, err),
		Failed(entry, err).NoCondition("pods/status is forbidden"),
		Stopping(),
		Unheard(40),
		AlsoRegistersItself(entry, "10.0.0.1:8080", "the registry was asked for it", nil),
		AlsoRegistersItself(entry, "10.0.0.1:8080", "", []lifecycle.Foreign{{Endpoint: lifecycle.Endpoint{Address: "fd00::1", Port: 8080}}}),
		AlsoRegistersItself(entry, "10.0.0.1:8080", "", []lifecycle.Foreign{{Endpoint: lifecycle.Endpoint{Address: "10.0.0.1", Port: 8080}, Tagged: "node old"}}),
		AppMissing(entry, nil),
		AppMissing(entry, err).LookedForAt([]string{"10.0.0.1", "fd00::1"}),
		AppMissing(entry, nil).Under("10.0.0.1:8080", []string{"WEB"}, "rollcall.dev/services", "web"),
		AppUnseen(entry).WillHold(),
		AppEntryRemains(entry, after),
		UnreadOther(entry, err, after),
		ReadFailed(err, false),
		ReadFailed(err, true),
		PatchRefused(err, after),
		CacheBehind(2 * time.Minute),
		UnsupportedWorkload("ReplicaSet"),
		UnknownState("Resting"),
		HeldNotReady(),
		Ending("its node ends at 10:00"),
		detached(),
		heldOut(),
		Orphaned(),
		NotReady(""),
		NotReady("its containers are not ready"),
		AwaitingOpenKruise(),
		UnknownName(`an annotation "rollcall.dev/drian"`),
		IPv6Missing(`service "web" at 10.0.0.1:8080`),
		UnreadyTarget("target-health.elbv2.k8s.aws/web"),
		VirtualNodeIP("10.96.0.9", "node-1"),
		Described(reason.InvalidPod, "no container has a port"),
	}
	var text strings.Builder
	for _, b := range all {
		fmt.Fprintf(&text, "%s: %s\n", b.Reason, b.Message)
	}
	golden := filepath.Join("testdata", "sentences.txt")
	want, readErr := os.ReadFile(golden)
	expect.NoError(t, readErr)
	if text.String() != string(want) {
		t.Errorf("the sentences differ from %s. If they are meant to, this is the file:\n%s", golden, text.String())
	}
}
