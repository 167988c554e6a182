package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/cluster"
	"github.com/rollcall-dev/rollcall/test/harness/cluster/podserver"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
	"github.com/rollcall-dev/rollcall/test/harness/history"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/consul"
	"github.com/rollcall-dev/rollcall/test/harness/registries/read"
	"github.com/rollcall-dev/rollcall/test/harness/rollout"
)

// The scenarios of this file are about Kruise Rollouts, the manager of which updates their CloneSets step by step.

const (
	partitionCanary = "canary"
	blueGreen       = "blueGreen"
)

// stepped is a scenario whose CloneSet is updated in the steps of a Rollout. Each step waits until it is approved.
type stepped struct {
	*scenario

	kind string // canary or blueGreen
}

func withRollouts(t *testing.T, s *scenario, kind string) *stepped {
	t.Helper()
	expect.NoError(t, env.cluster.InstallRollouts(t.Context()))
	return &stepped{s, kind}
}

type object = map[string]any

func (r *stepped) newRollout() *unstructured.Unstructured {
	rollout := &unstructured.Unstructured{Object: object{"apiVersion": "rollouts.kruise.io/v1beta1", "kind": "Rollout"}}
	rollout.SetNamespace(r.ns)
	rollout.SetName(r.key.Name)
	return rollout
}

// CreateRollout returns once Kruise Rollouts watches over the CloneSet.
func (r *stepped) CreateRollout(strategy object) {
	r.Helper()
	rollout := r.newRollout()
	rollout.Object["spec"] = object{
		"workloadRef": object{"apiVersion": kruisev1alpha1.GroupVersion.String(), "kind": "CloneSet", "name": r.key.Name},
		"strategy":    object{r.kind: strategy},
	}
	r.must(r.k8s.Create(r.Context(), rollout))
	r.AwaitHealthy()
	r.until("the webhook of Kruise Rollouts to be called for the CloneSet", func() bool {
		return r.history.Set(r.key).Labels["rollouts.kruise.io/workload-type"] != ""
	})
}

func (r *stepped) awaitRollout(what string, wrong func(status object, version string) error) {
	r.Helper()
	r.await("the Rollout to be "+what, func() error {
		rollout := r.newRollout()
		if err := r.k8s.Get(r.Context(), client.ObjectKeyFromObject(rollout), rollout); err != nil {
			return err
		}
		status, _, err := unstructured.NestedMap(rollout.Object, "status")
		return errors.Join(err, wrong(status, rollout.GetResourceVersion()))
	})
}

func (r *stepped) untilRollout(what string, is func(status object) bool) {
	r.Helper()
	r.awaitRollout(what, func(status object, _ string) error {
		if !is(status) {
			return fmt.Errorf("it is %v", status)
		}
		return nil
	})
}

// AwaitHealthy returns once there is nothing to do.
func (r *stepped) AwaitHealthy() {
	r.Helper()
	r.untilRollout("healthy", func(status object) bool { return status["phase"] == "Healthy" })
}

// AwaitStep returns once Kruise Rollouts takes the step for done, and waits.
func (r *stepped) AwaitStep(n int64) {
	r.Helper()
	r.untilRollout(fmt.Sprintf("in step %d", n), func(status object) bool {
		return status["currentStepIndex"] == n && status["currentStepState"] == "StepPaused"
	})
}

// Approve is what kubectl kruise rollout approve does, again if Kruise Rollouts overwrites it.
func (r *stepped) Approve(n int64) {
	r.Helper()
	r.awaitRollout(fmt.Sprintf("past step %d", n), func(status object, version string) (err error) {
		switch state := status["currentStepState"]; {
		case status["currentStepIndex"] != n || state != "StepPaused" && state != "StepReady":
			return nil
		case state == "StepPaused":
			err = r.k8s.Status().Patch(r.Context(), r.newRollout(), kube.Merge(
				`{"metadata":{"resourceVersion":%q},"status":{"currentStepState":"StepReady","%sStatus":{"currentStepState":"StepReady"}}}`, version, r.kind))
		}
		return errors.Join(fmt.Errorf("it is %v", status), err)
	})
}

