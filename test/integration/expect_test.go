package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/checker"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
	"github.com/rollcall-dev/rollcall/test/harness/manager"
)

// ExpectSteady waits until every pod is where Kruise wants it, with its hooks armed, and the registry holds exactly
// these pods, in service.
func (s *scenario) ExpectSteady() {
	s.Helper()
	s.await("everything to be steady", s.steady)
}

func (s *scenario) steady() error {
	pods, err := s.podsAtHome()
	if err != nil {
		return err
	}
	return s.registryHolds(pods)
}

// podsAtHome returns the pods once each is where Kruise wants it.
func (s *scenario) podsAtHome() ([]*corev1.Pod, error) {
	set, err := s.settled()
	if err != nil {
		return nil, err
	}
	pods := s.Pods()
	if len(pods) != int(*set.Spec.Replicas) {
		return nil, fmt.Errorf("there are %d pods, not %d", len(pods), *set.Spec.Replicas)
	}
	for _, pod := range pods {
		if err := s.atHome(pod, set); err != nil {
			return nil, fmt.Errorf("pod %s %w", pod.Name, err)
		}
	}
	return pods, nil
}

// settled returns the workload as it was last seen, or what Kruise still has to do.
func (s *scenario) settled() (*kruisev1alpha1.CloneSet, error) {
	set := s.history.Set(s.key)
	if set == nil {
		return nil, errors.New("the CloneSet was not seen yet")
	}
	want, got := *set.Spec.Replicas, set.Status
	if set.Generation < s.generation || got.ObservedGeneration != set.Generation {
		return nil, fmt.Errorf("generation %d was observed, not %d", got.ObservedGeneration, s.generation)
	}
	if got.Replicas != want || got.ReadyReplicas != want || got.AvailableReplicas != want {
		return nil, fmt.Errorf("%d replicas, %d ready, %d available, not %d", got.Replicas, got.ReadyReplicas, got.AvailableReplicas, want)
	}
	updated := want
	if p := set.Spec.UpdateStrategy.Partition; p != nil {
		updated -= min(p.IntVal, want)
	}
	if got.UpdatedReplicas < updated || got.UpdatedReadyReplicas < updated || got.UpdatedAvailableReplicas < updated {
		return nil, fmt.Errorf("%d replicas updated, %d of them ready, %d available, not %d",
			got.UpdatedReplicas, got.UpdatedReadyReplicas, got.UpdatedAvailableReplicas, updated)
	}
	return set, nil
}

// atHome reports what keeps a pod from where Kruise wants it.
func (s *scenario) atHome(pod *corev1.Pod, set *kruisev1alpha1.CloneSet) error {
	switch {
	case pod.DeletionTimestamp != nil:
		return errors.New("is being deleted")
	case stateOf(pod) != string(appspub.LifecycleStateNormal):
		return errors.New("is in " + stateOf(pod))
	case !lifecycle.IsReady(lifecycle.PodOf(pod)):
		return errors.New("is not ready")
	}
	hooks := hooksOf(set.Spec.Lifecycle)
	for _, h := range checker.HandlersOf(hooks) {
		if !setOn(h, pod) && !s.pastPreNormal(hooks, h, pod) {
			return fmt.Errorf("lacks handler %s of %v", h, hooks)
		}
	}
	for _, mark := range []string{"example.com/newly-create", "example.io/initialing"} {
		if pod.Labels[mark] == "true" || pod.Annotations[mark] == "true" {
			return errors.New("has the newly-created mark " + mark)
		}
	}
	return nil
}

// pastPreNormal reports a handler of preNormal alone on a pod that was updated before it ever was in Normal: Kruise did not
// come by that hook.
func (s *scenario) pastPreNormal(hooks checker.Hooks, handler string, pod *corev1.Pod) bool {
	if hooks.Serves(checker.InPlaceUpdate, handler) || hooks.Serves(checker.PreDelete, handler) {
		return false
	}
	before := ""
	for _, v := range s.history.Of(pod.UID) {
		if v.state() == string(appspub.LifecycleStateNormal) {
			return before == string(appspub.LifecycleStateUpdated)
		}
		before = v.state()
	}
	return false
}

