package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	kruisev1beta1 "github.com/openkruise/kruise-api/apps/v1beta1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/test/harness/account"
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

func startManager(t *testing.T, name string, config configuration, flags ...string) *rollcall {
	t.Helper()
	m := prepareManager(t, name, env.account, config, flags...)
	restart(t, m)
	return m
}

// alone starts a scenario with a registry and a manager of its own.
func alone(t *testing.T, name string, edit func(configuration), flags ...string) *scenario {
	t.Helper()
	r := startRegistry(t)
	config := defaultConfiguration(r.URL(), name)
	if edit != nil {
		edit(config)
	}
	s := newScenario(t, startManager(t, name, config, flags...), r, labels, name)
	s.troubled = true
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

func namespacesOf(name string, styles []style) []string {
	var namespaces []string
	for _, style := range styles {
		namespaces = append(namespaces, namespaceOf(name, style))
	}
	return namespaces
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
	k8s := bare.Client()
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
	s.must(bare.RestartAPIServer(s.Context()))
	s.await("the API server to serve CloneSets", func() error { return s.k8s.List(s.Context(), &kruisev1alpha1.CloneSetList{}) })
	let()
	s.ExpectSteady()
	s.Expect(s.manager.proxy.Expired() > 0, "no watch of the manager was too old")
}
