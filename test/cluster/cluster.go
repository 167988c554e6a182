package cluster

import (
	"context"
	"errors"
	"io"

	"k8s.io/client-go/rest"
)

const (
	// AnnotationStartDelay on a pod is how long each start of its containers takes, the restart of an in-place update
	// too, from being bound or from having stopped to running: a Go duration such as "2s".
	AnnotationStartDelay = "cluster.rollcall.dev/start-delay"
	// AnnotationReadyDelay on a pod is how long its containers run before they are ready: a Go duration such as "2s".
	AnnotationReadyDelay = "cluster.rollcall.dev/ready-delay"

	// DefaultNodes is the number of nodes where Options.Nodes is 0.
	DefaultNodes = 3
	// DefaultPodCIDR is where pods get their addresses from if Options.PodCIDR is empty.
	DefaultPodCIDR = "127.100.0.0/16"
)

// Options say what to start. The zero value is a cluster with OpenKruise and DefaultNodes nodes.
type Options struct {
	// Dir is where data, certificates and a log of each server go; it is created and kept. Empty: a temporary folder
	// that Stop removes.
	Dir string
	// Log gets one line for each step. Nil: nothing is written.
	Log io.Writer
	// Nodes is the number of nodes; 0 means DefaultNodes. Each has room for 1,000 pods.
	Nodes int
	// PodCIDR is the range that pods get their addresses from; empty means DefaultPodCIDR. Two clusters that run at the
	// same time and serve pods need two ranges.
	PodCIDR string
	// WithoutKruise leaves OpenKruise out: neither its CRDs nor its manager. InstallKruise adds it later.
	WithoutKruise bool
}

// Cluster is a running control plane. Its methods are safe for concurrent use.
type Cluster struct {
	config     *rest.Config
	kubeconfig string
}

// Start builds what is missing, starts every server and returns when the API answers, the nodes are Ready and (unless
// left out) OpenKruise's webhooks are served. When it fails, or ctx ends first, everything that it started is stopped,
// and the error carries the end of the log of the server that is to blame. The cluster outlives ctx: only Stop, SIGINT, SIGTERM
// and the end of this process stop it.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	return nil, errors.New("cluster: not built yet")
}

// Config returns a copy of the client configuration of a cluster admin, with no throttle of its own.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Kubeconfig returns the path of a kubeconfig file of a cluster admin. It is gone after Stop where Options.Dir was empty.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig }

// InstallKruise applies OpenKruise's CRDs and webhook configurations and starts its manager, and returns when its
// webhooks are served. Start has done so already unless Options.WithoutKruise is set; then it does nothing.
func (c *Cluster) InstallKruise(ctx context.Context) error {
	return errors.New("cluster: not built yet")
}

// RestartAPIServer kills kube-apiserver and starts it again at the same address with its data kept, and returns when it is
// ready. The other servers stay up and reconnect.
func (c *Cluster) RestartAPIServer(ctx context.Context) error {
	return errors.New("cluster: not built yet")
}

// Stop kills every server and waits for its end, then removes the folder if it was a temporary one. It can be called
// more than once, and at the same time.
func (c *Cluster) Stop() {}
