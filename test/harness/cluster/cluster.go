package cluster

import (
	"cmp"
	"context"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"time"

	kruisepolicy "github.com/openkruise/kruise-api/policy/v1alpha1"
	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/test/harness/account"
	"github.com/rollcall-dev/rollcall/test/harness/cache"
	"github.com/rollcall-dev/rollcall/test/harness/cluster/servers"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
	"github.com/rollcall-dev/rollcall/test/harness/pki"
	"github.com/rollcall-dev/rollcall/test/harness/process"
)

const (
	// AnnotationStartDelay on a pod is how long each start of its containers takes, the restart of an in-place update
	// too, from being bound or from having stopped to running: a Go duration such as "2s".
	AnnotationStartDelay = "cluster.rollcall.dev/start-delay"
	// AnnotationReadyDelay on a pod is how long its containers run before they are ready: a Go duration such as "2s".
	AnnotationReadyDelay = "cluster.rollcall.dev/ready-delay"
	// AnnotationGlobalAddress on a pod, with any value, has it start at 10. in place of 127.: EndpointSlices take no loopback addresses.
	// Nobody answers there.
	AnnotationGlobalAddress = "cluster.rollcall.dev/global-address"

	// ServiceAddress is that of the Service kubernetes, at which pods look for the API server. Its certificate is good for
	// it; who has pods with containers must lead it there.
	ServiceAddress = "10.96.0.1"

	defaultNodes   = 3
	defaultPodCIDR = "127.100.0.0/16"

	tempPrefix = "rollcall-cluster-"
	pkiDir     = "pki"

	groupMasters = "system:masters"
)

// Options say what to start. The zero value is a cluster with OpenKruise and defaultNodes nodes.
type Options struct {
	// Dir is where data, certificates and a log of each server go; it is created and kept. Empty: a temporary folder
	// that Stop removes.
	Dir string
	// Log gets one line for each step. Nil: nothing is written.
	Log io.Writer
	// Nodes is the number of nodes; 0 means defaultNodes.
	Nodes int
	// PodCIDR is the range that pods get their addresses from; empty means defaultPodCIDR. Any process of this machine must
	// be able to answer at them. Two clusters that run at the same time and serve pods need two ranges.
	PodCIDR string
	// WithoutKruise leaves OpenKruise out: neither its CRDs nor its manager. InstallKruise adds it later.
	WithoutKruise bool
	// APIOnly starts only etcd and kube-apiserver, with OpenKruise's CRDs: nothing moves a pod but the caller.
	APIOnly bool
	// WithoutNodes leaves KWOK out, so that the caller can bring nodes of its own; Nodes and PodCIDR mean nothing then.
	WithoutNodes bool
	// NodeGracePeriod is how long a node may be silent before it counts as dead; 0 means longer than any test.
	NodeGracePeriod time.Duration
}

// Cluster is a running control plane. Its methods are safe for concurrent use.
type Cluster struct {
	opts      Options
	dir       string
	log       *cache.Progress
	binaries  map[string]string
	kruiseDir string
	ports     ports

	authority       *pki.Authority
	serving         pki.KeyPair
	serviceAccounts pki.KeyPair

	config     *rest.Config
	kubeconfig string
	http       *http.Client
	client     client.WithWatch

	launcher *process.Launcher
	done     chan struct{}
	release  func() // frees dir
	stop     sync.Once
	restart  sync.Mutex // one restart of the API server at a time
	install  sync.Mutex // one installation of OpenKruise at a time
	kruise   bool       // guarded by install

	mu        sync.Mutex
	processes map[string]*process.Process
	stopped   bool
	err       error
}

// Start builds what is missing, starts every server and returns when the API answers, the nodes are Ready and (unless
// left out) OpenKruise's webhooks are served. When it fails, or ctx ends first, everything that it started is stopped,
// and the error carries the end of the log of the server that is to blame. The cluster outlives ctx: Stop ends it, and so
// does the end of this process, however that comes about; so a signal that ends the process needs no handler.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	if err := opts.complete(ctx); err != nil {
		return nil, err
	}
	log := servers.NewProgress(opts.Log)
	binaries, err := servers.Build(ctx, log)
	if err != nil {
		return nil, err
	}
	dir, release, err := process.NewDir(opts.Dir, tempPrefix)
	if err != nil {
		return nil, fmt.Errorf("Options.Dir: %w", err)
	}
	c := &Cluster{
		opts: opts, dir: dir, release: release, log: log, binaries: binaries,
		launcher: process.NewLauncher(), done: make(chan struct{}), processes: map[string]*process.Process{},
	}
	if err := c.start(ctx); err != nil {
		// A server that died is the reason for whatever else went wrong.
		if crash := c.Err(); crash != nil {
			err = crash
		}
		c.Stop()
		return nil, fmt.Errorf("starting the test cluster: %w", err)
	}
	return c, nil
}

