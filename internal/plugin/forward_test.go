package plugin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/rollcall-dev/rollcall/internal/statuspage/entries"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func managersPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "rollcall-0"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: metricsPort, ContainerPort: 8080}}}}},
	}
}

// TestSecureManager: a manager that has to know who asks is sent the person's token, and only over a port-forward.
func TestSecureManager(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		flags  []string
		person rest.Config
		code   int
		answer string
		fails  error
		want   string
	}
	token, secure := rest.Config{BearerToken: "mine"}, []string{"--metrics-secure"}
	expect.Each(t, map[string]row{
		"with a token": {"the person may", nil, token, http.StatusOK, `{"leads": true, "pods": {"1": [{"state": "in"}]}}`, nil, ""},
		"without the right to the pods": {
			"the manager shows what the person may list", secure, token, http.StatusOK, `{"leads": true, "withheld": "alice may not list pods in namespace prod"}`, nil,
			"the manager rollcall-0 shows you no pods: alice may not list pods in namespace prod",
		},
		"without the right to the page": {"a ClusterRole is missing", secure, token, http.StatusForbidden, "bind a ClusterRole", nil, "rollcall-0 answers: bind a ClusterRole"},
		"without a token":               {"a client certificate is none", secure, rest.Config{}, http.StatusUnauthorized, "send the token", nil, "has no token"},
		"without a page":                {"it is turned off", secure, token, http.StatusNotFound, "404", nil, "statusPage: false"},
		"as another": {
			"the token is not theirs", secure, rest.Config{BearerToken: "mine", Impersonate: rest.ImpersonationConfig{UserName: "bob"}}, http.StatusOK, "{}", nil, "leave out --as",
		},
		"without the right to forward": {"a Role is missing", secure, token, http.StatusOK, "{}", errors.New("forbidden"), "forbidden"},
	}, func(t *testing.T, tc row) {
		manager := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			want := map[bool]string{true: "Bearer mine"}[tc.person.BearerToken != ""]
			if got := r.Header.Get("Authorization"); got != want || r.URL.String() != entries.Path+"?namespace=prod" {
				t.Errorf("it is asked for %s with %q, want %q", r.URL, got, want)
			}
			w.WriteHeader(tc.code)
			fmt.Fprint(w, tc.answer)
		}))
		t.Cleanup(manager.Close)
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "" || tc.flags != nil {
				t.Error("the proxy is asked, which a NetworkPolicy can be in the way of, or sent the token")
			}
			http.Error(w, "Client sent an HTTP request to an HTTPS server.", http.StatusBadRequest)
		}))
		t.Cleanup(proxy.Close)
		pod := managersPod()
		pod.Spec.Containers[0].Args = tc.flags
		c := clusterWith(leaseHeld(now), pod)
		var err error
		c.pods, err = corev1client.NewForConfig(&rest.Config{Host: proxy.URL})
		expect.NoError(t, err)
		c.rest = &tc.person
		c.rest.CAFile = "/nonexistent/ca.crt" // of the API server: the manager has signed its certificate itself
		c.forward = func(_ context.Context, pod *corev1.Pod, port string) (string, error) {
			if pod.Name != "rollcall-0" || port != "8080" {
				t.Errorf("it forwards to port %s of %s", port, pod.Name)
			}
			return manager.Listener.Addr().String(), tc.fails
		}
		answer, err := c.known(t.Context(), &world{lease: leaseHeld(now)}, "prod")
		if tc.want != "" {
			expect.Error(t, tc.reason, err, tc.want)
			return
		}
		expect.NoError(t, err)
		if len(answer.Pods) != 1 {
			t.Errorf("it answers %+v: %s", answer, tc.reason)
		}
	})
}

// TestOnlyTheTokenIsSent: neither a password nor where an answer leads matters to a manager.
func TestOnlyTheTokenIsSent(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s is asked too, with %q", r.URL, r.Header.Get("Authorization"))
	}))
	t.Cleanup(elsewhere.Close)
	manager := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, is := r.BasicAuth(); is {
			t.Errorf("the manager is sent the password %s", password)
		}
		http.Redirect(w, r, elsewhere.URL, http.StatusFound)
	}))
	t.Cleanup(manager.Close)
	for reason, person := range map[string]*rest.Config{
		"the token is for the manager": {BearerToken: "mine"}, "the password is for the API server": {Username: "me", Password: "secret"},
	} {
		c := clusterWith()
		c.rest = person
		c.forward = func(context.Context, *corev1.Pod, string) (string, error) {
			return manager.Listener.Addr().String(), nil
		}
		_, err := c.forwarded(t.Context(), managersPod(), "8080", "/status", nil)
		expect.Error(t, reason, err, "answers 302")
	}
}

// TestForwardByKubectl: kubectl forwards until the context ends, and its error is shown.
func TestForwardByKubectl(t *testing.T) { // not in parallel: it sets PATH
	bin := t.TempDir()
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	write := func(script string) {
		expect.NoError(t, os.WriteFile(filepath.Join(bin, "kubectl"), []byte("#!/bin/sh\n"+script), 0o700))
	}
	c := clusterWith()
	c.options = &options{kubectlFlags: []string{"--context=prod"}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := filepath.Join(bin, "arguments")
	write(`echo "$@" > ` + ended + `; echo "Forwarding from 127.0.0.1:43210 -> 8080"; exec sleep 600`)
	local, err := c.kubectlForward(ctx, managersPod(), "8080")
	cancel()
	expect.NoError(t, err)
	if local != "127.0.0.1:43210" {
		t.Errorf("it forwards %s", local)
	}
	arguments, err := os.ReadFile(ended)
	expect.NoError(t, err)
	if want := "--context=prod -n system port-forward --address=127.0.0.1 pod/rollcall-0 :8080"; strings.TrimSpace(string(arguments)) != want {
		t.Errorf("it runs kubectl %s, want %s", arguments, want)
	}
	write("echo 'error: pods is forbidden' >&2; exit 1")
	_, err = c.kubectlForward(t.Context(), managersPod(), "8080")
	expect.Error(t, "the person lacks the right", err, "error: pods is forbidden")
}
