package cluster

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"
)

const (
	probeTimeout = 5 * time.Second
	// clientQPS keeps the clients of the control plane out of the way: the API server's fairness is the throttle.
	clientQPS, clientBurst = "1000", "2000"
	// nodeGracePeriod outlasts any pause of a slow machine.
	nodeGracePeriod = "1h"
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
	free, err := freePorts(ctx, len(fields))
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
	p, err := c.launch(command{name: etcdServer, path: c.binaries[etcdServer], args: []string{
		"--name=test",
		"--data-dir=" + filepath.Join(c.dir, "etcd"),
		"--listen-client-urls=" + clientURL,
		"--advertise-client-urls=" + clientURL,
		"--listen-peer-urls=" + peerURL,
		"--initial-advertise-peer-urls=" + peerURL,
		"--initial-cluster=test=" + peerURL,
		"--cert-file=" + c.serving.certFile,
		"--key-file=" + c.serving.keyFile,
		"--trusted-ca-file=" + c.authority.certFile(),
		"--client-cert-auth",
		// Nothing here has to survive a power cut, and a sync is what etcd waits for most.
		"--unsafe-no-fsync",
		"--quota-backend-bytes=8589934592",
		"--log-level=warn",
	}})
	if err != nil {
		return err
	}
	return p.waitReady(ctx, c.probe(clientURL+"/health"))
}

func (c *Cluster) apiServerCommand() command {
	serviceAccountKey := c.serviceAccounts.keyFile
	return command{name: apiServer, path: c.binaries[apiServer], args: []string{
		"--etcd-servers=" + localURL("https", c.ports.etcdClient),
		"--etcd-cafile=" + c.authority.certFile(),
		"--etcd-certfile=" + c.serving.certFile,
		"--etcd-keyfile=" + c.serving.keyFile,
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", c.ports.apiServer),
		"--tls-cert-file=" + c.serving.certFile,
		"--tls-private-key-file=" + c.serving.keyFile,
		"--client-ca-file=" + c.authority.certFile(),
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + serviceAccountKey,
		"--service-account-signing-key-file=" + serviceAccountKey,
		"--service-cluster-ip-range=10.96.0.0/16",
		"--allow-privileged=true",
		// Endpoints must not have loopback addresses, so the Service kubernetes gets none.
		"--endpoint-reconciler-type=none",
		// Without it the others ask for this file again and again.
		"--requestheader-client-ca-file=" + c.authority.certFile(),
		"--requestheader-allowed-names=nobody",
		"--profiling=false",
	}}
}

func (c *Cluster) startAPIServer(ctx context.Context) error {
	p, err := c.launch(c.apiServerCommand())
	if err != nil {
		return err
	}
	return p.waitReady(ctx, c.probe(c.config.Host+"/readyz"))
}

func (c *Cluster) startControllerManager(ctx context.Context) error {
	kubeconfig, err := c.clientKubeconfig(controllerManager)
	if err != nil {
		return err
	}
	p, err := c.launch(command{name: controllerManager, path: c.binaries[controllerManager], args: []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", c.ports.controllerManager),
		"--tls-cert-file=" + c.serving.certFile,
		"--tls-private-key-file=" + c.serving.keyFile,
		"--root-ca-file=" + c.authority.certFile(),
		"--service-account-private-key-file=" + c.serviceAccounts.keyFile,
		"--use-service-account-credentials=true",
		"--leader-elect=false",
		"--node-monitor-grace-period=" + nodeGracePeriod,
		"--kube-api-qps=" + clientQPS,
		"--kube-api-burst=" + clientBurst,
		"--profiling=false",
	}})
	if err != nil {
		return err
	}
	return p.waitReady(ctx, c.probe(localURL("https", c.ports.controllerManager)+"/healthz"))
}

func (c *Cluster) startScheduler(ctx context.Context) error {
	kubeconfig, err := c.clientKubeconfig(schedulerServer)
	if err != nil {
		return err
	}
	p, err := c.launch(command{name: schedulerServer, path: c.binaries[schedulerServer], args: []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", c.ports.scheduler),
		"--tls-cert-file=" + c.serving.certFile,
		"--tls-private-key-file=" + c.serving.keyFile,
		"--leader-elect=false",
		"--kube-api-qps=" + clientQPS,
		"--kube-api-burst=" + clientBurst,
		"--profiling=false",
	}})
	if err != nil {
		return err
	}
	return p.waitReady(ctx, c.probe(localURL("https", c.ports.scheduler)+"/healthz"))
}

// clientKubeconfig writes the kubeconfig of the system user of a server and returns its path.
func (c *Cluster) clientKubeconfig(name string, groups ...string) (string, error) {
	pair, err := c.authority.issue(name, pkix.Name{CommonName: "system:" + name, Organization: groups})
	if err != nil {
		return "", err
	}
	path := filepath.Join(c.authority.dir, name+".kubeconfig")
	if err := c.authority.writeKubeconfig(path, c.config.Host, name, pair); err != nil {
		return "", err
	}
	return path, nil
}

// probe returns a check that passes when the address answers 200.
func (c *Cluster) probe(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return fmt.Errorf("asking %s: %w", url, err)
		}
		response, err := c.http.Do(request)
		if err != nil {
			return fmt.Errorf("asking for readiness: %w", err)
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return errors.New(url + " answers " + response.Status)
		}
		return nil
	}
}
