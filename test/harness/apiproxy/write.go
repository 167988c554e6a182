package apiproxy

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
)

// Write is one request of a manager that changes something.
type Write struct {
	Method, Resource, Namespace, Name string

	Body     string
	Received time.Time
	// Status is the API server's answer, 0 where it is not known.
	Status int
	// Pod is the pod as a patch left it.
	Pod *corev1.Pod
}

// ToPod reports whether the write patches a pod.
func (w *Write) ToPod() bool { return w.Resource == "pods" && w.Method == http.MethodPatch }

// Changes is the patch without its tests.
func (w *Write) Changes() string {
	var operations []struct{ Op, Path string }
	if err := json.Unmarshal([]byte(w.Body), &operations); err != nil {
		return w.Body
	}
	var text []string
	for _, o := range operations {
		if o.Op != "test" {
			text = append(text, o.Op+" "+o.Path)
		}
	}
	return strings.Join(text, ", ")
}

// Gate holds the writes to the pods of a namespace back.
type Gate struct {
	namespace string
	// state narrows it to patches that test for this lifecycle state; empty means all.
	state    appspub.LifecycleStateType
	released chan struct{}
	once     sync.Once

	mu   sync.Mutex
	held int
}

// Release lets through what is held back, and what comes after.
func (g *Gate) Release() { g.once.Do(func() { close(g.released) }) }

// Held is how many writes came to the gate.
func (g *Gate) Held() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held
}

// pass returns when the write may go on, or ctx has ended.
func (g *Gate) pass(ctx context.Context, w *Write) {
	if !w.ToPod() || g.namespace != w.Namespace || g.state != "" && !strings.Contains(w.Body, fmt.Sprintf("%q", g.state)) {
		return
	}
	g.mu.Lock()
	g.held++
	g.mu.Unlock()
	select {
	case <-g.released:
	case <-ctx.Done():
	}
}
