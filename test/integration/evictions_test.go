package integration

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	kruisepolicy "github.com/openkruise/kruise-api/policy/v1alpha1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/test/harness/account"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
	"github.com/rollcall-dev/rollcall/test/harness/manager"
)

// TestEvictions: with config/components/evictions as it ships, evictions go to two managers in turn, of which one leads. The Service leads
// out of the cluster, to this machine.
func TestEvictions(t *testing.T) { //nolint:tparallel // stories that kill the leader are played alone
	t.Parallel()
	stories := []struct {
		name  string
		style style
		kills bool // the leader, which may let the next eviction of any story through
		play  func(*scenario)
	}{
		{"eviction-by-finalizer", finalizer, true, evictedByHooks},
		{"eviction-by-label", labels, true, evictedByHooks},
		{"eviction-budget", labels, false, evictedByHooksWithinBudget((*scenario).demand)},
		{"eviction-unavailable-budget", labels, false, evictedByHooksWithinBudget((*scenario).demandOfOpenKruise)},
		{"eviction-dry-run", labels, false, evictedInADryRun},
		{"eviction-claims", labels, false, evictedWithClaims},
		{"eviction-resize", finalizer, false, evictedForAResize},
	}
	var namespaces []string
	for _, story := range stories {
		namespaces = append(namespaces, story.name)
	}
	config := defaultConfiguration(env.registry.URL(), namespaces...)
	// Where the leader dies while other stories end, their pods are gone when the next one leads, and most entries with them.
	config["resync"], config["evictions"] = map[string]any{"maxRemovals": "100%"}, map[string]any{"enabled": true}
	flags := append(elect(t, "evictions-lease"), "--eviction-webhook-bind-address=127.0.0.1:0")
	leader := startInCluster(t, "evictions-leader", config, flags...)
	standby := startInCluster(t, "evictions-standby", config, flags...)
	var all []*scenario
	for _, story := range stories {
		s := newScenario(t, leader, env.registry, story.style, story.name)
		s.troubled = true // its manager may have been killed
		all = append(all, s)
	}
	expectRightsMissing(t, "config/components/evictions")
	installEvictions(t, balance(t, leader, standby), namespaces[0])

	for i, story := range stories {
		played := false // -run may leave it out
		t.Run(story.name, func(t *testing.T) {
			played = true
			if !story.kills {
				t.Parallel() // these begin when the others have ended
			}
			s := all[i]
			s.T = t
			s.manager, s.standby = leader, standby
			story.play(s)
			s.ExpectNothingLeft()
			s.ExpectAlways()
		})
		if story.kills && played {
			leader.Kill()
			restart(t, leader)
			leader, standby = standby, leader
		}
	}
}

// startInCluster starts a manager that takes itself to be where the manifests put it.
func startInCluster(t *testing.T, name string, config configuration, flags ...string) *rollcall {
	t.Helper()
	m := prepareManager(t, name, env.account, config, flags...)
	m.Env = append(m.Env, "POD_NAMESPACE="+account.Namespace)
	restart(t, m)
	return m
}

// expectRightsMissing expects that the leader of the default installation asks for a component.
func expectRightsMissing(t *testing.T, component string) {
	t.Helper()
	expect.Soon(t, "an Event about missing rights", func() error {
		var events eventsv1.EventList
		expect.NoError(t, env.client.List(t.Context(), &events, client.InNamespace(account.Namespace)))
		for _, e := range events.Items {
			if e.Reason == "RightsMissing" && strings.Contains(e.Note, "Apply "+component) {
				return nil
			}
		}
		return fmt.Errorf("none of %d Events asks for %s", len(events.Items), component)
	})
}

// balance leads each connection to the next of the managers that takes it, as kube-proxy does, and returns the port.
func balance(t *testing.T, managers ...*rollcall) (port int32) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	expect.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var all sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		all.Wait()
	})
	next := 0
	all.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			first := next
			next++
			all.Go(func() {
				for i := range managers {
					if to, err := dial(ctx, managers[(first+i)%len(managers)]); err == nil {
						join(ctx, from, to)
						return
					}
				}
				_ = from.Close()
			})
		}
	})
	at, err := netip.ParseAddrPort(listener.Addr().String())
	expect.NoError(t, err)
	return int32(at.Port())
}

// dial connects to the manager's webhook, if it is ready: a Service sends requests to no other.
func dial(ctx context.Context, m *rollcall) (net.Conn, error) {
	if _, err := m.Get(ctx, manager.HealthServer, "/readyz"); err != nil {
		return nil, err
	}
	address, err := m.URL("evictions", "")
	if err != nil {
		return nil, err
	}
	at, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", at.Host)
}

