package app

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/memory"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

// TestCheckRegistries writes an entry that nothing answers to, and leaves none.
func TestCheckRegistries(t *testing.T) {
	t.Parallel()
	type row struct {
		reason, section string
		refuses         fakeregistry.Op
		want, err       string
		writes          int
	}
	expect.Each(t, map[string]row{
		"all is well": {
			reason: "it is reached and written", want: `{"registry":"default","driver":"trial","written":true}`, writes: 2,
		},
		"it can't be written": {
			reason: "no pod would get into rotation", refuses: fakeregistry.OpRegister, writes: 2, err: "registries that failed: 1 of 1",
			want: `{"registry":"default","driver":"trial","written":false,"error":"writing an entry: permission denied"}`,
		},
		"nothing can be removed": {
			reason: "pods would stay in rotation", refuses: fakeregistry.OpDeregister, writes: 1 + takesBack, err: "registries that failed: 1 of 1",
			want: `"error":"removing the entry rollcall-check at 192.0.2.1:9, which the leader's next resync removes: permission denied"`,
		},
		"it can't be listed": {
			reason: "no entry is ever compared", refuses: fakeregistry.OpList, err: "registries that failed: 1 of 1",
			want: `"error":"listing the entries: permission denied"`,
		},
		"applications write": {
			reason: "an entry of theirs can't be made", section: ", registeredBy: App", want: `"written":false,"note":"applications write the entries there`,
		},
	}, func(t *testing.T, c row) {
		made := newSteering(t)
		if c.refuses != "" {
			made.Fail(fakeregistry.Match{Op: c.refuses}, registry.Terminal(errors.New("permission denied")))
		}
		path := filepath.Join(t.TempDir(), "config.yaml")
		must(t, os.WriteFile(path, []byte("cluster: a\nregistry: {driver: trial"+c.section+"}\n"), 0o600))
		var out bytes.Buffer
		err := Run(t.Context(), []string{"--check-registries", "--config=" + path}, WithRegistry("trial", always(made)),
			func(o *options) { o.output = &out })
		expect.Error(t, c.reason, err, c.err)
		writes := len(made.Calls(fakeregistry.Match{Op: fakeregistry.OpRegister})) + len(made.Calls(fakeregistry.Match{Op: fakeregistry.OpDeregister}))
		if !strings.Contains(out.String(), c.want) || writes != c.writes {
			t.Errorf("%s: it prints %q and makes %d changes, want %q and %d", c.reason, &out, writes, c.want, c.writes)
		}
		left, err := made.Truth(t.Context(), "a")
		must(t, err)
		if len(left) > 0 != (c.refuses == fakeregistry.OpDeregister) {
			t.Errorf("%s: it leaves %v", c.reason, left)
		}
	})
}

// TestClusterByUID: the name in the configuration can have the cluster's UID, which is read before the registries are made.
func TestClusterByUID(t *testing.T) {
	t.Parallel()
	const uid = "7b0a6c1e-0f0e-4b8e-9a55-3c7f6a1d2e90"
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/api":
			_, _ = io.WriteString(w, `{"kind": "APIVersions", "versions": ["v1"]}`)
		case "/apis":
			_, _ = io.WriteString(w, `{"kind": "APIGroupList", "apiVersion": "v1", "groups": []}`)
		case "/api/v1":
			_, _ = io.WriteString(w, `{"kind": "APIResourceList", "groupVersion": "v1", "resources": [{"name": "namespaces", "kind": "Namespace"}]}`)
		case "/api/v1/namespaces/kube-system":
			_, _ = io.WriteString(w, `{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"uid": "`+uid+`"}}`)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(api.Close)
	path := filepath.Join(t.TempDir(), "config.yaml")
	must(t, os.WriteFile(path, []byte("cluster: '{uid}'\nregistry: {driver: memory}\n"), 0o600))
	var cluster string
	constructor := func(ctx context.Context, cfg registry.Config) (registry.Registry, error) {
		cluster = cfg.Cluster
		return memory.New(ctx, cfg)
	}
	run := func(args ...string) error {
		return Run(t.Context(), append(args, "--config="+path), WithRegistry("memory", constructor), func(o *options) { o.output = io.Discard })
	}
	must(t, run("--check-registries", "--kubeconfig="+kubeconfig(t, api.URL)))
	expect.Equal(t, uid, cluster, "the registry is given cluster")
	must(t, run("--check-config", "--kubeconfig=/nonexistent"))
	expect.Error(t, "entries would carry no name", run("--check-registries", "--kubeconfig="+kubeconfig(t, "http://127.0.0.1:1")), "kube-system could not be read")
}