// registryHolds compares the registry with the pods that should be in service: these and nothing else.
func (s *scenario) registryHolds(pods []*corev1.Pod) error {
	return compareEntries(s.entriesOf(pods), s.registry.Entries(s.T, s.ns))
}

func compareEntries(want, got []registry.Entry) error {
	byName := func(a, b registry.Entry) int {
		return strings.Compare(a.Service+a.Endpoint(), b.Service+b.Endpoint())
	}
	slices.SortFunc(want, byName)
	slices.SortFunc(got, byName)
	if diff := cmp.Diff(want, got); diff != "" && len(want)+len(got) > 0 {
		return fmt.Errorf("the registry holds something else (-want +got)\n%s", diff)
	}
	return nil
}

func (s *scenario) entriesOf(pods []*corev1.Pod) []registry.Entry {
	var entries []registry.Entry
	for _, pod := range pods {
		entries = append(entries, registry.Entry{State: registry.InService, Instance: registry.Instance{
			Service: s.ns, Address: pod.Status.PodIP, Port: s.port, Zone: s.zones[pod.Spec.NodeName],
			Cluster: s.cluster, Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID), Registry: onlyRegistry,
		}})
	}
	return entries
}

// ExpectServing waits until exactly these pods are in service, wherever Kruise has them.
func (s *scenario) ExpectServing(pods ...*corev1.Pod) {
	s.Helper()
	s.await(fmt.Sprintf("%d pods in service", len(pods)), func() error {
		return compareEntries(s.entriesOf(pods), s.registry.serving(s.T, s.ns))
	})
}

// ExpectNothingLeft deletes the workload where it is still there, and waits until neither a pod nor an entry is left.
func (s *scenario) ExpectNothingLeft() {
	s.Helper()
	s.DeleteCloneSet(metav1.DeletePropagationBackground)
	s.await("nothing to be left", func() error {
		if pods := s.Pods(); len(pods) > 0 {
			return fmt.Errorf("pod %s is there", pods[0].Name)
		}
		return s.registryHolds(nil)
	})
}

// ExpectImage expects every pod to run the image, and to have been updated where it was: the pods are the same as before.
func (s *scenario) ExpectImage(name string, before []*corev1.Pod) {
	s.Helper()
	now := s.Pods()
	for _, pod := range now {
		if got := pod.Status.ContainerStatuses[0].Image; got != name {
			s.Errorf("pod %s runs %s, not %s", pod.Name, got, name)
		}
	}
	if before != nil && !slices.Equal(uidsOf(before), uidsOf(now)) {
		s.Errorf("the pods were replaced, not updated in place: %v, then %v", uidsOf(before), uidsOf(now))
	}
}

func uidsOf(pods []*corev1.Pod) []types.UID {
	var uids []types.UID
	for _, pod := range pods {
		uids = append(uids, pod.UID)
	}
	slices.Sort(uids)
	return uids
}

func (s *scenario) ExpectSeen(pod *corev1.Pod, state appspub.LifecycleStateType) {
	s.Helper()
	if !s.wasIn(pod, state) {
		s.Errorf("pod %s was never in %s", pod.Name, state)
	}
}

func (s *scenario) ExpectNeverSeen(pod *corev1.Pod, state appspub.LifecycleStateType) {
	s.Helper()
	if s.wasIn(pod, state) {
		s.Errorf("pod %s was in %s", pod.Name, state)
	}
}

// ExpectAskedBeforeDelete expects that Kruise waited for our hook before it deleted the pod, where there is such a hook.
func (s *scenario) ExpectAskedBeforeDelete(pod *corev1.Pod) {
	s.Helper()
	if slices.ContainsFunc(s.hooks[checker.PreDelete], ours) {
		s.ExpectSeen(pod, appspub.LifecycleStatePreparingDelete)
	}
}

// ExpectEvent waits for an Event on the pod with this reason and these words in it.
func (s *scenario) ExpectEvent(pod *corev1.Pod, kind, reason string, words ...string) {
	s.Helper()
	s.await(fmt.Sprintf("an Event %s %s on pod %s with %q", kind, reason, pod.Name, words), func() error {
		return s.hasEvent(pod, kind, reason, words...)
	})
}

