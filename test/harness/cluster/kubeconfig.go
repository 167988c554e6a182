package cluster

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/rollcall-dev/rollcall/test/harness/pki"
)

const groupMasters = "system:masters"

// restConfig is that of a client with this certificate, with no throttle of its own.
func restConfig(url string, a *pki.Authority, pair pki.KeyPair) *rest.Config {
	return &rest.Config{
		Host: url,
		TLSClientConfig: rest.TLSClientConfig{
			CAData: a.CertPEM, CertData: pair.CertPEM, KeyData: pair.KeyPEM,
		},
		QPS: -1,
	}
}

// writeKubeconfig writes a self-contained kubeconfig for a client with this certificate.
func writeKubeconfig(path, url, user string, a *pki.Authority, pair pki.KeyPair) error {
	const name = "rollcall"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: a.CertPEM}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: pair.CertPEM, ClientKeyData: pair.KeyPEM}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: user}
	config.CurrentContext = name
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("writing the kubeconfig of %s: %w", user, err)
	}
	return nil
}