// join copies both ways until either side ends, or the context does.
func join(ctx context.Context, one, other net.Conn) {
	var both sync.WaitGroup
	closed := func() { _, _ = one.Close(), other.Close() }
	stop := context.AfterFunc(ctx, closed)
	for _, way := range [][2]net.Conn{{one, other}, {other, one}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			closed()
		})
	}
	both.Wait()
	stop()
}

// installEvictions applies the component, and returns when a manager behind the port answers an eviction in the namespace.
func installEvictions(t *testing.T, port int32, namespace string) {
	t.Helper()
	for _, object := range readComponent(t, "evictions") {
		switch o := object.(type) {
		case *corev1.Service:
			o.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}
		case *admissionv1.MutatingWebhookConfiguration:
			o.Webhooks[0].ClientConfig.Service.Port = &port
		}
		expect.NoError(t, env.client.Create(t.Context(), object))
		t.Cleanup(func() { _ = env.client.Delete(context.WithoutCancel(t.Context()), object) })
	}
	expectAnswers(t, namespace)
}

// expectAnswers returns when a manager answers an eviction in the namespace. Just after one was killed, the API server may still hold a
// connection to it, and let the next eviction through.
func expectAnswers(t *testing.T, namespace string) {
	t.Helper()
	none := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "none"}}
	expect.Soon(t, "a manager to answer evictions", func() error {
		err := env.client.SubResource("eviction").Create(t.Context(), none, &policyv1.Eviction{ObjectMeta: none.ObjectMeta})
		if !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "evictions.rollcall.dev") {
			return fmt.Errorf("of a pod that is not there the API server says: %w", err)
		}
		return nil
	})
}

func readComponent(t *testing.T, name string) []client.Object {
	t.Helper()
	return readComponents(t, name+"/*")
}

// readComponents reads the files of a pattern.
func readComponents(t *testing.T, pattern string) []client.Object {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "config", "components", pattern+".yaml"))
	expect.NoError(t, err)
	var objects []client.Object
	for _, file := range files {
		text, err := os.ReadFile(file)
		expect.NoError(t, err)
		if !strings.Contains(string(text), "kind: Component") {
			objects = append(objects, decode(t, string(text))...)
		}
	}
	return objects
}

// surge has a pod replaced before it is deleted.
func surge(set *kruisev1alpha1.CloneSet) {
	one, none := intstr.FromInt32(1), intstr.FromInt32(0)
	set.Spec.UpdateStrategy.MaxSurge, set.Spec.UpdateStrategy.MaxUnavailable = &one, &none
}

// evictedByHooks: a pod that is evicted is replaced, drained and deleted, although the leader is killed on the way.
func evictedByHooks(s *scenario) {
	s.drain = time.Second
	pod := s.Begin(replicas(2), surge, annotated(drainKey, s.drain.String()))[0]

	call := s.HoldCalls(fakeregistry.OpDeregister)
	s.EvictUntilBegun(pod)
	s.AwaitState(pod, appspub.LifecycleStatePreparingDelete)
	s.AwaitCalls(call, 1)
	s.Expect(len(s.Pods()) == 3, "the pod is on its way out, and there are %d pods", len(s.Pods()))
	s.manager.Kill()
	expectAnswers(s.T, s.ns)
	s.ExpectHeld(s.evict(pod), "is in progress")
	call.Release()
	s.EvictUntilGone(pod)

	s.ExpectSteady()
	s.ExpectDrained(1)
	s.ExpectEvent(pod, corev1.EventTypeNormal, "EvictionHooked")
}

// evictedByHooksWithinBudget: two pods are evicted at once, and the budget allows one at a time, although the CloneSet would have
// both deleted.
func evictedByHooksWithinBudget(demand func(s *scenario, available, there int32) client.Object) func(*scenario) {
	return func(s *scenario) {
		pods := s.Begin(replicas(3), func(set *kruisev1alpha1.CloneSet) {
			set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt32(2))
		})
		budget := demand(s, 2, 3)

		call := s.HoldCalls(fakeregistry.OpDeregister)
		errs := make(chan error, 2)
		s.until("one of two evictions to begin, and the budget to refuse the other", func() bool {
			for _, pod := range pods[:2] {
				go func() { errs <- s.evict(pod) }()
			}
			refused, begun := 0, 0
			for range 2 {
				err := <-errs
				if !apierrors.IsTooManyRequests(err) && !isBelowBudget(err) {
					s.Fatalf("an eviction gave: %v\n%s", err, s.describe())
				}
				if apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) {
					refused++
				}
			}
			for _, pod := range s.Pods() {
				if pod.Labels[kruisev1alpha1.SpecifiedDeleteKey] != "" {
					begun++
				}
			}
			s.Expect(begun <= 1, "%d pods are on their way out, and the budget has room for one", begun)
			return begun == 1 && refused == 1
		})
		call.Release()
		for _, pod := range pods[:2] {
			s.EvictUntilGone(pod)
		}
		s.ExpectSteady()
		s.must(s.k8s.Delete(s.Context(), budget)) // OpenKruise's would keep pods of a CloneSet that is deleted
	}
}

