package migration

import (
	"context"
	"fmt"
	"os"
	"testing"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
	"github.com/rollcall-dev/rollcall/test/harness/registries/read"
	"github.com/rollcall-dev/rollcall/test/harness/rollout"
)

const (
	registriesKey = "rollcall.dev/registries"
	// enough requests make a result that means something.
	enough = 1000
)

// story is one CloneSet, in a namespace and a service of its own, and the clients of that service.
type story struct {
	*testing.T
	*world

	set rollout.CloneSet

	name          string
	eureka, nacos read.Reader
	clients       *clients
}

// begin creates a CloneSet of three pods, whose template names these registries where it names any, and clients that look it
// up in Eureka.
func (w *world) begin(t *testing.T, name, registries string) *story {
	t.Helper()
	set := rollout.CloneSet{K8s: w.k8s, Key: client.ObjectKey{Namespace: name, Name: name}}
	s := &story{T: t, world: w, set: set, name: name, eureka: w.reader(fromEureka, name), nacos: w.reader(toNacos, name)}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	expect.NoError(t, kube.Create(t.Context(), w.k8s, namespace, s.cloneSet(registries)))
	s.clients = newClients(t, s.eureka)
	s.ExpectIn(s.eureka)
	s.ExpectNoneIn(s.nacos)
	return s
}

// cloneSet is the demo's: it has all three hooks, each by a label, and is updated in place, pod after pod.
func (s *story) cloneSet(registries string) *kruisev1alpha1.CloneSet {
	text, err := os.ReadFile("../../demo/cloneset.yaml")
	expect.NoError(s.T, err)
	set, err := rollout.Decode(text)
	expect.NoError(s.T, err)
	set.Namespace, set.Name = s.name, s.name
	set.Spec.Selector.MatchLabels["app"], set.Spec.Template.Labels["app"] = s.name, s.name
	if registries != "" {
		set.Spec.Template.Annotations[registriesKey] = registries
	}
	set.Spec.Template.Spec.Containers[0].Ports[0].ContainerPort = int32(s.port)
	return set
}

func (s *story) Update(image string) {
	s.Helper()
	expect.NoError(s.T, s.set.SetImage(s.Context(), image))
}

func (s *story) Name(registries string) {
	s.Helper()
	expect.NoError(s.T, s.set.Change(s.Context(), func(spec *kruisev1alpha1.CloneSetSpec) { spec.Template.Annotations[registriesKey] = registries }))
}

func (s *story) Scale(replicas int32) {
	s.Helper()
	expect.NoError(s.T, s.set.Scale(s.Context(), replicas))
}

// ExpectIn waits until Kruise has carried out everything, each of these registries gives out exactly the pods, and all
// clients know them.
func (s *story) ExpectIn(registries ...read.Reader) {
	s.Helper()
	s.await(s.T, "the pods to be where they should be", func(ctx context.Context) error {
		_, err := s.set.Settled(ctx, registries, s.clients.all...)
		return err
	})
}

func (s *story) ExpectNoneIn(reader read.Reader) {
	s.Helper()
	s.await(s.T, "the registry to be empty", func(ctx context.Context) error {
		entries, err := reader(ctx)
		if err != nil {
			return err
		}
		return rollout.Differs("the registry", nil, entries)
	})
}

// ExpectNothingLost expects that there were many requests, and that every single one was answered.
func (s *story) ExpectNothingLost() {
	s.Helper()
	s.await(s.T, "many requests", func(context.Context) error {
		if n := s.clients.tally().Requests; n < enough {
			return fmt.Errorf("there were %d", n)
		}
		return nil
	})
	s.Logf("%s: %s", s.name, s.clients.tally())
	for _, c := range s.clients.all {
		for _, f := range c.Failures() {
			s.Errorf("%s: a request to pod %q failed: %s", f.At.Format("15:04:05.000"), f.Pod, f.Why)
		}
	}
}
