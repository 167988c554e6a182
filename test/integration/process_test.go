package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	kruisev1beta1 "github.com/openkruise/kruise-api/apps/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/account"
	"github.com/rollcall-dev/rollcall/test/harness/apiproxy"
	"github.com/rollcall-dev/rollcall/test/harness/cluster"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

// prepareManager makes a manager for one test, which is not started yet.
func prepareManager(t *testing.T, name string, as *rest.Config, config configuration, flags ...string) *rollcall {
	t.Helper()
	m, err := env.manager(name, as, config, flags...)
	expect.NoError(t, err)
	t.Cleanup(m.Kill)
	return m
}

// startManager returns a manager that is ready.
func startManager(t *testing.T, name string, config configuration, flags ...string) *rollcall {
	t.Helper()
	m := prepareManager(t, name, env.account, config, flags...)
	restart(t, m)
	return m
}

// alone starts a scenario with a registry and a manager of its own.
func alone(t *testing.T, name string, style style, edit func(configuration), flags ...string) *scenario {
	t.Helper()
	r := startRegistry(t, onlyRegistry, registryOptions{})
	config := defaultConfiguration(r.URL(), name)
	if edit != nil {
		edit(config)
	}
	s := newScenario(t, startManager(t, name, config, flags...), r, style, name)
	s.troubled = true
	if style == mixed {
		s.Play()
	}
	return s
}

// elect returns the flags of managers that share a lease, which is called as it ships, in a namespace for it alone.
func elect(t *testing.T, namespace string) []string {
	t.Helper()
	expect.NoError(t, account.AllowLease(t.Context(), env.cluster.Config(), namespace))
	return []string{"--leader-elect=true", "--leader-election-namespace=" + namespace}
}

func restart(t *testing.T, m *rollcall) {
	t.Helper()
	expect.NoError(t, m.Start())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	expect.NoError(t, m.AwaitReady(ctx))
}

// scenarios are of one manager, one for each style.
type scenarios []*scenario

func newScenarios(t *testing.T, m *rollcall, registry *registryServer, name string, styles []style) scenarios {
	t.Helper()
	var all scenarios
	for _, style := range styles {
		s := newScenario(t, m, registry, style, namespaceOf(name, style))
		s.troubled = true
		if style == mixed {
			s.Play()
		}
		all = append(all, s)
	}
	return all
}

func namespacesOf(name string, styles []style) []string {
	var namespaces []string
	for _, style := range styles {
		namespaces = append(namespaces, namespaceOf(name, style))
	}
	return namespaces
}

func (all scenarios) each(do func(*scenario)) {
	for _, s := range all {
		s.Helper()
		do(s)
	}
}

// begin creates each CloneSet, and returns once all is steady.
func (all scenarios) begin(edits ...func(*kruisev1alpha1.CloneSet)) {
	all.each(func(s *scenario) { s.Create(edits...) })
	all.each((*scenario).ExpectSteady)
}

// finish ends scenarios as any other.
func (all scenarios) finish() {
	all.each((*scenario).ExpectNothingLeft)
	all.each((*scenario).ExpectAlways)
}

// TestRestartWithMemory: the manager is killed in the middle of an update, and the registry is empty after it. While it
// is down, the pods wait.
func TestRestartWithMemory(t *testing.T) {
	t.Parallel()
	config := defaultConfiguration("", namespacesOf("memory", allStyles)...)
	config["registry"] = map[string]any{"driver": "memory"}
	m := startManager(t, "memory", config)
	all := newScenarios(t, m, nil, "memory", allStyles)
	all.begin(inPlace, replicas(2), annotated(cluster.AnnotationStartDelay, "2s"))

	updating := map[*scenario]*corev1.Pod{}
	var gates []*apiproxy.Gate // so that no pod is through before the last has begun
	all.each(func(s *scenario) { gates = append(gates, m.proxy.HoldPodWritesIn(s.ns, appspub.LifecycleStateUpdated)) })
	all.each(func(s *scenario) { s.UpdateImage("nginx:2") })
	all.each(func(s *scenario) { updating[s] = s.AwaitPodOnceIn(appspub.LifecycleStateUpdating) })
	m.Kill()
	all.each(func(s *scenario) {
		if s.style == preNormal {
			s.AwaitState(updating[s], appspub.LifecycleStateNormal) // it has no hook that Kruise waits for
			return
		}
		s.AwaitState(updating[s], appspub.LifecycleStateUpdated)
	})
	for _, g := range gates {
		g.Release()
	}
	restart(t, m)
	all.each((*scenario).ExpectSteady)

	m.Kill()
	restart(t, m)
	all.each((*scenario).ExpectSteady)

	m.Kill()
	all.each(func(s *scenario) { s.Scale(1) })
	all.each(func(s *scenario) {
		if s.style != preNormal {
			s.AwaitPodIn(appspub.LifecycleStatePreparingDelete)
		}
	})
	restart(t, m)
	all.each((*scenario).ExpectSteady)
	all.finish()
}

