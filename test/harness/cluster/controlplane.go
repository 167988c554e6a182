package cluster

import (
	"cmp"
	"context"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/account"
	"github.com/rollcall-dev/rollcall/test/harness/cluster/servers"
	"github.com/rollcall-dev/rollcall/test/harness/process"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
)

const (
	probeTimeout = 5 * time.Second
	// clientQPS keeps the clients of the control plane out of the way: the API server's fairness is the throttle.
	clientQPS, clientBurst = "1000", "2000"
	// nodeGracePeriod outlasts any pause of a slow machine.
	nodeGracePeriod = time.Hour
)

// ports of the servers.
type ports struct {
	etcdClient, etcdPeer, apiServer, controllerManager, scheduler int
	kruiseWebhook, kruiseHealth, kruiseMetrics, kruiseProfile     int
}

func choosePorts(ctx context.Context) (ports, error) {
	var p ports
	fields := []*int{
		&p.etcdClient, &p.etcdPeer, &p.apiServer, &p.controllerManager, &p.scheduler,
		&p.kruiseWebhook, &p.kruiseHealth, &p.kruiseMetrics, &p.kruiseProfile,
	}
	free, err := process.FreePorts(ctx, len(fields))
	if err != nil {
		return ports{}, err
	}
	for i, field := range fields {
		*field = free[i]
	}
	return p, nil
}

func localURL(scheme string, port int) string { return fmt.Sprintf("%s://127.0.0.1:%d", scheme, port) }

func (c *Cluster) startEtcd(ctx context.Context) error {
	clientURL, peerURL := localURL("https", c.ports.etcdClient), localURL("http", c.ports.etcdPeer)
	p, err := c.launch(process.Command{Name: servers.Etcd, Path: c.binaries[servers.Etcd], Args: []string{
		"--name=test",
		"--data-dir=" + filepath.Join(c.dir, "etcd"),
		"--listen-client-urls=" + clientURL,
		"--advertise-client-urls=" + clientURL,
		"--listen-peer-urls=" + peerURL,
		"--initial-advertise-peer-urls=" + peerURL,
		"--initial-cluster=test=" + peerURL,
		"--cert-file=" + c.serving.CertFile,
		"--key-file=" + c.serving.KeyFile,
		"--trusted-ca-file=" + c.authority.CertFile,
		"--client-cert-auth",
		// Nothing here has to survive a power cut, and a sync is what etcd waits for most.
		"--unsafe-no-fsync",
		"--quota-backend-bytes=8589934592",
		"--log-level=warn",
	}})
	if err != nil {
		return err
	}
	return p.WaitReady(ctx, c.probe(clientURL+"/health"))
}

// askEtcd makes a call of etcd's key-value API, as its gateway has it.
func (c *Cluster) askEtcd(ctx context.Context, call, body string, answer any) error {
	etcd := &registries.Client{URL: localURL("https", c.ports.etcdClient), HTTP: c.http}
	text, err := etcd.Do(ctx, http.MethodPost, "/v3/kv/"+call, []byte(body))
	if err != nil {
		return fmt.Errorf("asking etcd: %w", err)
	}
	return json.Unmarshal(text, answer)
}

func (c *Cluster) apiServerCommand() process.Command {
	serviceAccountKey := c.serviceAccounts.KeyFile
	return process.Command{Name: servers.APIServer, Path: c.binaries[servers.APIServer], Args: []string{
		"--etcd-servers=" + localURL("https", c.ports.etcdClient),
		"--etcd-cafile=" + c.authority.CertFile,
		"--etcd-certfile=" + c.serving.CertFile,
		"--etcd-keyfile=" + c.serving.KeyFile,
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", c.ports.apiServer),
		"--tls-cert-file=" + c.serving.CertFile,
		"--tls-private-key-file=" + c.serving.KeyFile,
		"--client-ca-file=" + c.authority.CertFile,
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + serviceAccountKey,
		"--service-account-signing-key-file=" + serviceAccountKey,
		"--service-cluster-ip-range=10.96.0.0/16",
		// Without a kube-proxy, calls to a webhook's Service go straight to one of its pods. Of a Service with an external name,
		// as TestEvictions has it, the API server would find none.
		fmt.Sprintf("--enable-aggregator-routing=%t", c.opts.WithoutNodes),
		// The names of nodes are in no DNS.
		"--kubelet-preferred-address-types=InternalIP",
		"--allow-privileged=true",
		// Endpoints must not have loopback addresses, so the Service kubernetes gets none.
		"--endpoint-reconciler-type=none",
		// Without it the others ask for this file again and again.
		"--requestheader-client-ca-file=" + c.authority.CertFile,
		"--requestheader-allowed-names=none",
		"--profiling=false",
	}}
}

func (c *Cluster) startAPIServer(ctx context.Context) error {
	p, err := c.launch(c.apiServerCommand())
	if err != nil {
		return err
	}
	return p.WaitReady(ctx, c.probe(c.config.Host+"/readyz"))
}

func (c *Cluster) startControllerManager(ctx context.Context) error {
	return c.startController(ctx, servers.ControllerManager, c.ports.controllerManager,
		"--root-ca-file="+c.authority.CertFile,
		"--service-account-private-key-file="+c.serviceAccounts.KeyFile,
		"--use-service-account-credentials=true",
		"--node-monitor-grace-period="+cmp.Or(c.opts.NodeGracePeriod, nodeGracePeriod).String())
}

func (c *Cluster) startScheduler(ctx context.Context) error {
	return c.startController(ctx, servers.Scheduler, c.ports.scheduler)
}

// startController starts a controller of Kubernetes' own, with further arguments.
func (c *Cluster) startController(ctx context.Context, name string, port int, args ...string) error {
	kubeconfig, err := c.clientKubeconfig(name)
	if err != nil {
		return err
	}
	p, err := c.launch(process.Command{Name: name, Path: c.binaries[name], Args: append([]string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + c.serving.CertFile,
		"--tls-private-key-file=" + c.serving.KeyFile,
		"--leader-elect=false",
		"--kube-api-qps=" + clientQPS,
		"--kube-api-burst=" + clientBurst,
		"--profiling=false",
	}, args...)})
	if err != nil {
		return err
	}
	return p.WaitReady(ctx, c.probe(localURL("https", port)+"/healthz"))
}

// clientKubeconfig writes the kubeconfig of the system user of a server and returns its path.
func (c *Cluster) clientKubeconfig(name string, groups ...string) (string, error) {
	pair, err := c.authority.Issue(name, pkix.Name{CommonName: "system:" + name, Organization: groups})
	if err != nil {
		return "", err
	}
	path := filepath.Join(c.dir, pkiDir, name+".kubeconfig")
	if err := account.WriteKubeconfig(path, c.clientOf(pair)); err != nil {
		return "", err
	}
	return path, nil
}

// probe returns a check that passes when the address answers 200.
func (c *Cluster) probe(url string) func(context.Context) error {
	server := &registries.Client{URL: url, HTTP: c.http}
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		_, err := server.Do(ctx, http.MethodGet, "", nil)
		return err
	}
}
