package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/test/harness/cache"
	"github.com/rollcall-dev/rollcall/test/harness/cluster/servers"
	"github.com/rollcall-dev/rollcall/test/harness/process"
)

// RolloutsNamespace is where Kruise Rollouts looks for its ConfigMap.
const RolloutsNamespace = "kruise-rollout"

// InstallRollouts builds Kruise Rollouts if it is missing, applies its CRDs and webhook configurations and starts its manager, and
// returns when its webhooks are served. It does nothing if it has done so before.
func (c *Cluster) InstallRollouts(ctx context.Context) error {
	c.install.Lock()
	defer c.install.Unlock()
	if c.process(servers.Rollouts) != nil {
		return nil
	}
	module, err := servers.Other(ctx, servers.Rollouts)
	if err != nil {
		return err
	}
	built, err := cache.Build(ctx, c.log, module)
	if err != nil {
		return err
	}
	dir, err := cache.ModuleDir(ctx, module.Dir, module.Requires)
	if err != nil {
		return err
	}
	if err := c.apply(ctx, filepath.Join(dir, "config", "default"), RolloutsNamespace); err != nil {
		return err
	}
	return c.step(ctx, servers.Rollouts, func(ctx context.Context) error { return c.startRollouts(ctx, built.Paths[servers.Rollouts]) })
}

func (c *Cluster) startRollouts(ctx context.Context, path string) error {
	kubeconfig, err := c.clientKubeconfig(servers.Rollouts, groupMasters)
	if err != nil {
		return err
	}
	ports, err := process.FreePorts(ctx, 1)
	if err != nil {
		return err
	}
	p, err := c.launch(process.Command{
		Name: servers.Rollouts, Path: path,
		Args: []string{"--metrics-bind-address=0", "--health-probe-bind-address=0"},
		Env: []string{
			"KUBECONFIG=" + kubeconfig,
			"POD_NAMESPACE=" + RolloutsNamespace,
			webhookHost,
			"WEBHOOK_PORT=" + strconv.Itoa(ports[0]),
			"WEBHOOK_CERT_DIR=" + filepath.Join(c.dir, "rollouts-webhook-certs"),
		},
	})
	if err != nil {
		return err
	}
	return p.WaitReady(ctx, func(ctx context.Context) error {
		// Its webhook is called for each, or the API server refuses it.
		if err := c.client.Create(ctx, trialRollout(), client.DryRunAll); err != nil {
			return fmt.Errorf("creating a Rollout for trial: %w", err)
		}
		return nil
	})
}

func trialRollout() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rollouts.kruise.io/v1beta1", "kind": "Rollout",
		"metadata": map[string]any{"namespace": "default", "name": "trial"},
		"spec": map[string]any{
			"workloadRef": map[string]any{"apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet", "name": "trial"},
			"strategy":    map[string]any{"canary": map[string]any{"steps": []any{map[string]any{"replicas": "100%"}}}},
		},
	}}
}