// TestKilled: the manager is killed at each point where something is half done.
func TestKilled(t *testing.T) {
	t.Parallel()
	m := startManager(t, "killed", defaultConfiguration(env.registry.URL(), namespacesOf("killed", updateHooked)...))
	all := newScenarios(t, m, env.registry, "killed", updateHooked)
	all.begin(inPlace, replicas(2))
	version := 1
	update := func(s *scenario) { s.UpdateImage(fmt.Sprintf("nginx:%d", version)) }
	remove := func(s *scenario) {
		s.DeleteByLabel(s.Pods()[0])
	}
	for _, point := range []struct {
		name  string
		begin func(*scenario)
		// call or state is what is under way: a call to the registry, or the patch of a pod in the state.
		call  fakeregistry.Op
		state appspub.LifecycleStateType
	}{
		{name: "taking the pod out before an update", begin: update, call: fakeregistry.OpFailOver},
		{name: "releasing inPlaceUpdate", begin: update, state: appspub.LifecycleStatePreparingUpdate},
		{name: "putting the pod back after an update", begin: update, call: fakeregistry.OpRegister},
		{name: "setting inPlaceUpdate", begin: update, state: appspub.LifecycleStateUpdated},
		{name: "taking the pod out before its deletion", begin: remove, call: fakeregistry.OpDeregister},
		{name: "releasing preDelete", begin: remove, state: appspub.LifecycleStatePreparingDelete},
	} {
		version++
		var release []func()
		all.each(func(s *scenario) { release = append(release, s.killPoint(point.call, point.state, point.begin)) })
		t.Logf("killing the manager while it is %s", point.name)
		m.Kill()
		for _, r := range release {
			r()
		}
		restart(t, m)
		all.each((*scenario).ExpectSteady)
	}
	all.finish()
}

// killPoint begins something, and returns when the manager is at the call or the patch.
func (s *scenario) killPoint(op fakeregistry.Op, state appspub.LifecycleStateType, begin func(*scenario)) (release func()) {
	s.Helper()
	if op != "" {
		hold := s.HoldCalls(op)
		begin(s)
		s.AwaitCalls(hold, 1)
		return hold.Release
	}
	gate := s.manager.proxy.HoldPodWritesIn(s.ns, state)
	begin(s)
	s.AwaitHeld(gate, 1)
	return gate.Release
}

// TestDeletedWhileDown: an owned finalizer keeps the pod until the manager is back.
func TestDeletedWhileDown(t *testing.T) {
	t.Parallel()
	styles := []style{finalizer, mixed}
	m := startManager(t, "down", defaultConfiguration(env.registry.URL(), namespacesOf("down", styles)...))
	all := newScenarios(t, m, env.registry, "down", styles)
	all.begin(replicas(2))
	m.Kill()
	for _, s := range all {
		pod := s.Pods()[0]
		s.DeletePod(pod)
		s.untilPod(pod, "to have ended", func(now *corev1.Pod) bool { return now != nil && now.Status.Phase == corev1.PodSucceeded })
	}
	restart(t, m)
	all.each((*scenario).ExpectSteady)
	all.finish()
}

// TestRegistryDown: nothing listens, the registry refuses for good, the registry asks for patience.
func TestRegistryDown(t *testing.T) {
	t.Parallel()
	s := alone(t, "registry-down", preNormal, nil)
	server := s.registry

	server.Down()
	s.Create(replicas(1))
	pod := s.AwaitPodIn(appspub.LifecycleStatePreparingNormal)
	s.ExpectEvent(pod, corev1.EventTypeWarning, "RegistryUnavailable", "hook preNormal waits", "connection refused")
	s.must(server.Up())
	s.ExpectSteady()

	repair := server.Fail(s.match(fakeregistry.OpRegister), registry.Terminal(errors.New("no such tenant")))
	s.Scale(2)
	pod = s.AwaitPodIn(appspub.LifecycleStatePreparingNormal)
	s.ExpectEvent(pod, corev1.EventTypeWarning, "RegistryRefused", "hook preNormal waits", "no such tenant")
	repair()
	s.manager.config["drain"] = "1s"
	s.must(s.manager.Configure(s.manager.config)) // whatever changes, all is tried again at once
	s.ExpectSteady()

	const patient = 3 * time.Second
	server.FailNext(s.match(fakeregistry.OpRegister), registry.RetryAfter(errors.New("busy"), patient))
	s.ScaleTo(3)
	youngest := s.Pods()[2]
	answers := server.Answers(s.ns, string(youngest.UID))
	s.Expect(len(answers) == 2 && answers[1].Started.Sub(answers[0].Answered) >= patient,
		"the manager came back sooner than the registry had asked for")
	s.ExpectNothingLeft()
	s.ExpectAlways()
}

