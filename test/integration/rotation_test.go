package integration

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"strings"
	"sync"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
	"github.com/rollcall-dev/rollcall/test/harness/mount"
	"github.com/rollcall-dev/rollcall/test/harness/pki"
)

// doorkeeper knows which token is good, and can lock everybody out who comes with another one.
type doorkeeper struct {
	mu     sync.Mutex
	good   string
	locked bool
}

// Wants has only this token be good from now on. Locked: a client that shows another one has to come back in an hour.
func (d *doorkeeper) Wants(token string, locked bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.good, d.locked = token, locked
}

func (d *doorkeeper) authorize(token string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return token == d.good
}

func (d *doorkeeper) around(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		d.mu.Lock()
		lockOut := d.locked && token != d.good
		d.mu.Unlock()
		if !lockOut {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Retry-After", "3600")
		http.Error(w, "too many requests with a bad token", http.StatusTooManyRequests)
	})
}

// TestRotatedToken: what waits since the token is no longer good goes on as soon as its file holds the new one, with no
// restart; also where the registry has said to come back in an hour. A pod that waits for nothing costs no call then. A
// file that is wrong changes nothing.
func TestRotatedToken(t *testing.T) {
	t.Parallel()
	styles := []style{labels, mixed}
	door, tokens := &doorkeeper{}, []string{env.credential(), env.credential(), env.credential()}
	door.Wants(tokens[0], false)
	server := startRegistry(t, registryOptions{authorize: door.authorize, around: door.around})
	mounted := mount.New(t, map[string]string{"token": tokens[0] + "\n"})
	config := defaultConfiguration(server.URL(), namespacesOf("rotated-token", styles)...)
	config["registry"].(map[string]any)["auth"] = map[string]any{"tokenFile": mounted.Path("token")}
	m := startManager(t, "rotated-token", config)
	all := newScenarios(t, m, server, "rotated-token", styles)
	all.begin(inPlace, replicas(2))

	door.Wants(tokens[1], false)
	for _, s := range all {
		s.UpdateImage("nginx:2")
		pod := s.AwaitPodIn(appspub.LifecycleStatePreparingUpdate)
		s.ExpectEvent(pod, corev1.EventTypeWarning, "RegistryRefused", "hook inPlaceUpdate waits", "401")
	}
	mounted.Rotate(map[string]string{"token": tokens[1] + "\n"})
	all.each((*scenario).ExpectSteady)

	door.Wants(tokens[2], true)
	kept := map[*scenario][]fakeregistry.Call{}
	for _, s := range all {
		pods := s.Pods()
		kept[s] = server.Answers(s.ns, string(pods[1].UID))
		s.DeleteByLabel(pods[0])
		pod := s.AwaitPodIn(appspub.LifecycleStatePreparingDelete)
		s.ExpectEvent(pod, corev1.EventTypeWarning, "RegistryUnavailable", "hook preDelete waits", "429")
	}
	mounted.Rotate(map[string]string{"token": tokens[2] + "\n"})
	for _, s := range all {
		s.ExpectSteady() // an hour is more than anything here waits
		made := server.Answers(s.ns, kept[s][0].Instance.UID)[len(kept[s]):]
		s.Expect(len(made) == 0, "calls were made for a pod that is where it was: %v", made)
	}

	mounted.Rotate(map[string]string{"token": tokens[1] + " " + tokens[2] + "\n"})
	all[0].ExpectMetric("rollcall_config_last_reload_successful 0")
	all[0].ExpectLogged("registry.auth.tokenFile", "no white space within it")
	all.each(func(s *scenario) { s.ScaleTo(3) })
	mounted.Rotate(map[string]string{"token": tokens[2] + "\n"})
	all[0].ExpectMetric("rollcall_config_last_reload_successful 1")
	all.finish()
	all[0].Expect(strings.Count(m.Log(), `"msg":"starting"`) == 1, "the manager was started again")
}

// TestRotatedCertificates: the same where the registry comes with a certificate of another authority, and where it no longer
// trusts that of the client.
func TestRotatedCertificates(t *testing.T) {
	t.Parallel()
	styles := []style{labels, preNormal}
	var made [3]*pki.TLS
	for i := range made {
		var err error
		made[i], err = pki.NewTLS(t.TempDir(), pkix.Name{CommonName: "registry"}, pkix.Name{CommonName: "rollcall"})
		expect.NoError(t, err)
	}
	first, second, third := made[0], made[1], made[2]
	server := startRegistry(t, registryOptions{tls: serving(t, first, first)})
	mounted := mount.New(t, filesOf(first, first))
	config := defaultConfiguration(server.URL(), namespacesOf("rotated-tls", styles)...)
	config["registry"].(map[string]any)["tls"] = map[string]any{
		"caFile": mounted.Path("ca.crt"), "certFile": mounted.Path("tls.crt"), "keyFile": mounted.Path("tls.key"),
	}
	m := startManager(t, "rotated-tls", config)
	all := newScenarios(t, m, server, "rotated-tls", styles)
	all.begin(replicas(1))

	for i, now := range []struct {
		servers, clients *pki.TLS
		complaint        string
	}{
		{second, second, "tls.caFile"},
		{second, third, "remote error: tls"},
	} {
		server.Down() // with all its connections
		server.tls = serving(t, now.servers, now.clients)
		expect.NoError(t, server.Up())
		for _, s := range all {
			s.Scale(int32(i + 2))
			s.ExpectWarning(now.complaint)
			s.Expect(len(server.serving(t, s.ns)) == i+1, "a pod was registered that could not be")
		}
		mounted.Rotate(filesOf(now.servers, now.clients))
		all.each((*scenario).ExpectSteady)
	}
	all.finish()
	all[0].Expect(strings.Count(m.Log(), `"msg":"starting"`) == 1, "the manager was started again")
}

// serving is what a server needs to prove itself, and to let in those whom the other's authority vouches for.
func serving(t *testing.T, server, clients *pki.TLS) *tls.Config {
	t.Helper()
	cert, err := tls.X509KeyPair(server.Serving.CertPEM, server.Serving.KeyPEM)
	expect.NoError(t, err)
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(clients.Authority.CertPEM)
	return &tls.Config{
		Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12,
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: trusted,
	}
}

// filesOf are those of a client that trusts the server's authority, and has a certificate by the other.
func filesOf(server, client *pki.TLS) map[string]string {
	return map[string]string{
		"ca.crt": string(server.Authority.CertPEM), "tls.crt": string(client.Client.CertPEM), "tls.key": string(client.Client.KeyPEM),
	}
}
