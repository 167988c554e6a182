package cluster

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/rollcall-dev/rollcall/test/harness/cluster/servers"
	"github.com/rollcall-dev/rollcall/test/harness/process"
)

const (
	defaultStartDelay = 200 * time.Millisecond
	defaultReadyDelay = 200 * time.Millisecond
	deleteDelay       = 100 * time.Millisecond
	// kwokParallelism is how many pods change at once.
	kwokParallelism = 16
	// preStopSleep is how long the longest preStop sleep of a pod's containers takes, and nothing where none sleeps.
	preStopSleep = `[.spec.containers[].lifecycle.preStop.sleep.seconds // 0] | max | if . > 0 then "\(.)s" else empty end`
)

//go:embed stages
var stageFiles embed.FS

// podStage is one thing that a kubelet does for a pod. Its name is a word of stages/pod-next.jq.
type podStage struct {
	name    string
	delay   time.Duration
	from    string // a jq expression that overrides the delay, unless it gives nothing
	deletes bool   // instead of a patch from stages/pod-<name>.yaml
}

func podStages() []podStage {
	return []podStage{
		{name: "start", delay: defaultStartDelay, from: annotation(AnnotationStartDelay)},
		{name: "ready", delay: defaultReadyDelay, from: annotation(AnnotationReadyDelay)},
		{name: "gates-open"},
		{name: "gates-shut"},
		{name: "kill", from: preStopSleep},
		{name: "restart", delay: defaultStartDelay, from: annotation(AnnotationStartDelay)},
		{name: "stop", from: preStopSleep},
		{name: "delete", delay: deleteDelay, deletes: true},
	}
}

func annotation(key string) string { return fmt.Sprintf(".metadata.annotations[%q]", key) }

// kwokConfig returns KWOK's configuration with the stages of pods. Nodes get KWOK's own stages.
func kwokConfig() ([]byte, error) {
	next, err := stageFiles.ReadFile("stages/pod-next.jq")
	if err != nil {
		return nil, fmt.Errorf("reading the stages: %w", err)
	}
	docs := []any{map[string]any{
		"apiVersion": "config.kwok.x-k8s.io/v1alpha1", "kind": "KwokConfiguration",
		"options": map[string]any{
			"podPlayStageParallelism": kwokParallelism,
			// No leases: with them a slow machine would lose nodes, and nothing here tests that.
			"nodeLeaseDurationSeconds": 0,
		},
	}}
	for _, s := range podStages() {
		doc, err := s.document(string(next))
		if err != nil {
			return nil, err
		}
		docs = append(docs, doc)
	}
	var config strings.Builder
	for _, doc := range docs {
		data, err := yaml.Marshal(doc)
		if err != nil {
			return nil, fmt.Errorf("encoding the stages: %w", err)
		}
		fmt.Fprintf(&config, "---\n%s", data)
	}
	return []byte(config.String()), nil
}

// document is KWOK's Stage. Each patch names the resource version that it was made from: a pod that changed meanwhile
// refuses it, and the change itself brings KWOK back.
func (s podStage) document(next string) (map[string]any, error) {
	spec := map[string]any{
		"resourceRef": map[string]any{"apiGroup": "v1", "kind": "Pod"},
		"selector": map[string]any{"matchExpressions": []any{
			map[string]any{"key": next, "operator": "In", "values": []any{s.name}},
		}},
	}
	delay := map[string]any{"durationMilliseconds": s.delay.Milliseconds()}
	if s.from != "" {
		delay["durationFrom"] = map[string]any{"expressionFrom": s.from}
	}
	if s.delay > 0 || s.from != "" {
		spec["delay"] = delay
	}
	if s.deletes {
		spec["next"] = map[string]any{"delete": true}
	} else {
		template, err := stageFiles.ReadFile("stages/pod-" + s.name + ".yaml")
		if err != nil {
			return nil, fmt.Errorf("reading stage %s: %w", s.name, err)
		}
		spec["next"] = map[string]any{"patches": []any{
			map[string]any{"subresource": "status", "type": "strategic", "template": string(template)},
		}}
	}
	return map[string]any{
		"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage",
		"metadata": map[string]any{"name": "pod-" + s.name}, "spec": spec,
	}, nil
}

// startKWOK starts KWOK, makes the nodes and waits for them to be Ready.
func (c *Cluster) startKWOK(ctx context.Context) error {
	config, err := kwokConfig()
	if err != nil {
		return err
	}
	file := filepath.Join(c.dir, "kwok.yaml")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return fmt.Errorf("writing KWOK's configuration: %w", err)
	}
	kubeconfig, err := c.clientKubeconfig(servers.KWOK, groupMasters)
	if err != nil {
		return err
	}
	p, err := c.launch(process.Command{Name: servers.KWOK, Path: c.binaries[servers.KWOK], Args: []string{
		"--config=" + file,
		"--kubeconfig=" + kubeconfig,
		"--manage-all-nodes=true",
		"--cidr=" + c.opts.PodCIDR,
		"--node-ip=127.0.0.1",
	}, Env: []string{"KWOK_WORKDIR=" + c.dir}})
	if err != nil {
		return err
	}
	if err := c.createNodes(ctx); err != nil {
		return err
	}
	if err := p.WaitReady(ctx, c.nodesReady); err != nil {
		return err
	}
	return c.firstAddress(ctx, p)
}

// firstAddress has KWOK give out one address while there is only one pod. It makes the pool of addresses when the first is
// asked for, and two pods that ask at once can get a pool each, and with them the same address (ipPool in
// pkg/kwok/controllers/pod_controller.go, v0.7.0).
func (c *Cluster) firstAddress(ctx context.Context, kwok *process.Process) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "first-address"},
		Spec: corev1.PodSpec{
			NodeName: "node-0", AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "none", Image: "none"}},
		},
	}
	return kwok.WaitReady(ctx, func(ctx context.Context) error {
		// The namespace and its service account may not be there yet.
		if err := c.client.Create(ctx, pod.DeepCopy()); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating a pod for the first address: %w", err)
		}
		var seen corev1.Pod
		if err := c.client.Get(ctx, client.ObjectKeyFromObject(pod), &seen); err != nil {
			return fmt.Errorf("reading the pod with the first address: %w", err)
		}
		if seen.Status.PodIP == "" {
			return errors.New("the first pod has no address")
		}
		if err := c.client.Delete(ctx, &seen, client.GracePeriodSeconds(0)); err != nil {
			return fmt.Errorf("deleting the pod with the first address: %w", err)
		}
		return nil
	})
}

func (c *Cluster) createNodes(ctx context.Context) error {
	for i := range c.opts.Nodes {
		name := fmt.Sprintf("node-%d", i)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		}}}
		if err := c.client.Create(ctx, node); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating %s: %w", name, err)
		}
	}
	return nil
}

// nodesReady returns nil when every node is.
func (c *Cluster) nodesReady(ctx context.Context) error {
	var nodes corev1.NodeList
	if err := c.client.List(ctx, &nodes, &client.ListOptions{}); err != nil {
		return fmt.Errorf("listing the nodes: %w", err)
	}
	for _, node := range nodes.Items {
		if err := NodeReady(&node); err != nil {
			return err
		}
	}
	return nil
}

// NodeReady returns nil when a node is Ready and free of the taint that a new node has.
func NodeReady(node *corev1.Node) error {
	for _, taint := range node.Spec.Taints {
		return fmt.Errorf("%s has the taint %s", node.Name, taint.Key)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("%s is not Ready", node.Name)
}