// complete fills in the defaults and refuses what can't work.
func (o *Options) complete(ctx context.Context) error {
	o.Nodes, o.PodCIDR = cmp.Or(o.Nodes, defaultNodes), cmp.Or(o.PodCIDR, defaultPodCIDR)
	prefix, err := netip.ParsePrefix(o.PodCIDR)
	if err != nil {
		return fmt.Errorf("Options.PodCIDR: write a range such as %s: %w", defaultPodCIDR, err)
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp4", netip.AddrPortFrom(prefix.Addr().Next(), 0).String())
	if err != nil {
		return fmt.Errorf("Options.PodCIDR: write a range of addresses of this machine, such as %s: %w", defaultPodCIDR, err)
	}
	return listener.Close()
}

// start starts the servers, those that do not need one another at the same time.
func (c *Cluster) start(ctx context.Context) error {
	ctx, cancel := c.During(ctx)
	defer cancel()
	started := time.Now()
	if err := c.prepare(ctx); err != nil {
		return err
	}
	if err := c.step(ctx, servers.Etcd, c.startEtcd); err != nil {
		return err
	}
	if err := c.step(ctx, servers.APIServer, c.startAPIServer); err != nil {
		return err
	}
	var err error
	if c.client, err = NewClient(c.config); err != nil {
		return err
	}
	if c.opts.APIOnly {
		return c.step(ctx, "OpenKruise's types", c.applyCRDs)
	}
	if err := c.startControllers(ctx); err != nil {
		return err
	}
	c.log.Printf("the cluster is up after %s, logs in %s", time.Since(started).Round(time.Millisecond), c.dir)
	return nil
}

// startControllers starts what works on the API's objects.
func (c *Cluster) startControllers(ctx context.Context) error {
	if !c.opts.WithoutKruise {
		// Before kube-controller-manager, whose garbage collector looks for new kinds only every 30 seconds.
		if err := c.step(ctx, "OpenKruise's API", c.applyKruise); err != nil {
			return fmt.Errorf("installing OpenKruise: %w", err)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.step(ctx, servers.ControllerManager, c.startControllerManager) })
	group.Go(func() error { return c.step(ctx, servers.Scheduler, c.startScheduler) })
	if !c.opts.WithoutNodes {
		group.Go(func() error { return c.step(ctx, servers.KWOK, c.startKWOK) })
	}
	if !c.opts.WithoutKruise {
		group.Go(func() error { return c.runKruise(ctx) })
	}
	return group.Wait()
}

// step runs one step and tells how long it took.
func (c *Cluster) step(ctx context.Context, name string, run func(context.Context) error) error {
	started := time.Now()
	if err := run(ctx); err != nil {
		return err
	}
	c.log.Printf("%s is ready after %s", name, time.Since(started).Round(time.Millisecond))
	return nil
}

// prepare makes everything that the servers are started with.
func (c *Cluster) prepare(ctx context.Context) error {
	var err error
	if c.ports, err = choosePorts(ctx); err != nil {
		return err
	}
	kruise, err := servers.Kruise(ctx)
	if err != nil {
		return err
	}
	if c.kruiseDir, err = cache.ModuleDir(ctx, kruise.Dir, kruise.Requires); err != nil {
		return err
	}
	if c.authority, err = pki.NewAuthority(filepath.Join(c.dir, pkiDir), "rollcall-test-cluster"); err != nil {
		return err
	}
	c.serving, err = c.authority.Issue("serving", pkix.Name{CommonName: "kube-apiserver"},
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", ServiceAddress)
	if err != nil {
		return err
	}
	c.serviceAccounts, err = c.authority.Issue("service-accounts", pkix.Name{CommonName: "service-accounts"})
	if err != nil {
		return err
	}
	admin, err := c.authority.Issue("admin", pkix.Name{CommonName: "admin", Organization: []string{groupMasters}})
	if err != nil {
		return err
	}
	c.config = c.clientOf(admin)
	c.kubeconfig = filepath.Join(c.dir, "kubeconfig")
	if err := account.WriteKubeconfig(c.kubeconfig, c.config); err != nil {
		return err
	}
	tlsConfig, err := c.authority.TLSConfig(admin)
	if err != nil {
		return err
	}
	c.http = &http.Client{Transport: &http.Transport{TLSClientConfig: tlsConfig, DisableKeepAlives: true}}
	return nil
}

// clientOf is the configuration of a client with this certificate, with no throttle of its own.
func (c *Cluster) clientOf(pair pki.KeyPair) *rest.Config {
	return &rest.Config{
		Host:            localURL("https", c.ports.apiServer),
		TLSClientConfig: rest.TLSClientConfig{CAData: c.authority.CertPEM, CertData: pair.CertPEM, KeyData: pair.KeyPEM},
		QPS:             -1,
	}
}

// NewClient returns a client that knows the types of Kubernetes and of OpenKruise, sends as fast as it can, and keeps the
// API server's warnings to itself.
func NewClient(config *rest.Config) (client.WithWatch, error) {
	scheme := kube.Scheme(clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, kruisepolicy.AddToScheme)
	config = rest.CopyConfig(config)
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	k8s, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	return k8s, nil
}

// launch starts a server and watches over it. A server of the same name must have been killed before.
func (c *Cluster) launch(what process.Command) (*process.Process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil, errors.New("the test cluster is stopped")
	}
	p, err := process.Start(c.launcher, c.dir, what)
	if err != nil {
		return nil, err
	}
	c.processes[what.Name] = p
	go func() {
		<-p.Done()
		if err := p.Crashed(); err != nil {
			c.fail(p.Name(), err)
		}
	}()
	return p, nil
}

func (c *Cluster) process(name string) *process.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.processes[name]
}