// TestReload: a bad configuration changes nothing, a good one is in force without a restart.
func TestReload(t *testing.T) {
	t.Parallel()
	config := defaultConfiguration(env.registry.URL(), "reload")
	m := startManager(t, "reload", config)
	s := newScenario(t, m, env.registry, labels, "reload")
	s.troubled = true
	s.Begin(inPlace, replicas(1))

	good, err := os.ReadFile(m.ConfigPath())
	s.must(err)
	s.must(m.Manager.Configure(strings.Replace(string(good), "driver: http", "driver: htpp", 1)))
	s.ExpectMetric("rollcall_config_last_reload_successful 0")
	s.ExpectMetric(`rollcall_config_reloads_total{outcome="refused"} 1`)
	s.Expect(strings.Contains(m.Log(), "registry.driver"), "the log does not name the field")
	s.ScaleTo(2)

	config["service"] = map[string]any{"name": "{namespace}-{label:app}", "port": 9999}
	s.must(m.Configure(config))
	s.ExpectMetric("rollcall_config_last_reload_successful 1")
	s.ExpectMetric(`rollcall_config_reloads_total{outcome="applied"} 1`)
	s.services = map[string]int{"reload-reload": 9999}
	s.ExpectSteady()
	s.UpdateInPlace("nginx:2", nil)

	second, err := newRegistryServer()
	s.must(err)
	config["registry"] = map[string]any{"driver": "http", "endpoint": second.URL()}
	s.must(m.Configure(config))
	s.await("the other registry to hold the pods", func() error {
		return compareEntries(s.entriesOf(second.name, s.Pods()), second.Entries(t, s.ns))
	})
}

// TestRefusedAtStart: what can't work ends the manager at once, and says which field to correct.
func TestRefusedAtStart(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, driver, endpoint string
		mention                  []string
		registeredBy             string
	}{
		"unknown-driver": {
			reason: "only those compiled in exist", driver: "acme", endpoint: "http://127.0.0.1:1",
			mention: []string{"registry.driver", "acme", "memory"},
		},
		"apps-entries": {
			reason: "nothing could take them out", driver: "http", endpoint: "http://127.0.0.1:1", registeredBy: "App",
			mention: []string{"registry.registeredBy", "driver http can't take an entry out of rotation", "remove this field"},
		},
		"password-in-the-url": { // nor does this error show it: see leaks
			reason: "it would be shown wherever the endpoint is", driver: "http",
			endpoint: "http://rollcall:" + env.credential() + "/x@127.0.0.1", mention: []string{"registry.endpoint"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env.scenarios.Add(1)
			config := defaultConfiguration("")
			config["registry"] = map[string]any{"driver": tc.driver, "endpoint": tc.endpoint}
			if tc.registeredBy != "" {
				config["registry"].(map[string]any)["registeredBy"] = tc.registeredBy
			}
			m := prepareManager(t, "refused-"+name, env.account, config)
			expect.NoError(t, m.Start())
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := m.Process().Wait(ctx); err == nil || ctx.Err() != nil || !containsAll(m.Log(), tc.mention) {
				t.Errorf("%s: the manager ended with %v, and does not mention %q:\n%s", tc.reason, err, tc.mention, m.Tail())
			}
		})
	}
}

