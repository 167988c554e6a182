package consul_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestARegistrationThatWasGivenUp: the next change ends it before it does anything else, and the one after that has nothing to end. A real
// server that is frozen shows that it is not carried out (test/registries/consul).
func TestARegistrationThatWasGivenUp(t *testing.T) {
	t.Parallel()
	const register, look = "/v1/txn cas set service", "/v1/txn get service"
	var mu sync.Mutex
	var asked []string
	index, hangs := 3, false
	d := open(t, registry.Config{Endpoint: drivertest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		type operation struct {
			Verb string          `json:"verb"`
			Node json.RawMessage `json:"node"`
		}
		var ops []struct {
			Node    *operation `json:"node"`
			Service *operation `json:"service"`
		}
		_ = json.NewDecoder(r.Body).Decode(&ops)
		mu.Lock()
		defer mu.Unlock()
		what := r.URL.Path
		answer := map[string]any{"Results": []any{}}
		node := map[string]any{"Node": "rollcall-21", "ModifyIndex": index}
		for _, op := range ops {
			switch {
			case op.Node != nil:
				var sent struct {
					ModifyIndex int               `json:"modifyIndex"`
					Meta        map[string]string `json:"meta"`
				}
				_ = json.Unmarshal(op.Node.Node, &sent)
				what += " " + op.Node.Verb
				if op.Node.Verb == "cas" && sent.ModifyIndex != index {
					t.Errorf("the condition is %d, want %d", sent.ModifyIndex, index)
				}
				if sent.Meta["rollcall-empty"] != "" {
					what += " marked"
					index++
					node["ModifyIndex"] = index
				}
				answer["Results"] = []any{map[string]any{"Node": node}}
			case op.Service != nil && op.Node == nil:
				what += " " + op.Service.Verb + " service"
			}
		}
		asked = append(asked, what)
		w.Header().Set("X-Consul-Knownleader", "true")
		if r.URL.Path == "/v1/catalog/nodes" {
			_ = json.NewEncoder(w).Encode([]any{node})
			return
		}
		if hangs {
			mu.Unlock()
			<-r.Context().Done()
			mu.Lock()
			return
		}
		if what == look { // another pod's, which is spared
			_, _ = io.WriteString(w, `{"Results": [{"Service": {"ID": "web-10.0.0.1-80", "Meta": {"rollcall-uid": "uid-2"}}}]}`)
			return
		}
		_ = json.NewEncoder(w).Encode(answer)
	})})
	took := func(do func(context.Context, registry.Instance) error) []string {
		mu.Lock()
		asked = nil
		mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := do(ctx, drivertest.Pod(1)); (err != nil) != hangs {
			t.Errorf("got error %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		return asked
	}
	ends := []string{"/v1/catalog/nodes", "/v1/txn cas marked"}
	expect.Equal(t, append(ends, register), took(d.Register), "the first change of a process, after which another one may have left something")
	expect.Equal(t, []string{register}, took(d.Register), "the next one")
	hangs = true
	expect.Equal(t, []string{register}, took(d.Register), "one that is given up")
	hangs = false
	expect.Equal(t, append(ends, look), took(d.Deregister), "the change after it")
	expect.Equal(t, []string{register}, took(d.Register), "the one after that")
}

// TestAConditionThatWasForgottenMeanwhile is not replaced by the index 0, which Consul takes for "if there is no such node": under a node
// that is dropped later, a registration that was given up would be carried out.
func TestAConditionThatWasForgottenMeanwhile(t *testing.T) {
	t.Parallel()
	var d registry.Registry
	var looked atomic.Bool
	var mu sync.Mutex
	var conditions []uint64
	endpoint := drivertest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		var ops []struct {
			Node *struct {
				Verb string `json:"verb"`
				Node struct {
					Node        string
					ModifyIndex uint64
				}
			} `json:"node"`
			Service *struct {
				Service struct{ ID string }
			} `json:"service"`
		}
		_ = json.NewDecoder(r.Body).Decode(&ops)
		w.Header().Set("X-Consul-Knownleader", "true")
		switch {
		case len(ops) == 0:
			_, _ = io.WriteString(w, `[]`)
		case ops[0].Node == nil: // a look at the one that leaves
			if !looked.Swap(true) {
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				if err := d.Register(ctx, drivertest.Pod(9)); err == nil {
					t.Error("it was not given up")
				}
				expect.NoError(t, d.FailOver(t.Context(), drivertest.Pod(9)))
			}
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, `{"Errors": [{"OpIndex": 0, "What": "service doesn't exist"}]}`)
		case len(ops) > 1 && ops[1].Service.Service.ID == "web-10.0.0.9-80":
			<-r.Context().Done()
		case ops[0].Node.Verb == "cas":
			mu.Lock()
			conditions = append(conditions, ops[0].Node.Node.ModifyIndex)
			mu.Unlock()
			if ops[0].Node.Node.ModifyIndex != 7 {
				w.WriteHeader(http.StatusConflict)
				_, _ = io.WriteString(w, `{"Errors": [{"OpIndex": 0, "What": "failed to set node, index is stale"}]}`)
				return
			}
			fallthrough
		default:
			_, _ = fmt.Fprintf(w, `{"Results": [{"Node": {"Node": %q, "ModifyIndex": 7}}]}`, ops[0].Node.Node.Node)
		}
	})
	d = open(t, registry.Config{Endpoint: endpoint})
	for _, err := range d.(registry.Batcher).Batch(t.Context(), []registry.Change{ //nolint:forcetypeassert // it is one
		{Instance: drivertest.Pod(1), State: registry.InService}, {Instance: drivertest.Pod(2), State: registry.OutOfService},
	}) {
		expect.NoError(t, err)
	}
	mu.Lock()
	defer mu.Unlock()
	expect.Equal(t, []uint64{1, 7}, conditions, "the conditions: one that never holds, and that of the node")
}