// evictedInADryRun: neither kind of dry run changes anything, and both say what an eviction would get.
func evictedInADryRun(s *scenario) {
	pod := s.Begin(replicas(1))[0]
	body := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: pod.Name}}
	err := s.k8s.SubResource("eviction").Create(s.Context(), pod.DeepCopy(), body.DeepCopy(), client.DryRunAll)
	s.ExpectHeld(err, "is not evicted directly")
	body.DeleteOptions = &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	s.ExpectHeld(s.k8s.SubResource("eviction").Create(s.Context(), pod.DeepCopy(), body), "is not evicted directly")
	now := &corev1.Pod{}
	s.must(s.k8s.Get(s.Context(), client.ObjectKeyFromObject(pod), now))
	s.Expect(now.ResourceVersion == pod.ResourceVersion, "a dry run changed the pod: %v %v", now.Labels, now.Annotations)

	s.must(s.k8s.Create(s.Context(), s.manager.config.configMap("evictions-lease")))
	person := s.Kubectl("admin", env.cluster.Config())
	person.installation = "evictions-lease"
	person.Expect(0, "explain node/"+pod.Spec.NodeName, s.ns+"/"+pod.Name+" leaves by its hooks: pod "+pod.Name+" is not evicted directly",
		"leaves: default "+s.ns+" ", "its eviction is let through once the pod has drained")
	s.must(s.k8s.Get(s.Context(), client.ObjectKeyFromObject(pod), now))
	s.Expect(now.ResourceVersion == pod.ResourceVersion, "explain changed the pod: %v %v", now.Labels, now.Annotations)
}

// evictedWithClaims: where OpenKruise deletes a pod, it deletes its claims too. So the pod is evicted, and the next one has them.
func evictedWithClaims(s *scenario) {
	pod := s.Begin(replicas(1), func(set *kruisev1alpha1.CloneSet) {
		claim := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}}
		claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{claim}
		set.Spec.Template.Spec.NodeName = "node-0" // the scheduler would wait for a volume
	})[0]
	s.must(s.evict(pod))
	s.AwaitGone(pod)
	s.ExpectSteady()

	var kept corev1.PersistentVolumeClaimList
	s.must(s.k8s.List(s.Context(), &kept, client.InNamespace(s.ns)))
	s.Expect(len(kept.Items) == 1 && kept.Items[0].DeletionTimestamp == nil, "claims %v, want the one", kept.Items)
	s.Expect(s.Pods()[0].Name == pod.Name, "pod %s has it, not %s", s.Pods()[0].Name, pod.Name)
}

// evictedForAResize: a resize by which kubelet would restart a container is refused while the pod serves, and one without a restart is not.
// The pod is evicted instead, as the VerticalPodAutoscaler does in mode InPlaceOrRecreate.
func evictedForAResize(s *scenario) {
	pod := s.Begin(replicas(2), func(set *kruisev1alpha1.CloneSet) {
		c := &set.Spec.Template.Spec.Containers[0]
		c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
		c.ResizePolicy = []corev1.ContainerResizePolicy{
			{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.NotRequired},
			{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer},
		}
	})[0]
	s.reportResources(pod)
	s.await("a manager to refuse the resize of pod "+pod.Name, func() error { // while none answers it is let through
		err := s.resize(pod, corev1.ResourceMemory, "128Mi", client.DryRunAll)
		if apierrors.IsNotFound(err) {
			s.Skip("this Kubernetes can't resize pods")
		}
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "restarts its containers "+pod.Spec.Containers[0].Name) {
			return fmt.Errorf("a resize gave: %w", err)
		}
		return nil
	})
	s.must(s.resize(pod, corev1.ResourceCPU, "200m"))

	s.EvictUntilBegun(pod)
	s.EvictUntilGone(pod)
	s.ExpectSteady()
}