// TestWithoutKruise: the manager says what is missing, and goes on by itself when it is there; also when the API server
// was away. OpenKruise is one that stores and owns as v1beta1, as the release after 1.9 does.
func TestWithoutKruise(t *testing.T) {
	t.Parallel()
	bare, err := cluster.Start(t.Context(), cluster.Options{
		Dir: filepath.Join(env.dir, "bare-cluster"), Log: os.Stderr, Nodes: 1, PodCIDR: "127.101.0.0/16", WithoutKruise: true,
	})
	expect.NoError(t, err)
	t.Cleanup(bare.Stop)
	own, err := account.Install(t.Context(), bare.Config())
	expect.NoError(t, err)
	m := prepareManager(t, "without-kruise", own, defaultConfiguration(env.registry.URL()))
	expect.NoError(t, m.Start())
	k8s, err := cluster.NewClient(bare.Config())
	expect.NoError(t, err)
	pods, err := watchPods(t.Context(), k8s)
	expect.NoError(t, err)
	s := newScenarioOn(t, k8s, pods, m, env.registry, labels, "without-kruise")
	s.await("the manager to say what is missing", func() error { return notReady("OpenKruise is not installed")(s) })
	s.must(bare.InstallKruise(t.Context()))
	s.storeAsV1beta1()
	s.must(m.AwaitReady(t.Context()))
	s.must(s.history.followSets(t.Context(), k8s))
	for _, pod := range s.Begin(inPlace) {
		s.PatchPod(pod, fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":%q,"kind":"CloneSet","name":%q,"uid":%q,"controller":true}]}}`,
			kruisev1beta1.GroupVersion, s.key.Name, pod.OwnerReferences[0].UID))
	}

	s.ExpectAlways()

	s.troubled = true
	apiServerGoesAway(s, bare)
	kruiseGoesAway(s, bare)
	watchExpires(s, bare)
	s.ExpectNothingLeft()
}

// storeAsV1beta1 has the API server store CloneSets as v1beta1, which has the fields that Rollcall reads, and serve both versions.
func (s *scenario) storeAsV1beta1() {
	s.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	s.must(s.k8s.Get(s.Context(), client.ObjectKey{Name: "clonesets.apps.kruise.io"}, crd))
	stored := *crd.Spec.Versions[0].DeepCopy()
	stored.Name = kruisev1beta1.GroupVersion.Version
	crd.Spec.Versions[0].Storage = false
	crd.Spec.Versions = append(crd.Spec.Versions, stored)
	s.must(s.k8s.Update(s.Context(), crd))
	s.await("the API server to serve CloneSets as v1beta1", func() error {
		var sets unstructured.UnstructuredList
		sets.SetGroupVersionKind(kruisev1beta1.GroupVersion.WithKind("CloneSetList"))
		return s.k8s.List(s.Context(), &sets)
	})
}

// apiServerGoesAway while a pod waits, and comes back.
func apiServerGoesAway(s *scenario, bare *cluster.Cluster) {
	hold := s.HoldCalls(fakeregistry.OpFailOver)
	s.UpdateImage("nginx:2")
	s.AwaitCalls(hold, 1)
	s.restartAPIServer(bare)
	hold.Release()
	s.ExpectSteady()
}

// restartAPIServer returns when it serves CloneSets again.
func (s *scenario) restartAPIServer(bare *cluster.Cluster) {
	s.Helper()
	s.must(bare.RestartAPIServer(s.Context()))
	s.await("the API server to serve CloneSets", func() error { return s.k8s.List(s.Context(), &kruisev1alpha1.CloneSetList{}) })
}

// kruiseGoesAway in the middle of a rollout, with the webhook that every patch of a pod goes through. The pods wait where
// they are, and the rollout goes on with it.
func kruiseGoesAway(s *scenario, bare *cluster.Cluster) {
	before := s.Pods()
	hold := s.HoldCalls(fakeregistry.OpFailOver)
	s.UpdateImage("nginx:3")
	s.AwaitCalls(hold, 1)
	pod := s.AwaitPodIn(appspub.LifecycleStatePreparingUpdate)
	calls := s.counted(pod, fakeregistry.OpFailOver)
	bare.StopKruise()
	hold.Release()
	s.until("the pod to be taken out", func() bool { return s.counted(pod, fakeregistry.OpFailOver) != calls })
	s.Expect(stateOf(s.Now(pod.UID)) == string(appspub.LifecycleStatePreparingUpdate), "the pod went on without Kruise")
	s.must(bare.StartKruise(s.Context()))
	s.ExpectSteady()
	s.ExpectImage("nginx:3", before)
}

// watchExpires: the manager's watches end, pods come and go, and etcd forgets where the watches stood. The manager lists
// what there is, and misses nothing.
func watchExpires(s *scenario, bare *cluster.Cluster) {
	pods, let := s.Pods(), s.manager.proxy.CutWatches()
	s.must(s.k8s.Delete(s.Context(), pods[0].DeepCopy(), client.GracePeriodSeconds(0)))
	s.PatchPod(pods[1], `{"metadata":{"annotations":{"example.org/touched":"true"}}}`)
	s.must(bare.Compact(s.Context()))
	s.restartAPIServer(bare)
	let()
	s.ExpectSteady()
	s.Expect(s.manager.proxy.Expired() > 0, "no watch of the manager was too old")
}
