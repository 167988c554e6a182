package main

import (
	"crypto/tls"
	"crypto/x509/pkix"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/pki"
)

// What the process gets that plays a program in the image: the image's files, and whom to call.
const (
	envRoot = "ROLLCALL_TEST_ROOT"
	envURL  = "ROLLCALL_TEST_URL"
)

// TestTrust: a program in the image that is given no CAs verifies a server by those of the image, and of a company beside them.
//
//nolint:tparallel // the process in the image runs it again, alone
func TestTrust(t *testing.T) {
	if root := os.Getenv(envRoot); root != "" {
		expect.NoError(t, syscall.Chroot(root))
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, os.Getenv(envURL), http.NoBody)
		expect.NoError(t, err)
		response, err := http.DefaultClient.Do(request)
		expect.NoError(t, err)
		expect.NoError(t, response.Body.Close())
		return
	}
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("NOT TESTED: a process that lives in the image's files takes root")
	}
	server, authority := secureServer(t)
	stranger, err := pki.NewAuthority(t.TempDir(), "stranger")
	expect.NoError(t, err)
	for name, tc := range map[string]struct {
		reason string
		cas    []byte
		beside []byte // a file that is mounted
		fails  string
	}{
		"the image's CA":     {"a public registry", append(stranger.CertPEM, authority.CertPEM...), nil, ""},
		"a company's CA":     {"it adds to those of the image", stranger.CertPEM, authority.CertPEM, ""},
		"the CA of somebody": {"nothing else is trusted", stranger.CertPEM, nil, "certificate signed by unknown authority"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := unpacked(t, tc.cas)
			if tc.beside != nil {
				expect.NoError(t, os.WriteFile(filepath.Join(root, "etc/ssl/certs/company.crt"), tc.beside, 0o600))
			}
			program, err := os.Executable()
			expect.NoError(t, err)
			child := exec.CommandContext(t.Context(), program, "-test.run=^TestTrust$", "-test.count=1")
			child.Env = []string{envRoot + "=" + root, envURL + "=" + server}
			said, err := child.CombinedOutput()
			if (err != nil) != (tc.fails != "") || !strings.Contains(string(said), tc.fails) {
				t.Errorf("want an error with %q (%s), got %v:\n%s", tc.fails, tc.reason, err, said)
			}
		})
	}
}

// secureServer returns the URL of a server, and the CA that signed its certificate.
func secureServer(t *testing.T) (string, *pki.Authority) {
	t.Helper()
	authority, err := pki.NewAuthority(t.TempDir(), "ours")
	expect.NoError(t, err)
	pair, err := authority.Issue("serving", pkix.Name{CommonName: "registry"})
	expect.NoError(t, err)
	certificate, err := tls.X509KeyPair(pair.CertPEM, pair.KeyPEM)
	expect.NoError(t, err)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL, authority
}

// unpacked writes the layout with these CAs, and returns a folder with the files of its image.
func unpacked(t *testing.T, cas []byte) string {
	t.Helper()
	const platform = "linux/amd64"
	dir, root := filepath.Join(t.TempDir(), "image"), t.TempDir()
	manager, list := filepath.Join(dir+"-binaries", platform, "manager"), filepath.Join(t.TempDir(), "cas")
	expect.NoError(t, os.MkdirAll(filepath.Dir(manager), 0o755))
	expect.NoError(t, os.WriteFile(manager, nil, 0o600))
	expect.NoError(t, os.WriteFile(list, cas, 0o600))
	expect.NoError(t, write(dir, list, []string{platform}))
	whole, err := layout.ImageIndexFromPath(dir)
	expect.NoError(t, err)
	for name, content := range filesOf(t, imageOf(t, whole, 0)) {
		path := filepath.Join(root, name)
		expect.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		expect.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	return root
}
