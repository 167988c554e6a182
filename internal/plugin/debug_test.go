package plugin

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// planted is a configuration with a secret in each place that can have one.
const planted = `
cluster: test
registries:
- name: main
  default: true
  driver: consul
  endpoint: "https://admin:PLANTED-userinfo@consul:8500"
  auth: {tokenFile: /etc/rollcall/auth/token}
  options: {password: PLANTED-password, datacenter: PLANTED-odd-name, headers: {X-Team: [PLANTED-header]}, retries: 3}
- name: other
  driver: eureka
  endpoint: "https://a:8761,https://b:PLANTED-second@b:8761"
hooks: {owned: [example.com/*]}
`

const plantedLog = `{"level":"info","msg":"registered","pod":"web-1"}
{"msg":"refused","headers":{"X-Consul-Token":["PLANTED-of a header"],"Authorization":["Basic PLANTED-basic="]},"status":403}
calling https://u:PLANTED-url@registry/v1 with Authorization: Bearer PLANTED-bearer
Authorization: Negotiate PLANTED-negotiate
{"msg":"quoted","body":"{\"accessToken\":\"PLANTED-escaped\"}"}
sent Bearer PLANTED-loose, and PLANTED-second was refused
the server echoed PLANTED-password and PLANTED-odd-name, and PLANTED%2Fenv%2Fslash
GET /nacos/v1?accessToken=PLANTED-query&x=1 password='PLANTED-quoted' token: /PLANTED/as-a-key-that/begins-with-a-slash
got eyJhbGciOiJPLANTED.eyJzdWIiOiJPLANTED.PLANTED-signature
-----BEGIN RSA PRIVATE KEY-----
PLANTED-pem
-----END RSA PRIVATE KEY-----
the last line
`

// debugged runs the command on an installation with secrets, and returns what it prints.
func debugged(t *testing.T, without ...string) (string, error) {
	t.Helper()
	pod := scene{
		state: appspub.LifecycleStatePreparingDelete, ready: true, record: lifecycle.InService,
		labels: map[string]string{"app": "web", "example.com/delete": "true"},
	}.pod(t)
	pod.Annotations["example.com/credentials"] = "PLANTED-annotation-of-a-pod"
	manager := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "system", Name: "rollcall-0",
			Labels: map[string]string{"app.kubernetes.io/name": "rollcall", "app.kubernetes.io/component": "manager"},
			Annotations: map[string]string{
				"vault.example.com/token": "PLANTED-annotation", corev1.LastAppliedConfigAnnotation: `{"env":"PLANTED-applied"}`,
			},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "manager", Image: "rollcall:v9", Args: []string{"--leader-elect", "--header=Authorization: Bearer PLANTED-argument"},
			Env: []corev1.EnvVar{
				{Name: "HTTPS_PROXY", Value: "http://u:PLANTED-proxy@proxy:3128"}, {Name: "ODD", Value: "PLANTED/env/slash"},
				{Name: "FROM", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "of-a-secret"}}},
			},
			Ports: []corev1.ContainerPort{{Name: metricsPort, ContainerPort: 8080}},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "manager", RestartCount: 1}}},
	}
	cluster, _ := installed(t, planted, pod, theCloneSet(t, cloneSetText), leaseHeld(now), manager,
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "rollcall-auth"}, Data: map[string][]byte{"token": []byte("PLANTED-secret")},
		},
		&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kruise-system", Name: "kruise"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Image: "kruise-manager:v1.9"}}},
		},
		&eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "e"}, ReportingController: reporter, Type: "Warning",
			Reason: "RegistryUnavailable", EventTime: metav1.NewMicroTime(now),
			Regarding: corev1.ObjectReference{Kind: "Pod", Namespace: "prod", Name: "web-1", UID: "pod"},
			Note:      "answer 403: token=PLANTED-event is not known, nor is PLANTED/env/slash",
		})
	forbidding(cluster, without...)
	answers := map[string]string{
		"/log":         plantedLog,
		"/status.json": `{"leads": true, "registries": [{"name": "main", "endpoint": "https://admin:PLANTED-userinfo@consul:8500"}]}`,
		"/metrics": "rollcall_registry_slots{registry=\"main\"} 4\nrollcall_wait_bucket{le=\"1\"} 3\ngo_gc_seconds 1\n" +
			"rollcall_info{token=\"PLANTED-metric\"} 1\n",
		"/status/entries.json": `{"leads": true, "waits": {"pod":
			{"hook": "preDelete", "reason": "RegistryUnavailable", "message": "password: PLANTED-wait"}}}`,
	}
	cluster.pods = podsOf(t, func(r *http.Request) (*http.Response, error) {
		for end, body := range answers {
			if strings.HasSuffix(r.URL.Path, end) {
				return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
			}
		}
		return nil, fmt.Errorf("there is no %s", r.URL.Path)
	})
	var out strings.Builder
	cluster.Out, cluster.ErrOut = &out, io.Discard
	err := cluster.debug(t.Context(), func() (string, error) { return "v1.37.2", nil })
	return out.String(), err
}

