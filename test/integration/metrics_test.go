package integration

import (
	"crypto/tls"
	"errors"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
		if err := env.client.Create(t.Context(), object); !apierrors.IsAlreadyExists(err) { // by TestSecurePage
			expect.NoError(t, err)
		}
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
			code, body := getSecurely(t, m, "/metrics", tc.token)
			if code != tc.code || !strings.Contains(body, tc.has) {
				t.Errorf("%s: got %d and %.200q, want %d with %q", tc.reason, code, body, tc.code, tc.has)
			}
		}
	}
}

// TestSecurePage: the page shows each reader the pods of the namespaces in which the API server lets them list pods, and is on by default.
func TestSecurePage(t *testing.T) {
	t.Parallel()
	const name, others, shop = "secure-page", "secure-page-others", "secure-page-shop"
	for _, object := range readComponents(t, "prometheus/metrics_role*") {
		if err := env.client.Create(t.Context(), object); !apierrors.IsAlreadyExists(err) {
			expect.NoError(t, err)
		}
	}
	at := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	expect.NoError(t, env.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: at("", shop)}))
	token := func(name string) string {
		account, request := &corev1.ServiceAccount{ObjectMeta: at(shop, name)}, &authenticationv1.TokenRequest{}
		expect.NoError(t, env.client.Create(t.Context(), account))
		expect.NoError(t, env.client.SubResource("token").Create(t.Context(), account, request))
		return request.Status.Token
	}
	tenant, operator := token(name), token(others)
	reads := []rbacv1.PolicyRule{{NonResourceURLs: []string{"/status.json"}, Verbs: []string{"get"}}}
	lists := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}}}
	of := func(name string) []rbacv1.Subject {
		return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: shop, Name: name}}
	}
	for _, object := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: at("", name), Rules: reads},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: at("", name), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: append(of(name), of(others)...),
		},
		&rbacv1.ClusterRole{ObjectMeta: at("", others), Rules: lists},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: at("", others), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: others}, Subjects: of(others),
		},
		&rbacv1.Role{ObjectMeta: at(shop, name), Rules: lists},
		&rbacv1.RoleBinding{
			ObjectMeta: at(shop, name), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}, Subjects: of(name),
		},
	} {
		expect.NoError(t, env.client.Create(t.Context(), object))
	}
	m := startManager(t, name, defaultConfiguration(env.registry.URL(), name+"-pods"), append(elect(t, name), "--metrics-secure")...)
	for _, tc := range []struct {
		reason, token, query string
		code                 int
		withheld             string
	}{
		{"the manager's own account has no right to read", env.account.BearerToken, "", http.StatusForbidden, ""},
		{"an operator may list pods everywhere", operator, "", http.StatusOK, ""},
		{"an operator may choose a namespace", operator, "?namespace=" + shop, http.StatusOK, ""},
		{"a tenant may list their own pods", tenant, "?namespace=" + shop, http.StatusOK, ""},
		{"a tenant may not list another's pods", tenant, "?namespace=kube-system", http.StatusOK, "may not list pods in namespace kube-system"},
		{"a tenant may not list all pods", tenant, "", http.StatusOK, "may not list pods in all namespaces"},
	} {
		code, body := getSecurely(t, m, "/status.json"+tc.query, tc.token)
		shown := !strings.Contains(body, `"withheld"`)
		if code != tc.code || !strings.Contains(body, tc.withheld) || code == http.StatusOK && shown != (tc.withheld == "") {
			t.Errorf("%s: got %d and %.300q, want %d with %q", tc.reason, code, body, tc.code, tc.withheld)
		}
	}
}

func getSecurely(t *testing.T, m *rollcall, path, token string) (code int, body string) {
	t.Helper()
	url, err := m.URL(manager.MetricsServer, path)
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
