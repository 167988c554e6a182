package main

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	appsv1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
	"github.com/rollcall-dev/rollcall/test/harness/registries/read"
	"github.com/rollcall-dev/rollcall/test/harness/rollout"
	"github.com/rollcall-dev/rollcall/test/harness/wait"
)

const (
	appPort  = 8080
	replicas = 6
	// graceSeconds is both the preStop sleep and what Kruise waits between unready and the new image.
	graceSeconds = 5
	pollStep     = 200 * time.Millisecond
	// patience bounds the wait for one thing on a busy machine.
	patience = 4 * time.Minute
)

//go:embed cloneset.yaml
var clonesetYAML []byte

// The arms, in the order of the table.
const (
	withRollcall = "rollcall"
	hooksOnly    = "hooks" // Rollcall, and no preStop sleep
	withPreStop  = "prestop"
	mirrorOnly   = "mirror"
)

func armNames() []string { return []string{withRollcall, hooksOnly, withPreStop, mirrorOnly} }

// hooked reports whether Rollcall keeps the arm's pods.
func hooked(name string) bool { return name == withRollcall || name == hooksOnly }

// arm is one way to keep the registry in step with the pods of a CloneSet, with clients of its own. Its name is the
// service's too.
type arm struct {
	rollout.CloneSet

	name    string
	clients *customers
	// services: clients find the pods by a Kubernetes Service and not in Consul.
	services  bool
	directory directory
	// edit changes the CloneSet before it is created, if it is there.
	edit func(*appsv1alpha1.CloneSet)
}

func (w *world) newArm(name string, edit func(*appsv1alpha1.CloneSet)) *arm {
	key := client.ObjectKey{Namespace: namespaceOf(name), Name: "web"}
	return &arm{CloneSet: rollout.CloneSet{K8s: w.k8s, Key: key}, name: name, directory: w.directory, edit: edit}
}

func namespaceOf(arm string) string { return "e2e-" + arm }

// clonesetFor returns the CloneSet of an arm, whose clients find the pods by a Service or in Consul.
func clonesetFor(name string, services bool) (*appsv1alpha1.CloneSet, error) {
	set, err := rollout.Decode(clonesetYAML)
	if err != nil {
		return nil, err
	}
	template := &set.Spec.Template
	container := &template.Spec.Containers[0]
	container.Image = appImage("v1")
	switch name {
	case withPreStop:
		set.Spec.Lifecycle = nil
		set.Spec.UpdateStrategy.InPlaceUpdateStrategy = &appspub.InPlaceUpdateStrategy{GracePeriodSeconds: graceSeconds}
	case mirrorOnly:
		set.Spec.Lifecycle = nil
	}
	if name == hooksOnly || name == mirrorOnly {
		container.Lifecycle = nil
	}
	if services && hooked(name) {
		template.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: lifecycle.ConditionInRotation}}
	}
	template.Labels["app"] = name
	set.Spec.Selector.MatchLabels["app"] = name
	template.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels["app"] = name
	return set, nil
}

// create creates the arm's namespace, which enforces Pod Security, a disruption budget, a Service and the CloneSet.
func (a *arm) create(ctx context.Context) error {
	set, err := clonesetFor(a.name, a.services)
	if err != nil {
		return err
	}
	if a.edit != nil {
		a.edit(set)
	}
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: set.Name},
		Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromInt32(2)), Selector: set.Spec.Selector},
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: a.Key.Namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: a.name},
		Spec:       corev1.ServiceSpec{Selector: set.Spec.Selector.MatchLabels, Ports: []corev1.ServicePort{{Port: appPort}}},
	}
	budget.Namespace, service.Namespace, set.Namespace = namespace.Name, namespace.Name, namespace.Name
	return kube.Create(ctx, a.K8s, namespace, budget, service, set)
}

// delete removes what create has created.
func (a *arm) delete(ctx context.Context) error {
	if err := a.K8s.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a.Key.Namespace}}); err != nil {
		return fmt.Errorf("removing arm %s: %w", a.name, err)
	}
	return nil
}

func (a *arm) await(ctx context.Context, what string, holds func(context.Context) error) error {
	if err := await(ctx, holds); err != nil {
		return fmt.Errorf("arm %s, waiting for %s: %w", a.name, what, err)
	}
	return nil
}

// settle returns when the CloneSet is as its spec wants it, and the registry has those pods and no others in rotation.
func (a *arm) settle(ctx context.Context) error {
	return a.await(ctx, "the rollout to end", func(ctx context.Context) error {
		_, err := a.Settled(ctx, []read.Reader{polling(a.directory, a.name)})
		return err
	})
}

func await(ctx context.Context, holds func(context.Context) error) error {
	return wait.Until(ctx, patience, pollStep, holds)
}

// staged is an arm of one scenario: Rollcall keeps its pods, and it has one client, which reads the service once a second.
type staged struct {
	*arm

	client *rollout.Client
	stop   func() // returns when the last request is done
}

// stage creates the arm, with a CloneSet that edit has changed, and lets its client begin once the pods are in rotation.
func (w *world) stage(
	ctx context.Context, name string, requests rollout.ClientOptions, edit func(*appsv1alpha1.CloneSet),
) (*staged, error) {
	a := w.newArm(name, edit)
	if err := a.create(ctx); err != nil {
		return nil, err
	}
	if err := a.settle(ctx); err != nil {
		return nil, err
	}
	requests.Name, requests.Read = name, polling(w.directory, name)
	client := rollout.NewClient(requests)
	return &staged{a, client, client.Start(ctx)}, nil
}

// strike removes the arm.
func (a *staged) strike(ctx context.Context) error {
	a.stop()
	return a.delete(ctx)
}
