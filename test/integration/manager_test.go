package integration

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/rollcall-dev/rollcall/test/harness/apiproxy"
	"github.com/rollcall-dev/rollcall/test/harness/manager"
)

// managerMark in the environment turns this test binary into the manager: with markMain as its main runs it, with
// markLeaveNothing see [leaveNothing].
const (
	managerMark      = "ROLLCALL_INTEGRATION_MANAGER"
	markMain         = "main"
	markLeaveNothing = "leave-nothing"
)

// callTimeout bounds the managers' calls.
const callTimeout = 4 * time.Second

// rollcall is one Rollcall: a process that can be killed and started again, with a proxy between it and the API server.
type rollcall struct {
	*manager.Manager

	proxy *apiproxy.Proxy
	// config is what it was made with.
	config configuration
}

type configuration map[string]any

// defaultConfiguration is what every scenario has unless it says otherwise.
func defaultConfiguration(registryURL string, namespaces ...string) configuration {
	return configuration{
		"cluster":    clusterName,
		"namespaces": namespaces,
		"registry":   map[string]any{"driver": "http", "endpoint": registryURL, "timeout": callTimeout.String()},
		"hooks": map[string]any{
			"owned":        []string{"example.com/*", "example.io/*"},
			"newlyCreated": []string{"example.com/newly-create", "example.io/initialing"},
		},
		"service": map[string]any{"name": "{label:app}"},
		"drain":   "0s",
	}
}

// newManager prepares a manager that is not started yet, and reaches the API server as somebody.
func newManager(dir, name string, as *rest.Config, config configuration, flags ...string) (*rollcall, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	proxy, err := apiproxy.Start(context.Background(), as, nil)
	if err != nil {
		return nil, err
	}
	m, err := manager.New(manager.Options{
		Name: name, Dir: filepath.Join(dir, name), Path: self, Flags: flags, Env: asManager(markMain), Config: config.text(),
		WriteKubeconfig: proxy.WriteKubeconfig,
	})
	return &rollcall{Manager: m, proxy: proxy, config: config}, err
}

func asManager(mark string) []string {
	return []string{managerMark + "=" + mark, "GORACE=halt_on_error=0"}
}

func (c configuration) text() string {
	data, err := yaml.Marshal(c)
	if err != nil {
		panic(err) // it holds nothing but text, numbers and lists
	}
	return string(data)
}

// configMap is the one that ships for a manager in the namespace, with the configuration.
func (c configuration) configMap(namespace string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "rollcall-config"}, Data: map[string]string{"config.yaml": c.text()},
	}
}

func (m *rollcall) Configure(config configuration) error { return m.Manager.Configure(config.text()) }

// ended waits until the process has ended, and returns how it did.
func (m *rollcall) ended(t *testing.T) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return m.Process().Wait(ctx)
}