// PID is the number of the process of a server, by the name of its binary: kube-apiserver, etcd.
func (c *Cluster) PID(server string) int { return c.process(server).PID() }

// fail records the first server that died.
func (c *Cluster) fail(name string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped || c.err != nil {
		return
	}
	c.err = err
	c.log.Printf("%s died", name)
	close(c.done)
}

// Config returns a copy of the client configuration of a cluster admin, with no throttle of its own.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Client is that of a cluster admin, as [NewClient] makes it.
func (c *Cluster) Client() client.WithWatch { return c.client }

// Kubeconfig returns the path of a kubeconfig file of a cluster admin. It is gone after Stop where Options.Dir was empty.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig }

// Dir returns the folder with the data and with a log of each server, <name>.log. It is gone after Stop where
// Options.Dir was empty.
func (c *Cluster) Dir() string { return c.dir }

// InstallKruise applies OpenKruise's CRDs and webhook configurations and starts its manager, and returns when its
// webhooks are served. Start has done so already unless Options.WithoutKruise is set; then it does nothing.
func (c *Cluster) InstallKruise(ctx context.Context) error {
	c.install.Lock()
	defer c.install.Unlock()
	if c.kruise {
		return nil
	}
	if running := c.process(servers.KruiseManager); running != nil {
		running.Kill()
	}
	if err := c.applyKruise(ctx); err != nil {
		return fmt.Errorf("installing OpenKruise: %w", err)
	}
	return c.runKruise(ctx)
}

// StopKruise kills OpenKruise's manager, as a crash does. Its webhooks can't be called until StartKruise.
func (c *Cluster) StopKruise() { c.process(servers.KruiseManager).Kill() }

// StartKruise starts OpenKruise's manager again, and returns when its webhooks are served.
func (c *Cluster) StartKruise(ctx context.Context) error {
	c.install.Lock()
	defer c.install.Unlock()
	return c.runKruise(ctx)
}

// runKruise starts OpenKruise's manager and waits until it serves. Its manifests must have been applied.
func (c *Cluster) runKruise(ctx context.Context) error {
	if err := c.step(ctx, servers.KruiseManager, c.startKruise); err != nil {
		return fmt.Errorf("installing OpenKruise: %w", err)
	}
	c.kruise = true
	return nil
}

// RestartAPIServer kills kube-apiserver and starts it again at the same address with its data kept, and returns when it is
// ready. The other servers stay up and reconnect.
func (c *Cluster) RestartAPIServer(ctx context.Context) error {
	c.restart.Lock()
	defer c.restart.Unlock()
	c.process(servers.APIServer).Kill()
	return c.step(ctx, servers.APIServer, c.startAPIServer)
}

// Compact has etcd forget every version of every object but the last: a watch can't go on from an older one.
func (c *Cluster) Compact(ctx context.Context) error {
	var now struct{ Header struct{ Revision string } }
	if err := c.askEtcd(ctx, "range", `{"key":"AA=="}`, &now); err != nil {
		return err
	}
	return c.askEtcd(ctx, "compaction", fmt.Sprintf(`{"revision":%q,"physical":true}`, now.Header.Revision), &now)
}

// Done is closed when a server died on its own, or when Stop is called.
func (c *Cluster) Done() <-chan struct{} { return c.done }

// During returns a context that also ends when a server died on its own, which is its cause then.
func (c *Cluster) During(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-c.done:
			cancel(c.Err())
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// Err tells which server died, with the end of its log; nil if none did.
func (c *Cluster) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Stop kills every server and waits for its end, then removes the folder if it was a temporary one. It can be called
// more than once, and at the same time.
func (c *Cluster) Stop() {
	c.stop.Do(func() {
		c.mu.Lock()
		c.stopped = true
		processes := slices.Collect(maps.Values(c.processes))
		if c.err == nil {
			close(c.done)
		}
		c.mu.Unlock()
		var ending sync.WaitGroup
		for _, p := range processes {
			ending.Go(p.Kill)
		}
		ending.Wait()
		c.launcher.Close()
		c.release()
	})
}