// hasEvent looks for an Event on the pod, or any where it is nil, with this reason and these words in it.
func (s *scenario) hasEvent(pod *corev1.Pod, kind, reason string, words ...string) error {
	for _, e := range s.Events() {
		ofPod, fits := pod == nil || e.Regarding.UID == pod.UID, e.Type == kind && e.Reason == reason
		if ofPod && fits && containsAll(e.Note, words) {
			return nil
		}
	}
	return errors.New("there is none")
}

func containsAll(text string, words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
}

func (s *scenario) ExpectLogged(words ...string) {
	s.Helper()
	s.await(fmt.Sprintf("a line with %q in the log", words), func() error { return logged(s.manager, words...) })
}

// logged looks for a line of the manager's log that has all these words.
func logged(m *rollcall, words ...string) error {
	for line := range strings.Lines(m.Log()) {
		if containsAll(line, words) {
			return nil
		}
	}
	return fmt.Errorf("the log of manager %s lacks it", m.Name)
}

// ExpectMetric waits until the manager shows a line like this regular expression.
func (s *scenario) ExpectMetric(pattern string) {
	s.Helper()
	line := regexp.MustCompile("(?m)^" + pattern + "$")
	s.await("metric "+pattern, func() error {
		body, err := s.manager.Get(s.Context(), manager.MetricsServer, "/metrics")
		if err == nil && !line.MatchString(body) {
			err = errors.New("there is none")
		}
		return err
	})
}

func (s *scenario) Expect(ok bool, format string, args ...any) {
	s.Helper()
	if !ok {
		s.Errorf(format+"\n%s", append(args, s.describe())...)
	}
}

// ExpectAlways checks what must hold whatever the scenario was.
func (s *scenario) ExpectAlways() {
	s.Helper()
	s.expectAllowedWrites()
	s.expectInvariants("")
	s.expectNoCallRepeated()
	s.expectFewWrites()
	if s.Failed() {
		s.Log(s.describe())
	}
}

// expectAllowedWrites: pods are only ever patched, and nothing else is touched but Events.
func (s *scenario) expectAllowedWrites() {
	s.Helper()
	for _, w := range s.writes() {
		for _, h := range checker.HandlersOf(s.hooks) {
			key, _, _ := strings.Cut(h, "=")
			if w.Pod != nil && !ours(h) && strings.Contains(w.Changes(), strings.ReplaceAll(key, "/", "~1")) {
				s.Errorf("pod %s: the manager flipped another owner's %s", w.Name, h)
			}
		}
		isEvent := w.Resource == "events" && (w.Method == http.MethodPost || w.Method == http.MethodPatch)
		isCondition := s.conditioned && w.Resource == "pods/status" && w.Method == http.MethodPatch
		if !w.ToPod() && !isEvent && !isCondition {
			s.Errorf("the manager sent %s %s %s", w.Method, w.Resource, w.Name)
		}
		if w.ToPod() && w.Status != 0 && !slices.Contains([]int{
			http.StatusOK, http.StatusUnprocessableEntity, http.StatusNotFound, http.StatusConflict,
		}, w.Status) {
			s.Errorf("patch of pod %s was answered %d: %s", w.Name, w.Status, w.Body)
		}
	}
}

func (s *scenario) versionBefore(pod *corev1.Pod) *corev1.Pod {
	var before *corev1.Pod
	for _, v := range s.history.Of(pod.UID) {
		if version(v.pod) < version(pod) {
			before = v.pod
		}
	}
	return before
}

