package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	appsv1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/test/harness/cluster/servers"
	"github.com/rollcall-dev/rollcall/test/harness/manifests"
	"github.com/rollcall-dev/rollcall/test/harness/process"
)

const (
	kruiseNamespace = "kruise-system"
	crdKind         = "CustomResourceDefinition"
	webhookHost     = "WEBHOOK_HOST=127.0.0.1" // then webhooks go by URL and not through a Service
)

// applyKruise applies what the manager needs in the cluster: all but the workloads and the RBAC of a manager that runs there.
func (c *Cluster) applyKruise(ctx context.Context) error {
	return c.apply(ctx, filepath.Join(c.kruiseDir, "config", "default"), kruiseNamespace)
}

// applyCRDs applies nothing but the CRDs: no webhook is called.
func (c *Cluster) applyCRDs(ctx context.Context) error {
	return c.apply(ctx, filepath.Join(c.kruiseDir, "config", "crd"), "")
}

// apply applies manifests of OpenKruise or of its Rollouts and waits until the API server serves the CRDs.
func (c *Cluster) apply(ctx context.Context, folder, namespace string) error {
	objects, err := neededOf(folder, namespace)
	if err != nil {
		return fmt.Errorf("reading OpenKruise's manifests: %w", err)
	}
	if err := manifests.Apply(ctx, c.client, "rollcall-test-cluster", objects); err != nil {
		return fmt.Errorf("installing OpenKruise: %w", err)
	}
	return c.waitCRDs(ctx)
}

// startKruise starts the manager and waits until its webhooks take part in a request.
func (c *Cluster) startKruise(ctx context.Context) error {
	p, err := c.startKruiseManager()
	if err != nil {
		return err
	}
	if err := p.WaitReady(ctx, c.probe(localURL("http", c.ports.kruiseHealth)+"/readyz")); err != nil {
		return err
	}
	return p.WaitReady(ctx, c.webhooksServed)
}

func (c *Cluster) startKruiseManager() (*process.Process, error) {
	kubeconfig, err := c.clientKubeconfig(servers.KruiseManager, groupMasters)
	if err != nil {
		return nil, err
	}
	return c.launch(process.Command{
		Name: servers.KruiseManager, Path: c.binaries[servers.KruiseManager],
		Args: []string{
			"--enable-leader-election=false",
			"--health-probe-addr=127.0.0.1:" + strconv.Itoa(c.ports.kruiseHealth),
			"--metrics-addr=127.0.0.1:" + strconv.Itoa(c.ports.kruiseMetrics),
			"--pprof-addr=127.0.0.1:" + strconv.Itoa(c.ports.kruiseProfile),
			"--rest-config-qps=" + clientQPS,
			"--rest-config-burst=" + clientBurst,
			"--cloneset-workers=16",
			// By default it is /log, where only root can write. It must be there: it would be made without the right to
			// enter it.
			"--protection-log-path=" + c.dir,
			"--v=3",
		},
		Env: []string{
			"KUBECONFIG=" + kubeconfig,
			"POD_NAMESPACE=" + kruiseNamespace,
			webhookHost,
			"WEBHOOK_PORT=" + strconv.Itoa(c.ports.kruiseWebhook),
			"WEBHOOK_CERT_DIR=" + filepath.Join(c.dir, "kruise-webhook-certs"),
		},
	})
}

// waitCRDs waits until the API server serves OpenKruise's types: its manager leaves out those that it does not find.
func (c *Cluster) waitCRDs(ctx context.Context) error {
	p := c.process(servers.APIServer)
	return p.WaitReady(ctx, func(ctx context.Context) error {
		var crds apiextensionsv1.CustomResourceDefinitionList
		if err := c.client.List(ctx, &crds); err != nil {
			return fmt.Errorf("listing the CRDs: %w", err)
		}
		for _, crd := range crds.Items {
			if !apihelpers.IsCRDConditionTrue(&crd, apiextensionsv1.Established) {
				return fmt.Errorf("CRD %s is not established", crd.Name)
			}
		}
		return nil
	})
}

// webhooksServed creates a CloneSet for trial: the webhook has answered if a default is filled in.
func (c *Cluster) webhooksServed(ctx context.Context) error {
	labels := map[string]string{"app": "trial"}
	set := &appsv1alpha1.CloneSet{
		ObjectMeta: metav1.ObjectMeta{Name: "trial", Namespace: metav1.NamespaceDefault},
		Spec: appsv1alpha1.CloneSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "trial", Image: "trial"}}},
			},
		},
	}
	if err := c.client.Create(ctx, set, client.DryRunAll); err != nil {
		return fmt.Errorf("creating a CloneSet for trial: %w", err)
	}
	if set.Spec.RevisionHistoryLimit == nil {
		return errors.New("the API server does not call OpenKruise's webhooks yet")
	}
	return nil
}

// neededOf returns what a folder of OpenKruise's manifests has for a manager that runs outside the cluster and has a namespace there.
func neededOf(folder, namespace string) ([]*unstructured.Unstructured, error) {
	objects, err := manifests.Build(folder)
	if err != nil {
		return nil, err
	}
	kinds := []string{crdKind, "Namespace", "Secret", "Service", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}
	objects = slices.DeleteFunc(objects, func(object *unstructured.Unstructured) bool {
		return !slices.Contains(kinds, object.GetKind()) || object.GetKind() == "Namespace" && object.GetName() != namespace
	})
	for _, object := range objects {
		// What controller-gen wrote into CRDs as a place-holder is not for the API server.
		unstructured.RemoveNestedField(object.Object, "status")
	}
	return objects, nil
}
