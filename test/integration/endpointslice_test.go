package integration

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/statuspage"
	"github.com/rollcall-dev/rollcall/test/harness/cluster"
)

// TestEndpointSlices: with the driver endpointslice, OpenKruise updates and deletes a pod only once the EndpointSlices of both its Services
// have it out, and counts on a pod only once they have it in.
func TestEndpointSlices(t *testing.T) {
	t.Parallel()
	s, services := startServiced(t, "endpointslices")
	before := services.Begin(inPlace, replicas(2))

	s.UpdateImage("nginx:2")
	services.ExpectSteady()
	s.ExpectImage("nginx:2", before)

	s.Scale(1)
	services.ExpectSteady()
	s.DeletePod(s.Pods()[0])
	s.AwaitGone(before[0])
	s.AwaitGone(before[1])
	services.ExpectSteady()

	s.Edit(updateTypeAnd(kruisev1alpha1.RecreateCloneSetUpdateStrategyType, image("nginx:3")))
	services.ExpectSteady()
	s.ExpectImage("nginx:3", nil)

	services.ExpectFollowed(s.history.All())
	s.expectAllowedWrites()
}

// TestPodsThatNoServiceFollows: hooks and gate come to pods that had neither. OpenKruise makes the old pods unready, as the Event tells, and a pod
// that Rollcall could not take out, or that no Service selects, does not count as available.
func TestPodsThatNoServiceFollows(t *testing.T) {
	t.Parallel()
	s, services := startServiced(t, "endpointslices-adopted")
	s.Create(replicas(1), annotated(cluster.AnnotationGlobalAddress, "true"), unhooked,
		updateType(kruisev1alpha1.RecreateCloneSetUpdateStrategyType))
	old := s.AwaitPodIn(appspub.LifecycleStateNormal)
	s.untilPod(old, "is ready", func(now *corev1.Pod) bool { return lifecycle.IsTrue(lifecycle.PodOf(now), corev1.PodReady) })

	s.Edit(hooked)
	s.ExpectEvent(old, corev1.EventTypeWarning, "RegistryRefused", "lacks the readiness gate rollcall.dev/InRotation", "spec.readinessGates")
	s.DeleteByLabel(old)
	s.ExpectEvent(old, corev1.EventTypeWarning, "RegistryRefused", "are given the pod", "markPodNotReady", "kubectl rollcall skip")
	s.PatchPod(old, `{"metadata":{"annotations":{"rollcall.dev/skip":"preDelete"}}}`)
	s.AwaitGone(old)

	ungated := s.AwaitPodIn(appspub.LifecycleStatePreparingNormal)
	s.ExpectEvent(ungated, corev1.EventTypeWarning, "RegistryRefused", "lacks the readiness gate")
	s.Edit(func(set *kruisev1alpha1.CloneSet) {
		gatedByRotation(set)
		set.Spec.Lifecycle.PreDelete.MarkPodNotReady = true
	})
	s.AwaitGone(ungated)
	services.ExpectSteady()

	for _, name := range services.names {
		s.must(s.k8s.Delete(s.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}}))
	}
	s.Edit(image("nginx:2"))
	unselected := s.AwaitPodIn(appspub.LifecycleStatePreparingNormal)
	s.awaitPage("that no EndpointSlice lists the pod", func(page statuspage.Snapshot) bool {
		return slices.ContainsFunc(page.Pods, func(p statuspage.Pod) bool {
			return p.Pod == unselected.Name && p.Reason == string(reason.NotEffective) && strings.Contains(p.Message, "if no Service selects it, create one")
		})
	})
	services.create()
	services.ExpectSteady()
}

// TestEnrollmentBehindServices: a namespace's label enrolls a CloneSet whose template has the gate, and an Event tells why one without it is
// left alone.
func TestEnrollmentBehindServices(t *testing.T) {
	t.Parallel()
	const name = "endpointslices-enrolled"
	install(t, "enroll", name)
	s, services := startServiced(t, name, func(c configuration) { c["enroll"] = true })
	s.Create(replicas(0), annotated(cluster.AnnotationGlobalAddress, "true"), unhooked)
	s.labelNamespace("true")
	s.await("an Event on the CloneSet", func() error {
		return s.hasEvent(nil, corev1.EventTypeWarning, "NotEnrolled", "lacks the readiness gate rollcall.dev/InRotation", "spec.readinessGates")
	})
	s.Expect(!strings.Contains(specOf(s.T, storedSet(s)), lifecycle.LabelPreDelete), "the CloneSet without the gate was enrolled")

	s.Edit(func(set *kruisev1alpha1.CloneSet) { gatedByRotation(set); replicas(1)(set) })
	s.await("the hooks", func() error {
		if spec := specOf(s.T, storedSet(s)); !strings.Contains(spec, lifecycle.LabelPreDelete) {
			return fmt.Errorf("the CloneSet has spec %s", spec)
		}
		return nil
	})
	s.awaitArmed()
	services.ExpectSteady()
}

// serviced is a scenario whose pods are behind two Services.
type serviced struct {
	*scenario

	names []string

	mu     sync.Mutex
	slices []*discoveryv1.EndpointSlice // every version, as it came
}

