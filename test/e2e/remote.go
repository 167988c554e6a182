package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/test/harness/cluster"
	"github.com/rollcall-dev/rollcall/test/harness/command"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
	"github.com/rollcall-dev/rollcall/test/harness/manifests"
)

const runnerNamespace = "e2e-runner"

//go:embed remote.yaml
var remoteYAML string

// remote plays on the cluster of a kubeconfig, by a pod in it, shows what the pod says, and removes everything again.
// The images must be on the nodes.
func remote(ctx context.Context, kubeconfig string) (err error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("E2E_KUBECONFIG: %w", err)
	}
	k8s, err := cluster.NewClient(config)
	if err != nil {
		return err
	}
	var there corev1.Namespace
	if err := k8s.Get(ctx, client.ObjectKey{Name: rollcallNamespace}, &there); !apierrors.IsNotFound(err) {
		return errors.Join(err, errors.New("the cluster has a namespace "+rollcallNamespace+
			", whose Rollcall the tests would replace: use one without"))
	}
	runner, err := manifests.Decode(strings.ReplaceAll(remoteYAML, "E2E_SCENARIOS", os.Getenv("E2E")))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cleanUp(context.WithoutCancel(ctx), k8s, runner)) }()
	if err := manifests.Apply(ctx, k8s, fieldOwner, runner); err != nil {
		return err
	}
	return follow(ctx, config, k8s)
}

// follow shows what the pod says until it ends, and returns command.ErrFailed where it fails.
func follow(ctx context.Context, config *rest.Config, k8s client.Client) error {
	pod := kube.Pod(runnerNamespace, "runner")
	leaves := func(phase corev1.PodPhase) error {
		return await(ctx, func(ctx context.Context) error {
			if err := k8s.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
				return fmt.Errorf("reading the pod: %w", err)
			}
			if pod.Status.Phase == phase {
				return fmt.Errorf("the pod is %s", phase)
			}
			return nil
		})
	}
	if err := leaves(corev1.PodPending); err != nil {
		return err
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("connecting to the cluster: %w", err)
	}
	logs, err := clients.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	if err != nil {
		return fmt.Errorf("reading what the pod says: %w", err)
	}
	defer logs.Close()
	if _, err := io.Copy(os.Stdout, logs); err != nil {
		return fmt.Errorf("reading what the pod says: %w", err)
	}
	err = leaves(corev1.PodRunning)
	if err == nil && pod.Status.Phase != corev1.PodSucceeded {
		return command.ErrFailed // it has said why
	}
	return err
}

// cleanUp removes all that the tests have made, and waits until the namespaces are gone.
func cleanUp(ctx context.Context, k8s client.Client, objects []*unstructured.Unstructured) error {
	rollcall, err := rollcallObjects(workDir+"/"+evictionsManifest, "")
	if err != nil {
		return err
	}
	objects = append(objects, rollcall...)
	for _, name := range armNames() {
		namespace := &unstructured.Unstructured{}
		namespace.SetAPIVersion("v1")
		namespace.SetKind("Namespace")
		namespace.SetName(namespaceOf(name))
		objects = append(objects, namespace)
	}
	for _, object := range objects {
		if err := k8s.Delete(ctx, object); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("removing %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return await(ctx, func(ctx context.Context) error {
		for _, object := range objects {
			if err := k8s.Get(ctx, client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
				return errors.Join(err, fmt.Errorf("%s %s is still there", object.GetKind(), object.GetName()))
			}
		}
		return nil
	})
}

// inPod plays in the pod that remote has made.
func inPod(ctx context.Context, chosen []scenario) error {
	config, err := rest.InClusterConfig()
	if err != nil {
		return fmt.Errorf("connecting to the cluster: %w", err)
	}
	k8s, err := cluster.NewClient(config)
	if err != nil {
		return err
	}
	chosen = slices.DeleteFunc(chosen, func(s scenario) bool {
		if s.own {
			fmt.Printf("e2e: skipped: %q needs nodes that are the tests' own\n", s.name)
		}
		return s.own
	})
	return play(ctx, options{
		config: config, site: remoteSite{k8s}, built: "/", registry: os.Getenv("POD_IP"), program: "/consul",
		dir: os.TempDir(), scenarios: chosen, out: os.Stdout, failures: io.Discard,
	})
}

// remoteSite is a cluster that is there: what happens on its nodes must happen by its API.
type remoteSite struct{ k8s client.Client }

// KillManagers implements site.
func (s remoteSite) KillManagers(ctx context.Context) error {
	err := s.k8s.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(rollcallNamespace), client.GracePeriodSeconds(0))
	if err != nil {
		return fmt.Errorf("deleting the managers: %w", err)
	}
	return nil
}

// StopNode implements site.
func (remoteSite) StopNode(context.Context, string) error { return errors.ErrUnsupported }

// StartNode implements site.
func (remoteSite) StartNode(context.Context, string) error { return errors.ErrUnsupported }

// RestartKubelet implements site.
func (remoteSite) RestartKubelet(context.Context, string) error { return errors.ErrUnsupported }

// ShutNodeDown implements site.
func (remoteSite) ShutNodeDown(context.Context, string) error { return errors.ErrUnsupported }

// StopKruise implements site.
func (s remoteSite) StopKruise(ctx context.Context) error { return s.scaleKruise(ctx, 0) }

// StartKruise implements site.
func (s remoteSite) StartKruise(ctx context.Context) error { return s.scaleKruise(ctx, 2) }

func (s remoteSite) scaleKruise(ctx context.Context, n int32) error {
	manager := &appsv1.Deployment{}
	manager.Namespace, manager.Name = "kruise-system", "kruise-controller-manager"
	if err := s.k8s.Patch(ctx, manager, kube.Merge(`{"spec":{"replicas":%d}}`, n)); err != nil {
		return fmt.Errorf("scaling OpenKruise's manager: %w", err)
	}
	return await(ctx, func(ctx context.Context) error {
		if err := s.k8s.Get(ctx, client.ObjectKeyFromObject(manager), manager); err != nil {
			return fmt.Errorf("reading OpenKruise's manager: %w", err)
		}
		if manager.Status.ReadyReplicas != n {
			return fmt.Errorf("%d of %d are ready", manager.Status.ReadyReplicas, n)
		}
		return nil
	})
}