// AwaitHome returns once OpenKruise has nothing to do.
func (r *stepped) AwaitHome() {
	r.Helper()
	r.await("all pods to be at home", func() error { _, err := r.podsAtHome(); return err })
}

// DeleteRollout in the middle: Kruise Rollouts updates all that is left.
func (r *stepped) DeleteRollout() {
	r.Helper()
	rollout := r.newRollout()
	r.must(r.k8s.Delete(r.Context(), rollout))
	r.await("the Rollout to be gone", func() error {
		err := r.k8s.Get(r.Context(), client.ObjectKeyFromObject(rollout), rollout)
		if err == nil {
			return fmt.Errorf("it is %v", rollout.Object["status"])
		}
		return client.IgnoreNotFound(err)
	})
}

func (r *stepped) podsWith(image string) []*corev1.Pod {
	return slices.DeleteFunc(r.Pods(), func(pod *corev1.Pod) bool { return pod.Spec.Containers[0].Image != image })
}

// TestRolloutsCanary: Kruise Rollouts updates a CloneSet in place, by partition. One update is rolled back in the middle, one is ended by
// the deletion of the Rollout, and one goes through. At each step clients get both revisions in proportion to their pods, and no request
// is lost.
func TestRolloutsCanary(t *testing.T) {
	t.Parallel()
	const name, n, unavailable = "rollouts-canary", 6, 2
	server := registries.Use(t, registries.With(consul.Start, consul.Options{}))
	config := defaultConfiguration("", name)
	config["registry"] = map[string]any{"driver": "consul", "endpoint": server.URL, "timeout": callTimeout.String()}
	config["drain"] = (rollout.RefreshEvery * 3).String()
	r := withRollouts(t, newScenario(t, startManager(t, name, config), env.registry, labels, name), partitionCanary)
	r.port = podserver.Use(t, env.client)
	clients := &weighted{scenario: r.scenario}
	clients.watch(server)
	r.Create(replicas(n), inPlace, announced, func(set *kruisev1alpha1.CloneSet) {
		out := intstr.FromInt32(unavailable)
		set.Spec.UpdateStrategy.MaxUnavailable = &out
		set.Spec.Template.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: int32(r.port)}}
	})
	r.AwaitHome()
	clients.expectAll()
	clients.fewest.Store(n)
	c, stop := sendRequests(t, read.Consul(server.URL, name))
	steps := object{"steps": []any{object{"replicas": 2}, object{"replicas": 4}, object{"replicas": "100%"}}}
	expectStep := func(step int64, image string, pods int) {
		t.Helper()
		r.AwaitStep(step)
		clients.expectAll()
		got := clients.answersOf(image)
		r.Expect(got == pods, "in step %d, %d of %d answers are those of %s, want %d", step, got, n, image, pods)
		r.Expect(len(r.podsWith(image)) == pods, "the next step has begun")
	}

	r.CreateRollout(steps)
	t.Log("An update is rolled back after two steps.")
	r.UpdateImage("nginx:2")
	expectStep(1, "nginx:2", 2)
	r.Approve(1)
	expectStep(2, "nginx:2", 4)
	r.UpdateImage("nginx:1")
	r.AwaitHealthy()
	r.AwaitHome()
	clients.expectAll()
	r.Expect(clients.answersOf("nginx:1") == n, "the rolled-back revision answers")

	t.Log("The Rollout is deleted after one step: all pods get the new revision.")
	r.UpdateImage("nginx:3")
	expectStep(1, "nginx:3", 2)
	r.DeleteRollout()
	r.AwaitHome()
	clients.expectAll()
	r.Expect(clients.answersOf("nginx:3") == n, "the old revision answers")

	t.Log("An update goes through.")
	r.CreateRollout(steps)
	r.UpdateImage("nginx:4")
	expectStep(1, "nginx:4", 2)
	r.Approve(1)
	expectStep(2, "nginx:4", 4)
	r.Approve(2)
	r.AwaitHealthy()
	r.AwaitHome()
	clients.expectAll()
	r.Expect(clients.answersOf("nginx:4") == n, "the old revision answers")

	stop()
	tally, fewest := c.Tally(), clients.fewest.Load()
	t.Logf("%s; never fewer than %d of %d pods in rotation", tally, fewest, n)
	r.Expect(tally.Failed == 0 && tally.Requests > enoughRequests, "%s: %v", tally, c.Failures())
	r.Expect(fewest >= n-unavailable, "only %d pods were in rotation", fewest)
}

