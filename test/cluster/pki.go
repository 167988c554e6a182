package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	certLifetime = 365 * 24 * time.Hour
	// certBackdate spares a certificate the clocks that go a little slow.
	certBackdate = time.Hour
	groupMasters = "system:masters"
)

// authority issues the certificates of one cluster and keeps them as files, which is what the servers read.
type authority struct {
	dir     string
	cert    *x509.Certificate
	key     *ecdsa.PrivateKey
	certPEM []byte
}

// keyPair is a certificate with its key.
type keyPair struct {
	certFile, keyFile string
	certPEM, keyPEM   []byte
}

func newAuthority(dir string) (*authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the folder for certificates: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the CA's key: %w", err)
	}
	template, err := certTemplate(pkix.Name{CommonName: "rollcall-test-cluster"})
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("making the CA's certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading the CA's certificate: %w", err)
	}
	a := &authority{dir: dir, cert: cert, key: key, certPEM: encodePEM("CERTIFICATE", der)}
	if err := os.WriteFile(a.certFile(), a.certPEM, 0o600); err != nil {
		return nil, fmt.Errorf("writing the CA's certificate: %w", err)
	}
	return a, nil
}

func (a *authority) certFile() string { return filepath.Join(a.dir, "ca.crt") }

// issue makes a certificate for a client or for a server on this machine.
func (a *authority) issue(file string, name pkix.Name) (keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, fmt.Errorf("making the key of %s: %w", file, err)
	}
	template, err := certTemplate(name)
	if err != nil {
		return keyPair{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	template.DNSNames = []string{
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return keyPair{}, fmt.Errorf("making the certificate of %s: %w", file, err)
	}
	pair := keyPair{
		certFile: filepath.Join(a.dir, file+".crt"), certPEM: encodePEM("CERTIFICATE", der),
		keyFile: filepath.Join(a.dir, file+".key"),
	}
	if pair.keyPEM, err = encodeKey(key); err != nil {
		return keyPair{}, err
	}
	if err := os.WriteFile(pair.certFile, pair.certPEM, 0o600); err != nil {
		return keyPair{}, fmt.Errorf("writing the certificate of %s: %w", file, err)
	}
	if err := os.WriteFile(pair.keyFile, pair.keyPEM, 0o600); err != nil {
		return keyPair{}, fmt.Errorf("writing the key of %s: %w", file, err)
	}
	return pair, nil
}

// tlsConfig is that of a client with this certificate.
func (a *authority) tlsConfig(pair keyPair) (*tls.Config, error) {
	cert, err := tls.X509KeyPair(pair.certPEM, pair.keyPEM)
	if err != nil {
		return nil, fmt.Errorf("reading the client's certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	return &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: roots, MinVersion: tls.VersionTLS12}, nil
}

// restConfig is that of a client with this certificate, with no throttle of its own.
func (a *authority) restConfig(url string, pair keyPair) *rest.Config {
	return &rest.Config{
		Host: url,
		TLSClientConfig: rest.TLSClientConfig{
			CAData: a.certPEM, CertData: pair.certPEM, KeyData: pair.keyPEM,
		},
		QPS: -1,
	}
}

// writeKubeconfig writes a self-contained kubeconfig for a client with this certificate.
func (a *authority) writeKubeconfig(path, url, user string, pair keyPair) error {
	const name = "rollcall"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: a.certPEM}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: pair.certPEM, ClientKeyData: pair.keyPEM}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: user}
	config.CurrentContext = name
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("writing the kubeconfig of %s: %w", user, err)
	}
	return nil
}

func certTemplate(name pkix.Name) (*x509.Certificate, error) {
	const serialBits = 127
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits))
	if err != nil {
		return nil, fmt.Errorf("making a serial number: %w", err)
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial, Subject: name,
		NotBefore: now.Add(-certBackdate), NotAfter: now.Add(certLifetime),
	}, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	return encodePEM("EC PRIVATE KEY", der), nil
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
