package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	appsv1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/rollcall-dev/rollcall/test/harness/process"
)

const (
	kruiseNamespace = "kruise-system"
	kruisePrefix    = "kruise-"
)

// applyKruise applies the manifests and waits until the API server serves the CRDs.
func (c *Cluster) applyKruise(ctx context.Context) error {
	manifests, err := kruiseManifests(filepath.Join(c.kruiseDir, "config"))
	if err != nil {
		return err
	}
	return c.apply(ctx, manifests)
}

// applyCRDs applies nothing but the CRDs: no webhook is called.
func (c *Cluster) applyCRDs(ctx context.Context) error {
	crds, err := kruiseCRDs(filepath.Join(c.kruiseDir, "config", "crd"))
	if err != nil {
		return err
	}
	return c.apply(ctx, crds)
}

func (c *Cluster) apply(ctx context.Context, manifests []*unstructured.Unstructured) error {
	if err := Apply(ctx, c.client, "rollcall-test-cluster", manifests); err != nil {
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
	kubeconfig, err := c.clientKubeconfig(kruiseManager, groupMasters)
	if err != nil {
		return nil, err
	}
	return c.launch(process.Command{
		Name: kruiseManager, Path: c.binaries[kruiseManager],
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
			// With a host its webhooks go by URL and not through a Service.
			"WEBHOOK_HOST=127.0.0.1",
			"WEBHOOK_PORT=" + strconv.Itoa(c.ports.kruiseWebhook),
			"WEBHOOK_CERT_DIR=" + filepath.Join(c.dir, "kruise-webhook-certs"),
		},
	})
}

// waitCRDs waits until the API server serves OpenKruise's types: its manager leaves out those that it does not find.
func (c *Cluster) waitCRDs(ctx context.Context) error {
	p := c.process(apiServer)
	return p.WaitReady(ctx, func(ctx context.Context) error {
		var crds apiextensionsv1.CustomResourceDefinitionList
		if err := c.client.List(ctx, &crds); err != nil {
			return fmt.Errorf("listing the CRDs: %w", err)
		}
		for _, crd := range crds.Items {
			if !established(&crd) {
				return fmt.Errorf("CRD %s is not established", crd.Name)
			}
		}
		return nil
	})
}

func established(crd *apiextensionsv1.CustomResourceDefinition) bool {
	for _, condition := range crd.Status.Conditions {
		if condition.Type == apiextensionsv1.Established {
			return condition.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
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

// kruiseManifests reads what the manager needs in the cluster out of its module: what `kustomize build config/default`
// gives, without the workloads and the RBAC of a manager that runs in the cluster.
func kruiseManifests(config string) ([]*unstructured.Unstructured, error) {
	crds, err := kruiseCRDs(filepath.Join(config, "crd"))
	if err != nil {
		return nil, err
	}
	objects, err := readManifests(filepath.Join(config, "manager", "manager.yaml"))
	if err != nil {
		return nil, err
	}
	for _, file := range []string{"service.yaml", "manifests.yaml"} {
		more, err := readManifests(filepath.Join(config, "webhook", file))
		if err != nil {
			return nil, err
		}
		objects = append(objects, more...)
	}
	patches, err := readManifests(filepath.Join(config, "webhook", "patch_manifests.yaml"))
	if err != nil {
		return nil, err
	}
	wanted := crds
	for _, object := range objects {
		switch object.GetKind() {
		case "Namespace":
			object.SetName(kruiseNamespace)
		case "Secret", "Service":
			object.SetNamespace(kruiseNamespace)
			object.SetName(kruisePrefix + object.GetName())
		case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
			if err := patchWebhooks(object, patches); err != nil {
				return nil, err
			}
			object.SetName(kruisePrefix + object.GetName())
		default:
			continue
		}
		wanted = append(wanted, object)
	}
	return wanted, nil
}

// kruiseCRDs reads the CRDs. Those that the kustomization patches have several versions, and the manager's webhook converts
// between them.
func kruiseCRDs(dir string) ([]*unstructured.Unstructured, error) {
	files, err := filepath.Glob(filepath.Join(dir, "bases", "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("listing OpenKruise's CRDs: %w", err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("there are no CRDs of OpenKruise in %s", dir)
	}
	conversions, err := kruiseConversions(dir)
	if err != nil {
		return nil, err
	}
	var crds []*unstructured.Unstructured
	for _, file := range files {
		read, err := readManifests(file)
		if err != nil {
			return nil, err
		}
		crds = append(crds, read...)
	}
	for _, crd := range crds {
		for _, patch := range conversions {
			conversion, found, err := unstructured.NestedMap(patch.Object, "spec", "conversion")
			if err != nil || !found || patch.GetName() != crd.GetName() {
				continue
			}
			if err := unstructured.SetNestedMap(crd.Object, conversion, "spec", "conversion"); err != nil {
				return nil, fmt.Errorf("setting the conversion of %s: %w", crd.GetName(), err)
			}
		}
		// What controller-gen wrote as a place-holder is not for the API server.
		unstructured.RemoveNestedField(crd.Object, "status")
	}
	return crds, nil
}

// kruiseConversions reads the patches of the CRDs that the kustomization names.
func kruiseConversions(dir string) ([]*unstructured.Unstructured, error) {
	text, err := os.ReadFile(filepath.Join(dir, "kustomization.yaml"))
	if err != nil {
		return nil, fmt.Errorf("reading the kustomization of OpenKruise's CRDs: %w", err)
	}
	var kustomization struct {
		Patches []string `json:"patchesStrategicMerge"`
	}
	if err := yaml.Unmarshal(text, &kustomization); err != nil {
		return nil, fmt.Errorf("reading the kustomization of OpenKruise's CRDs: %w", err)
	}
	var patches []*unstructured.Unstructured
	for _, file := range kustomization.Patches {
		read, err := readManifests(filepath.Join(dir, file))
		if err != nil {
			return nil, err
		}
		patches = append(patches, read...)
	}
	return patches, nil
}

// patchWebhooks applies those patches that are for this object.
func patchWebhooks(object *unstructured.Unstructured, patches []*unstructured.Unstructured) error {
	var schema any = admissionv1.MutatingWebhookConfiguration{}
	if object.GetKind() == "ValidatingWebhookConfiguration" {
		schema = admissionv1.ValidatingWebhookConfiguration{}
	}
	for _, patch := range patches {
		if patch.GetKind() != object.GetKind() || patch.GetName() != object.GetName() {
			continue
		}
		merged, err := strategicpatch.StrategicMergeMapPatch(object.Object, patch.Object, schema)
		if err != nil {
			return fmt.Errorf("patching %s of OpenKruise: %w", object.GetKind(), err)
		}
		object.Object = merged
	}
	return nil
}

// readManifests reads the objects of a YAML file.
func readManifests(path string) ([]*unstructured.Unstructured, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading OpenKruise's manifests: %w", err)
	}
	objects, err := Decode(string(text))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return objects, nil
}