// expectAll waits until clients are given every pod, and each is ready.
func (c *weighted) expectAll() {
	c.Helper()
	c.await("clients to be given all pods", func() error {
		given := *c.given.Load()
		for _, pod := range c.Pods() {
			if given[pod.Status.PodIP] == 0 || !podserver.CanServe(pod) {
				return fmt.Errorf("pod %s is missing in %v", pod.Name, given)
			}
		}
		if len(given) != len(c.Pods()) {
			return fmt.Errorf("clients are given %v", given)
		}
		return nil
	})
}

// answersOf asks each pod that clients are given once, and counts the answers of an image.
func (c *weighted) answersOf(image string) (n int) {
	c.Helper()
	for address := range *c.given.Load() {
		to := "http://" + net.JoinHostPort(address, strconv.Itoa(c.port))
		text, err := registries.NewClient(to).Do(c.Context(), http.MethodGet, "", nil)
		c.must(err)
		var answer podserver.Answer
		c.must(json.Unmarshal(text, &answer))
		if answer.Image == image {
			n++
		}
	}
	return n
}

// TestRolloutsOutage: Kruise Rollouts takes a step for done once the pods are ready, in rotation or not. OpenKruise is what holds the next
// one, by maxUnavailable.
func TestRolloutsOutage(t *testing.T) {
	t.Parallel()
	const n = 3
	r := withRollouts(t, alone(t, "rollouts-outage", nil), partitionCanary)
	before := r.Begin(replicas(n), inPlace, announced)
	r.CreateRollout(object{"steps": []any{object{"replicas": 1}, object{"replicas": 2}, object{"replicas": "100%"}}})
	repair := r.Fail(fakeregistry.OpRegister, "out of order")
	r.UpdateImage("nginx:2")
	r.AwaitStep(1)
	r.Expect(len(r.registry.serving(t, r.ns)) == n-1, "a pod is in rotation that no registry took")
	r.Approve(1)
	r.until("OpenKruise to see that two pods are to be updated", func() bool {
		set := r.history.Set(r.key)
		return set.Status.ExpectedUpdatedReplicas == 2 && set.Status.ObservedGeneration == set.Generation
	})
	r.Expect(len(r.podsWith("nginx:2")) == 1 && len(r.registry.serving(t, r.ns)) == n-1, "a second pod is out")
	repair()
	r.AwaitStep(2)
	r.Approve(2)
	r.AwaitHealthy()
	r.ExpectSteady()
	r.ExpectImage("nginx:2", before)
	r.ExpectNothingLeft()
}

