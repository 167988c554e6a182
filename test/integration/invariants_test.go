package integration

import (
	"net/http"
	"slices"
	"strings"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/checker"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

// expectInvariants holds the scenario against the invariants that chaos is held against, or against those whose violation
// would have the words.
func (s *scenario) expectInvariants(words string) {
	s.Helper()
	for _, v := range s.checked().Broken() {
		if strings.Contains(v.Text, words) {
			s.Errorf("%s: %s", v.At.Format("05.000000"), v.Text)
		}
	}
}

// ExpectDrained expects that n hooks or more were released. That the drain had passed before each is an invariant.
func (s *scenario) ExpectDrained(n int) {
	s.Helper()
	released := s.checked().Counts().Released
	s.Expect(released >= n, "%d hooks were released, not %d", released, n)
}

// checked is all that has happened so far, and judged.
func (s *scenario) checked() *checker.Journal {
	j := checker.New(checker.Options{Drain: s.drain, CallTimeout: callTimeout})
	s.tellCalls(j)
	for _, w := range s.writes() {
		if !w.ToPod() || s.forgotten(w.Received) {
			continue
		}
		var after uint64
		if w.Pod != nil {
			after = version(w.Pod)
		}
		j.PatchFinished(j.PatchReceived(s.manager.Name, w), w.Status, after, w.Received)
	}
	hooks := s.ownHooks()
	for _, pod := range s.history.All() {
		for _, v := range s.history.Of(pod.UID) {
			if pod.Namespace == s.ns && !s.forgotten(v.arrived) {
				j.Saw(string(pod.UID), client.ObjectKeyFromObject(v.pod), hooks, s.sighting(v, hooks))
			}
		}
	}
	j.Conclude(time.Now())
	return j
}

// forgotten reports whether at a time no workload names the handlers any more, so that they are released wherever a pod stands.
func (s *scenario) forgotten(at time.Time) bool {
	return !s.forgetting.IsZero() && at.After(s.forgetting)
}

// tellCalls tells of the calls that change something.
func (s *scenario) tellCalls(j *checker.Journal) {
	operations := map[fakeregistry.Op]checker.Op{
		fakeregistry.OpRegister: checker.Register, fakeregistry.OpFailOver: checker.FailOver, fakeregistry.OpDeregister: checker.Deregister,
	}
	for _, c := range s.registry.Calls(fakeregistry.Match{Namespace: s.ns}) {
		op, changes := operations[c.Op]
		if !changes || s.forgotten(c.Started) {
			continue
		}
		call := j.CallReceived(checker.Call{Registry: onlyRegistry, Op: op, Instance: c.Instance, Received: c.Started})
		if !c.Applied.IsZero() {
			j.CallApplied(call, c.Applied)
		}
		if c.Acknowledged() {
			j.CallAnswered(call, http.StatusNoContent, c.Answered)
		}
	}
}

// ownHooks have the handlers that are Rollcall's.
func (s *scenario) ownHooks() checker.Hooks {
	own := checker.Hooks{}
	for hook, handlers := range s.hooks {
		own[hook] = slices.DeleteFunc(slices.Clone(handlers), func(h string) bool { return !ours(h) })
	}
	return own
}

func (s *scenario) sighting(v sighting, hooks checker.Hooks) checker.Sighting {
	pod := v.pod
	seen := checker.Sighting{
		At: v.arrived, Version: version(pod), State: v.state(), Stamp: pod.Annotations[appspub.LifecycleTimestampKey],
		Ready:    lifecycle.IsReady(lifecycle.PodOf(pod)) && pod.Labels[tier] != tierDetached,
		Deleting: pod.DeletionTimestamp != nil, Held: len(pod.Finalizers) > 0, Gone: v.deleted,
		Set: checker.SetOn(hooks, pod), Address: pod.Status.PodIP, Record: pod.Annotations[recordKey],
	}
	for _, e := range s.entriesOf([]*corev1.Pod{pod}) {
		seen.Keys = append(seen.Keys, checker.KeyOf(onlyRegistry, e.Instance))
	}
	return seen
}