// TestDebug: a maintainer gets what it takes, and no secret, wherever it was planted.
func TestDebug(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		got, err := debugged(t)
		expect.NoError(t, err)
		for line := range strings.Lines(got) {
			if strings.Contains(line, "PLANTED") {
				t.Errorf("it shows a secret: %s", line)
			}
		}
		for _, want := range []string{
			"kubernetes: v1.37.2", "openkruise: kruise-manager:v1.9", "image: rollcall:v9", "--leader-elect", "name: ODD", "key: of-a-secret",
			"tokenFile: /etc/rollcall/auth/token", "retries: 3", "consul:8500", "b:8761",
			"holderIdentity: rollcall-0", "-- prod/web-1", "OpenKruise waits at the hook preDelete",
			"Warning RegistryUnavailable x1 Pod prod/web-1: answer 403", "leads: true", `rollcall_registry_slots{registry="main"} 4`,
			`"msg":"registered","pod":"web-1"`, `"status":403`, "the last line", "before its last restart: true",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("there is no %q", want)
			}
		}
		for _, not := range []string{"_bucket", "go_gc_seconds", "!! "} {
			if strings.Contains(got, not) {
				t.Errorf("there is %q", not)
			}
		}
		if t.Failed() {
			t.Log(got)
		}
	})
}

// TestDebugWithoutRights: each part that can't be read says why, and the others are there.
func TestDebugWithoutRights(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		got, err := debugged(t, "events", "pods")
		expect.NoError(t, err)
		parts := strings.Split(got, "==== ")
		expect.Equal(t, 10, len(parts), "parts")
		for _, p := range parts[1:] {
			title, _, _ := strings.Cut(p, "\n")
			forbidden := strings.Contains(p, "!! not all of it could be read: ") && strings.Contains(p, "forbidden")
			if want := title != "configuration" && title != "lease" && title != "status page"; forbidden != want {
				t.Errorf("%s: forbidden is %v, want %v\n%s", title, forbidden, want, p)
			}
		}
	})
}

// TestDebugOfABrokenConfiguration: an error of YAML quotes what it can't read, which may be a secret.
func TestDebugOfABrokenConfiguration(t *testing.T) {
	t.Parallel()
	cluster, _ := installed(t, "cluster: test\n\tpassword: PLANTED\n")
	var out strings.Builder
	err := cluster.configuration(t.Context(), &out, newSecrets())
	expect.Error(t, "a person learns why", err, "it is not YAML")
	if strings.Contains(out.String()+err.Error(), "PLANTED") {
		t.Errorf("it shows a secret: %s%v", &out, err)
	}
}

// TestDebugFails where nothing could be read at all.
func TestDebugFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster := clusterWith()
		cluster.Out = io.Discard
		forbidding(cluster, "pods", "events")
		err := cluster.debug(t.Context(), func() (string, error) { return "", errors.New("no route") })
		expect.Error(t, "a script learns it", err, "forbidden")
	})
}