// expectNoCallRepeated: nothing is asked of the registry again that it has acknowledged, but for a pod with a call that was given up, since
// it timed out or the pod moved on: that one could have been carried out last.
func (s *scenario) expectNoCallRepeated() {
	s.Helper()
	if s.troubled {
		return
	}
	givenUp := map[string]bool{}
	for _, e := range s.Events() {
		givenUp[string(e.Regarding.UID)] = givenUp[string(e.Regarding.UID)] || strings.Contains(e.Note, context.DeadlineExceeded.Error())
	}
	last := map[string]fakeregistry.Call{}
	for _, a := range s.registry.Answers(s.ns, "") {
		id := a.Instance.UID + a.Instance.Service + a.Instance.Endpoint()
		before := last[id] // acknowledged nothing where there is none
		// What clients see of an instance counts only while it is in service.
		same := before.Op == a.Op && (a.Op != fakeregistry.OpRegister || before.Instance.Equal(a.Instance))
		givenUp[a.Instance.UID] = givenUp[a.Instance.UID] || errors.Is(a.Err, context.Canceled)
		if before.Acknowledged() && same && !givenUp[a.Instance.UID] {
			s.Errorf("pod %s, service %s: %s at %s was acknowledged, and was asked for again at %s", a.Instance.Pod,
				a.Instance.Service, a.Op, before.Answered.Format("05.000000"), a.Started.Format("05.000000"))
		}
		last[id] = a
	}
}

// expectFewWrites: one stay of a pod in one state, its deletion being one too, costs one write, one more where it drains, one
// more where a hook had to be armed first, or cleared that an update has brought, and one more where the write about its stay before
// arrived late.
func (s *scenario) expectFewWrites() {
	s.Helper()
	if s.troubled {
		return
	}
	type stay struct {
		uid   types.UID
		moves int
	}
	writes, allowed, wants := map[stay]int{}, map[stay]int{}, map[stay]string{}
	for _, w := range s.writes() {
		if w.Pod == nil || !s.forgetting.IsZero() && w.Received.After(s.forgetting) {
			continue
		}
		before := s.versionBefore(w.Pod)
		if before == nil {
			s.Errorf("pod %s: the watch did not see the version before %s", w.Name, w.Pod.ResourceVersion)
			continue
		}
		at := stay{before.UID, s.movesUntil(before)}
		writes[at]++
		allowed[at] = max(allowed[at], 1)
		want, drains := wantOf(w.Pod), s.drain > 0 && strings.HasPrefix(stateOf(before), "Preparing")
		late := wants[at] != "" && wants[at] != want
		if drains || late || s.arms(before, w.Pod) || s.takesBack(before, w.Pod) {
			allowed[at] = 2
		}
		wants[at] = want
		if writes[at] > allowed[at] {
			s.Errorf("pod %s in %s cost write number %d at %s", w.Name, stateOf(before), writes[at], w.Received.Format("05.000"))
		}
	}
}

// movesUntil counts the moves of a pod from state to state, and in Normal from ready to not ready and back, up to one of
// its versions. Kruise's timestamp has whole seconds, which is too coarse for that.
func (s *scenario) movesUntil(pod *corev1.Pod) int {
	moves, last := 0, sighting{}
	for _, v := range s.history.Of(pod.UID) {
		if version(v.pod) > version(pod) {
			break
		}
		deleted := func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil }
		fit := func(p *corev1.Pod) bool {
			return stateOf(p) == string(appspub.LifecycleStateNormal) && lifecycle.IsReady(lifecycle.PodOf(p))
		}
		if last.pod != nil && (v.state() != last.state() || deleted(v.pod) != deleted(last.pod) || fit(v.pod) != fit(last.pod)) {
			moves++
		}
		last = v
	}
	return moves
}

// wantOf is what a pod's record says that it is to be.
func wantOf(pod *corev1.Pod) string {
	var record struct{ Want string }
	_ = json.Unmarshal([]byte(pod.Annotations[recordKey]), &record) // garbage says nothing
	return record.Want
}

// arms reports whether a write set preDelete or the guard, which no acknowledgement is needed for.
func (s *scenario) arms(before, after *corev1.Pod) bool {
	return !guarded(before) && guarded(after) || slices.ContainsFunc(s.hooks[checker.PreDelete], func(h string) bool {
		return !setOn(h, before) && setOn(h, after)
	})
}

// takesBack reports whether a write cleared a handler of inPlaceUpdate in Updating, which OpenKruise had brought along.
func (s *scenario) takesBack(before, after *corev1.Pod) bool {
	return stateOf(before) == string(appspub.LifecycleStateUpdating) &&
		slices.ContainsFunc(s.hooks[checker.InPlaceUpdate], func(h string) bool { return setOn(h, before) && !setOn(h, after) })
}
