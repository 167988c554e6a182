package integration

import (
	"crypto/tls"
	"errors"
	"net/http"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/test/harness/account"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/manager"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
)

// TestSecureMetrics: with --metrics-secure only those read the metrics whom the API server lets, also of a manager that does not
// lead.
func TestSecureMetrics(t *testing.T) {
	t.Parallel()
	const name = "secure-metrics"
	for _, object := range readComponents(t, "prometheus/*role*") {
		expect.NoError(t, env.client.Create(t.Context(), object))
	}
	reader, err := account.Install(t.Context(), env.cluster.Config(), in(name))
	expect.NoError(t, err)
	expect.NoError(t, env.client.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "rollcall-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: name, Name: "rollcall"}},
	}))
	config, flags := defaultConfiguration(env.registry.URL(), name+"-pods"), append(elect(t, name), "--metrics-secure")
	leads := startManager(t, name, config, flags...)
	waits := startManager(t, name+"-2", config, flags...)
	for _, m := range []*rollcall{leads, waits} {
		for _, tc := range []struct {
			reason, token string
			code          int
			has           string
		}{
			{"without a token it is not known who asks", "", http.StatusUnauthorized, "send the token"},
			{"the API server rejects the token", "made-up", http.StatusUnauthorized, "does not know this token"},
			{"the manager's own account has no right to read", env.account.BearerToken, http.StatusForbidden, "may not get /metrics"},
			{"the reader has the role that ships", reader.BearerToken, http.StatusOK, "rollcall_"},
		} {
			code, body := getSecurely(t, m, tc.token)
			if code != tc.code || !strings.Contains(body, tc.has) {
				t.Errorf("%s: got %d and %.200q, want %d with %q", tc.reason, code, body, tc.code, tc.has)
			}
		}
	}
}

func getSecurely(t *testing.T, m *rollcall, token string) (code int, body string) {
	t.Helper()
	url, err := m.URL(manager.MetricsServer, "/metrics")
	expect.NoError(t, err)
	header := http.Header{}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	server := registries.Client{URL: strings.Replace(url, "http://", "https://", 1), HTTP: &http.Client{Transport: transport}, Header: header}
	text, err := server.Do(t.Context(), http.MethodGet, "", nil)
	if refused := new(registries.StatusError); errors.As(err, &refused) {
		return refused.Code, err.Error()
	}
	expect.NoError(t, err)
	return http.StatusOK, string(text)
}