// TestRolloutsBlueGreen: Kruise Rollouts creates a new revision next to the old one, and a person shifts the traffic. One update is approved
// too early, and one is rolled back, which Kruise Rollouts 0.6.2 does the wrong way round: no pods but maxUnavailable are replaced by some that
// get no requests.
func TestRolloutsBlueGreen(t *testing.T) {
	t.Parallel()
	const n = 3
	r := withRollouts(t, alone(t, "rollouts-blue-green", nil), blueGreen)
	blue := r.Begin(replicas(n), announced, shares("stable=100,canary=0"), updateType(kruisev1alpha1.RecreateCloneSetUpdateStrategyType),
		func(set *kruisev1alpha1.CloneSet) {
			one := intstr.FromInt32(1)
			set.Spec.UpdateStrategy.MaxUnavailable = &one
		})
	r.CreateRollout(object{"steps": []any{object{"replicas": "100%"}}})
	preview := func(image string) (green []*corev1.Pod) {
		t.Helper()
		r.UpdateImage(image)
		r.AwaitStep(1)
		green = r.podsWith(image)
		for _, pod := range green {
			r.ExpectEvent(pod, corev1.EventTypeNormal, "HeldOut", "canary, has no share of the traffic")
		}
		r.Expect(len(green) == n && len(r.Pods()) == 2*n, "the new revision is not next to the old one")
		r.must(r.registryHolds(blue))
		return green
	}
	expectNeverIn := func(pods []*corev1.Pod) {
		t.Helper()
		for _, pod := range pods {
			r.Expect(r.counted(pod, fakeregistry.OpRegister) == 0, "pod %s was registered", pod.Name)
		}
	}
	// expectHalt expects that OpenKruise replaces as many pods as may be unavailable, and waits then.
	expectHalt := func() {
		t.Helper()
		serving := func() int { return len(r.registry.serving(t, r.ns)) }
		r.until("OpenKruise to replace a pod", func() bool { return serving() < n })
		r.AwaitObserved()
		r.until("one pod to be gone", func() bool { return len(r.Pods()) < 2*n })
		r.Expect(serving() == n-1, "%d pods are in rotation", serving())
	}

	green := preview("nginx:2")
	expectNeverIn(green)
	r.Edit(shares("stable=0,canary=100"))
	r.ExpectServing(green...)
	r.Approve(1)
	for _, pod := range blue {
		r.AwaitGone(pod)
	}
	r.AwaitHealthy()
	r.ExpectSteady()
	r.ExpectImage("nginx:2", green)

	t.Log("Approved before the traffic is shifted.")
	r.Edit(shares("stable=100,canary=0"))
	blue = r.Pods()
	green = preview("nginx:3")
	r.Approve(1)
	expectHalt()
	expectNeverIn(green)
	r.Edit(shares("stable=0,canary=100"))
	for _, pod := range blue {
		r.AwaitGone(pod)
	}
	r.AwaitHealthy()
	r.ExpectSteady()

	t.Log("Rolled back: Kruise Rollouts sets the partition by which OpenKruise keeps the new pods, not the old ones.")
	r.Edit(shares("stable=100,canary=0"))
	blue = r.Pods()
	green = preview("nginx:4")
	r.UpdateImage("nginx:3")
	expectHalt()
	r.Edit(func(set *kruisev1alpha1.CloneSet) { set.Spec.UpdateStrategy.Partition = nil })
	for _, pod := range green {
		r.AwaitGone(pod)
	}
	r.AwaitHealthy()
	expectNeverIn(green)
	r.ExpectSteady()
	r.ExpectImage("nginx:3", nil)
	r.ExpectNothingLeft()
}

// rolloutsScript has Kruise Rollouts write the shares of a step. It runs the script for Services, whichever Rollout lists them.
const rolloutsScript = `
local annotations = obj.data.annotations or {}
annotations["` + lifecycle.AnnotationTraffic + `"] = "stable=" .. obj.stableWeight .. ",canary=" .. obj.canaryWeight
return {spec = obj.data.spec, labels = obj.data.labels, annotations = annotations}
`