// startServiced starts a manager whose only registry is the EndpointSlices.
func startServiced(t *testing.T, name string, edits ...func(configuration)) (*scenario, *serviced) {
	t.Helper()
	install(t, "pod-condition", name)
	install(t, "endpointslice", name)
	s := alone(t, name, func(c configuration) {
		c["registry"], c["podCondition"] = map[string]any{"driver": "endpointslice", "readerLag": "0s"}, true
		c["statusPage"] = true
		for _, edit := range edits {
			edit(c)
		}
	})
	s.conditioned = true
	services := &serviced{scenario: s, names: []string{"web", "web-admin"}}
	services.create()
	services.follow()
	return s, services
}

func (s *serviced) create() {
	s.Helper()
	for _, name := range s.names {
		s.must(s.k8s.Create(s.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name},
			Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": s.ns}, Ports: []corev1.ServicePort{{Port: 80}}},
		}))
	}
}

// follow notes every version of the EndpointSlices.
func (s *serviced) follow() {
	s.Helper()
	watch, err := s.k8s.Watch(s.Context(), &discoveryv1.EndpointSliceList{}, client.InNamespace(s.ns))
	s.must(err)
	s.Cleanup(watch.Stop)
	go func() {
		for event := range watch.ResultChan() {
			if slice, is := event.Object.(*discoveryv1.EndpointSlice); is {
				s.mu.Lock()
				s.slices = append(s.slices, slice)
				s.mu.Unlock()
			}
		}
	}()
}

func (s *serviced) Begin(edits ...func(*kruisev1alpha1.CloneSet)) []*corev1.Pod {
	s.Helper()
	s.Create(append(edits, hooked, gatedByRotation, annotated(cluster.AnnotationGlobalAddress, "true"))...)
	s.ExpectSteady()
	return s.Pods()
}

// ExpectSteady waits until every pod is where Kruise wants it, and ready in the EndpointSlices of both Services.
func (s *serviced) ExpectSteady() {
	s.Helper()
	s.await("everything to be steady", func() error {
		pods, err := s.podsAtHome()
		if err != nil {
			return err
		}
		for _, pod := range pods {
			if in, total := s.asOf(pod.UID, ^uint64(0)); in != len(s.names) || total != in {
				return fmt.Errorf("pod %s is ready in %d of %d Services", pod.Name, in, total)
			}
		}
		return nil
	})
}

// asOf returns in how many Services the pod was ready at a version, and in how many it was.
func (s *serviced) asOf(uid types.UID, at uint64) (in, total int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	latest := map[string]*discoveryv1.EndpointSlice{}
	for _, slice := range s.slices {
		if v, err := strconv.ParseUint(slice.ResourceVersion, 10, 64); err == nil && v < at {
			latest[slice.Name] = slice
		}
	}
	for _, slice := range latest {
		for _, e := range slice.Endpoints {
			if slice.DeletionTimestamp == nil && e.TargetRef != nil && e.TargetRef.UID == uid {
				if total++; *e.Conditions.Ready {
					in++
				}
			}
		}
	}
	return in, total
}

// ExpectFollowed expects of each version of the pods that the EndpointSlices before it allowed it.
func (s *serviced) ExpectFollowed(pods []*corev1.Pod) {
	s.Helper()
	counts := map[string]int{}
	for _, pod := range pods {
		last := ""
		for _, v := range s.history.Of(pod.UID) {
			if pod.Namespace != s.ns || v.state() == last || v.deleted {
				continue
			}
			in, total := s.asOf(pod.UID, version(v.pod))
			switch move := last + ">" + v.state(); move {
			case "PreparingUpdate>Updating", "Updating>Updated":
				s.Expect(in == 0, "pod %s: %s while %d Services had it ready", pod.Name, move, in)
				counts[move]++
			case "PreparingNormal>Normal", "Updated>Normal":
				s.Expect(in == len(s.names) && total == in, "pod %s: %s while %d of %d Services had it ready", pod.Name, move, in, total)
				counts[move]++
			}
			if v.pod.DeletionTimestamp != nil && last == string(appspub.LifecycleStatePreparingDelete) {
				s.Expect(in == 0, "pod %s was deleted while %d Services had it ready", pod.Name, in)
			}
			last = v.state()
		}
	}
	s.Expect(counts["PreparingUpdate>Updating"] == 2 && counts["Updated>Normal"] == 2 && counts["PreparingNormal>Normal"] == 4,
		"these moves were seen: %v", counts)
}

// hooked gives the CloneSet all three hooks.
func hooked(set *kruisev1alpha1.CloneSet) {
	hook := func(label string) *appspub.LifecycleHook {
		return &appspub.LifecycleHook{LabelsHandler: map[string]string{label: "true"}}
	}
	set.Spec.Lifecycle = &appspub.Lifecycle{
		PreNormal: hook("example.com/traffic-online"), InPlaceUpdate: hook("example.com/unready-blocker-inplace"),
		PreDelete: hook("example.com/unready-blocker-delete"),
	}
}

func gatedByRotation(set *kruisev1alpha1.CloneSet) {
	gates := &set.Spec.Template.Spec.ReadinessGates
	if !slices.ContainsFunc(*gates, func(g corev1.PodReadinessGate) bool { return g.ConditionType == lifecycle.ConditionInRotation }) {
		*gates = append(*gates, corev1.PodReadinessGate{ConditionType: lifecycle.ConditionInRotation})
	}
}

func updateTypeAnd(kind kruisev1alpha1.CloneSetUpdateStrategyType, edit func(*kruisev1alpha1.CloneSet)) func(*kruisev1alpha1.CloneSet) {
	return func(set *kruisev1alpha1.CloneSet) { updateType(kind)(set); edit(set) }
}