// resize asks as the VerticalPodAutoscaler does.
func (s *scenario) resize(pod *corev1.Pod, name corev1.ResourceName, value string, options ...client.SubResourcePatchOption) error {
	patch := fmt.Appendf(nil, `[{"op":"add","path":"/spec/containers/0/resources/requests/%s","value":%q}]`, name, value)
	return s.k8s.SubResource("resize").Patch(s.Context(), pod.DeepCopy(), client.RawPatch(types.JSONPatchType, patch), options...)
}

// reportResources writes what kubelet reports where it can resize: without it the API server refuses.
func (s *scenario) reportResources(pod *corev1.Pod) {
	s.Helper()
	patch := []byte(`[{"op":"add","path":"/status/containerStatuses/0/resources","value":{}}]`)
	s.must(s.k8s.Status().Patch(s.Context(), pod.DeepCopy(), client.RawPatch(types.JSONPatchType, patch)))
}

// demand makes a budget that so many pods stay available, and returns when it has counted those that there are.
func (s *scenario) demand(available, there int32) client.Object {
	s.Helper()
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "budget"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(available)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": s.ns}},
		},
	}
	s.must(s.k8s.Create(s.Context(), budget))
	s.await("the budget to count the pods", func() error {
		if err := s.k8s.Get(s.Context(), client.ObjectKeyFromObject(budget), budget); err != nil {
			return err
		}
		if n := budget.Status.CurrentHealthy; n != there {
			return fmt.Errorf("it has counted %d", n)
		}
		return nil
	})
	return budget
}

// demandOfOpenKruise is demand with a budget of OpenKruise's, which says on the pods that it is theirs.
func (s *scenario) demandOfOpenKruise(available, there int32) client.Object {
	s.Helper()
	budget := &kruisepolicy.PodUnavailableBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "budget"},
		Spec: kruisepolicy.PodUnavailableBudgetSpec{
			MinAvailable: new(intstr.FromInt32(available)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": s.ns}},
		},
	}
	s.must(s.k8s.Create(s.Context(), budget))
	s.await("the budget to count the pods, and to be on each", func() error {
		if err := s.k8s.Get(s.Context(), client.ObjectKeyFromObject(budget), budget); err != nil {
			return err
		}
		if n := budget.Status.CurrentAvailable; n != there {
			return fmt.Errorf("it has counted %d", n)
		}
		for _, pod := range s.Pods() {
			if pod.Annotations["kruise.io/related-pub"] != budget.Name {
				return fmt.Errorf("pod %s has %v", pod.Name, pod.Annotations)
			}
		}
		return nil
	})
	return budget
}

func (s *scenario) evict(pod *corev1.Pod) error {
	return s.k8s.SubResource("eviction").Create(s.Context(), pod.DeepCopy(), &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
	})
}

// ExpectHeld expects that an eviction was answered 429, with these words.
func (s *scenario) ExpectHeld(err error, words string) {
	s.Helper()
	s.Expect(apierrors.IsTooManyRequests(err) && strings.Contains(err.Error(), words), "an eviction gave %v, not 429 with %q", err, words)
}

// EvictUntilBegun evicts a pod until the manager that leads was asked.
func (s *scenario) EvictUntilBegun(pod *corev1.Pod) {
	s.Helper()
	s.await("the eviction of pod "+pod.Name+" to begin", func() error {
		err := s.evict(pod)
		if apierrors.IsTooManyRequests(err) && strings.Contains(err.Error(), "is not evicted directly") {
			return nil
		}
		s.ExpectHeld(err, "only the manager that leads begins evictions")
		return err
	})
}

// isBelowBudget reports whether an eviction was refused by OpenKruise's own webhook, which answers besides Rollcall's: with 403, which ends
// kubectl drain, while fewer pods are available than its PodUnavailableBudget wants, as on a busy machine.
func isBelowBudget(err error) bool {
	return err != nil && strings.Contains(err.Error(), "pub unavailable allowed is negative")
}

// EvictUntilGone evicts a pod as kubectl drain does, but more often: it goes on after 429, and takes 404 alone for the end.
// Once OpenKruise may say 400, where the pod vanished after Rollcall had answered.
func (s *scenario) EvictUntilGone(pod *corev1.Pod) {
	s.Helper()
	vanished := false
	s.await("pod "+pod.Name+" to be evicted", func() error {
		switch err := s.evict(pod); {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil, apierrors.IsTooManyRequests(err), isBelowBudget(err):
			return fmt.Errorf("it is there: %w", err)
		case strings.Contains(err.Error(), "vpodeviction.kb.io") && !vanished:
			vanished = true
			return err
		default:
			s.Fatalf("kubectl drain would have failed: %v", err)
			return nil
		}
	})
	s.AwaitGone(pod)
	s.ExpectSeen(pod, appspub.LifecycleStatePreparingDelete)
}