// TestRolloutsReferences is why an object that customNetworkRefs lists can't have the shares. Whatever it had before the update is back while
// an update that succeeds, or is abandoned, still has old pods, and while one that is rolled back still has new pods: stable=100,canary=0 would
// stop the first, and no shares would send requests to the pods of the second.
func TestRolloutsReferences(t *testing.T) {
	t.Parallel()
	expect.NoError(t, env.cluster.InstallRollouts(t.Context()))
	expect.NoError(t, env.client.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.RolloutsNamespace, Name: "kruise-rollout-configuration"},
		Data:       map[string]string{"lua.traffic.routing.Service.v1": rolloutsScript},
	}))
	oneStep := []any{object{"replicas": 1, "traffic": "10%"}}
	type row struct {
		kind  string
		steps []any
		ends  func(*stepped)
		// left is the image of pods that are left when the object has its own annotations again.
		left string
	}
	expect.Each(t, map[string]row{
		"canary-succeeds":   {partitionCanary, oneStep, func(r *stepped) { r.Approve(1) }, "nginx:1"},
		"canary-is-deleted": {partitionCanary, oneStep, (*stepped).DeleteRollout, "nginx:1"},
		"canary-is-disabled": {partitionCanary, oneStep, func(r *stepped) {
			r.must(r.k8s.Patch(r.Context(), r.newRollout(), kube.Merge(`{"spec":{"disabled":true}}`)))
		}, "nginx:1"},
		"canary-is-rolled-back":  {partitionCanary, oneStep, func(r *stepped) { r.UpdateImage("nginx:1") }, "nginx:2"},
		"preview-is-rolled-back": {blueGreen, []any{object{"replicas": "100%"}, object{"replicas": "100%", "traffic": "0%"}}, func(r *stepped) { r.UpdateImage("nginx:1") }, "nginx:2"},
	}, func(t *testing.T, c row) {
		name := "references-" + t.Name()[len("TestRolloutsReferences/"):]
		r := withRollouts(t, newScenario(t, env.shared, env.registry, labels, name), c.kind)
		r.Create(replicas(3), unhooked, updateType(kruisev1alpha1.RecreateCloneSetUpdateStrategyType))
		refs := r.followReferences()
		r.CreateRollout(object{"steps": c.steps, "disableGenerateCanaryService": true, "trafficRoutings": []any{object{
			"service": "front", "customNetworkRefs": []any{object{"apiVersion": "v1", "kind": "Service", "name": "shares"}},
		}}})
		r.until("OpenKruise to have the pods", func() bool { return r.history.Set(r.key).Status.ReadyReplicas == 3 })
		r.UpdateImage("nginx:2")
		for step := range c.steps {
			if step > 0 {
				r.Approve(int64(step))
			}
			r.AwaitStep(int64(step + 1))
		}
		c.ends(r)
		r.until("the object to have its own annotations again", func() bool { return refs.restored() > 0 })
		all := func(of func(*corev1.Pod) bool) []*corev1.Pod {
			return slices.DeleteFunc(r.history.All(), func(pod *corev1.Pod) bool { return pod.Namespace != r.ns || !of(pod) })
		}
		after := func(pod *corev1.Pod) bool { return version(pod) > refs.restored() }
		r.until("OpenKruise to continue", func() bool { return len(all(after)) > 0 })
		left := len(all(func(pod *corev1.Pod) bool {
			return pod.Spec.Containers[0].Image == c.left && (after(pod) || r.Now(pod.UID) != nil)
		}))
		t.Logf("the annotation was %q; then there were %d pods of %s", refs.values(), left, c.left)
		r.Expect(left > 0, "Kruise Rollouts restored the object only when no pod of %s was left", c.left)
	})
}

// references follows the object that customNetworkRefs lists.
type references struct {
	mu       sync.Mutex
	versions []*corev1.Service
}

func (r *stepped) followReferences() *references {
	r.Helper()
	for _, name := range []string{"front", "shares"} {
		r.must(r.k8s.Create(r.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: r.ns, Name: name},
			Spec:       corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Port: 80}}},
		}))
	}
	refs := &references{}
	_, err := history.Follow(r.Context(), r.k8s, &corev1.ServiceList{}, func(v history.Version[*corev1.Service]) {
		refs.mu.Lock()
		defer refs.mu.Unlock()
		if v.Object.Name == "shares" {
			refs.versions = append(refs.versions, v.Object)
		}
	}, client.InNamespace(r.ns))
	r.must(err)
	return refs
}

// restored is the version in which Kruise Rollouts gave the object back, 0 if it has not.
func (f *references) restored() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	kept := func(s *corev1.Service) bool {
		return s.Annotations["rollouts.kruise.io/original-spec-configuration"] != ""
	}
	if last := f.versions[len(f.versions)-1]; slices.ContainsFunc(f.versions, kept) && !kept(last) {
		return version(last)
	}
	return 0
}

func (f *references) values() (all []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.versions {
		all = append(all, s.Annotations[lifecycle.AnnotationTraffic])
	}
	return slices.Compact(all)
}
