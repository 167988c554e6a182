// Package pki makes a certificate authority for tests and the certificates of servers and clients on this machine, as
// files.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	certLifetime = 365 * 24 * time.Hour
	// certBackdate spares a certificate the clocks that go a little slow.
	certBackdate = time.Hour
)

// Authority issues certificates and keeps them as files, which is what servers read.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// CertFile and CertPEM are its own certificate.
	CertFile string
	CertPEM  []byte
}

// KeyPair is a certificate with its key.
type KeyPair struct {
	CertFile, KeyFile string
	CertPEM, KeyPEM   []byte
}

// NewAuthority makes an authority of this name, whose files are in dir.
func NewAuthority(dir, name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the CA's key: %w", err)
	}
	own, err := cert.NewSelfSignedCACert(cert.Config{CommonName: name, NotBefore: time.Now().Add(-certBackdate)}, key)
	if err != nil {
		return nil, fmt.Errorf("making the CA's certificate: %w", err)
	}
	a := &Authority{dir: dir, cert: own, key: key, CertFile: filepath.Join(dir, "ca.crt")}
	if a.CertPEM, err = cert.EncodeCertificates(own); err != nil {
		return nil, fmt.Errorf("encoding the CA's certificate: %w", err)
	}
	if err := cert.WriteCert(a.CertFile, a.CertPEM); err != nil {
		return nil, fmt.Errorf("writing the CA's certificate: %w", err)
	}
	return a, nil
}

// Issue makes a certificate for a client or for a server on this machine, in <file>.crt and <file>.key. Besides
// localhost, 127.0.0.1 and ::1 it is good for the names and addresses given.
func (a *Authority) Issue(file string, name pkix.Name, names ...string) (KeyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return KeyPair{}, fmt.Errorf("making the key of %s: %w", file, err)
	}
	template := &x509.Certificate{
		Subject: name, NotBefore: time.Now().Add(-certBackdate), NotAfter: time.Now().Add(certLifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	for _, name := range names {
		if address := net.ParseIP(name); address != nil {
			template.IPAddresses = append(template.IPAddresses, address)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return KeyPair{}, fmt.Errorf("making the certificate of %s: %w", file, err)
	}
	pair := KeyPair{
		CertFile: filepath.Join(a.dir, file+".crt"), KeyFile: filepath.Join(a.dir, file+".key"),
		CertPEM: pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der}),
	}
	if pair.KeyPEM, err = keyutil.MarshalPrivateKeyToPEM(key); err != nil {
		return KeyPair{}, fmt.Errorf("encoding the key of %s: %w", file, err)
	}
	if err := errors.Join(cert.WriteCert(pair.CertFile, pair.CertPEM), keyutil.WriteKey(pair.KeyFile, pair.KeyPEM)); err != nil {
		return KeyPair{}, fmt.Errorf("writing the certificate of %s: %w", file, err)
	}
	return pair, nil
}

// TLSConfig is that of a client with this certificate.
func (a *Authority) TLSConfig(pair KeyPair) (*tls.Config, error) {
	own, err := tls.X509KeyPair(pair.CertPEM, pair.KeyPEM)
	if err != nil {
		return nil, fmt.Errorf("reading the client's certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	return &tls.Config{Certificates: []tls.Certificate{own}, RootCAs: roots, MinVersion: tls.VersionTLS12}, nil
}

// TLS is what a server proves itself with, and a client that it lets in.
type TLS struct {
	Authority       *Authority
	Serving, Client KeyPair
}

// NewTLS makes an authority whose files are in dir, and a certificate for a server and for a client. The server's is good for
// the names given too.
func NewTLS(dir string, server, client pkix.Name, dnsNames ...string) (*TLS, error) {
	authority, err := NewAuthority(dir, "rollcall-test-"+server.CommonName)
	if err != nil {
		return nil, err
	}
	t := &TLS{Authority: authority}
	if t.Serving, err = authority.Issue("serving", server, dnsNames...); err != nil {
		return nil, err
	}
	t.Client, err = authority.Issue("client", client)
	return t, err
}

// Files are what the client is configured with.
func (t *TLS) Files() (ca, cert, key string) {
	return t.Authority.CertFile, t.Client.CertFile, t.Client.KeyFile
}

// Config is that of the client.
func (t *TLS) Config() (*tls.Config, error) { return t.Authority.TLSConfig(t.Client) }
