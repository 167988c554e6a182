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
)

// TestCheckRegistries writes an entry that nothing answers to, and leaves none.
func TestCheckRegistries(t *testing.T) {
	t.Parallel()
	type row struct {
		reason, section string
		refuses         registry.State
		want, err       string
		writes          int
	}
	expect.Each(t, map[string]row{
		"all is well": {
			reason: "it is reached and written", want: `{"registry":"default","driver":"trial","written":true}`, writes: 2,
		},
		"it can't be written": {
			reason: "no pod would get into rotation", refuses: registry.InService, writes: 2, err: "registries that failed: 1 of 1",
			want: `{"registry":"default","driver":"trial","written":false,"error":"writing an entry: permission denied"}`,
		},
		"nothing can be removed": {
			reason: "pods would stay in rotation", refuses: registry.Absent, writes: 1 + takesBack, err: "registries that failed: 1 of 1",
			want: `"error":"removing the entry rollcall-check at 192.0.2.1:9, which the leader's next resync removes: permission denied"`,
		},
		"it can't be listed": {
			reason: "no entry is ever compared", section: ", options: {hidden: true}", err: "registries that failed: 1 of 1",
			want: `"error":"listing the entries: no route"`,
		},
		"applications write": {
			reason: "an entry of theirs can't be made", section: ", registeredBy: App", want: `"written":false,"note":"applications write the entries there`,
		},
	}, func(t *testing.T, c row) {
		held, err := memory.New(t.Context(), registry.Config{})
		must(t, err)
		made := &trialRegistry{Registry: held, refuses: c.refuses}
		constructor := func(_ context.Context, cfg registry.Config) (registry.Registry, error) {
			made.hidden = strings.Contains(string(cfg.Options), "hidden")
			return made, nil
		}
		path := filepath.Join(t.TempDir(), "config.yaml")
		must(t, os.WriteFile(path, []byte("cluster: a\nregistry: {driver: trial"+c.section+"}\n"), 0o600))
		var out bytes.Buffer
		err = Run(t.Context(), []string{"--check-registries", "--config=" + path}, WithRegistry("trial", constructor),
			func(o *options) { o.output = &out })
		expect.Error(t, c.reason, err, c.err)
		if !strings.Contains(out.String(), c.want) || made.writes != c.writes {
			t.Errorf("%s: it prints %q and makes %d changes, want %q and %d", c.reason, &out, made.writes, c.want, c.writes)
		}
		left, err := held.(registry.Lister).List(t.Context(), "a")
		must(t, err)
		if len(left) > 0 != (c.refuses == registry.Absent) {
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
	if cluster != uid {
		t.Errorf("the registry is given cluster %q, want %q", cluster, uid)
	}
	must(t, run("--check-config", "--kubeconfig=/nonexistent"))
	expect.Error(t, "entries would carry no name", run("--check-registries", "--kubeconfig="+kubeconfig(t, "http://127.0.0.1:1")), "kube-system could not be read")
}

var errDenied = errors.New("permission denied")

// trialRegistry refuses changes to one state.
type trialRegistry struct {
	registry.Registry

	refuses registry.State
	hidden  bool
	writes  int
}

func (r *trialRegistry) change(ctx context.Context, in registry.Instance, to registry.State) error {
	r.writes++
	if to == r.refuses {
		return registry.Terminal(errDenied)
	}
	return registry.Change{Instance: in, State: to}.Make(ctx, r.Registry)
}

func (r *trialRegistry) Register(ctx context.Context, in registry.Instance) error {
	return r.change(ctx, in, registry.InService)
}

func (r *trialRegistry) Deregister(ctx context.Context, in registry.Instance) error {
	return r.change(ctx, in, registry.Absent)
}

func (r *trialRegistry) List(ctx context.Context, cluster string) ([]registry.Entry, error) {
	if r.hidden {
		return nil, errors.New("no route")
	}
	return r.Registry.(registry.Lister).List(ctx, cluster)
}

func (r *trialRegistry) AppEntries() registry.AppRegistry { return &trialApps{r} }

type trialApps struct{ *trialRegistry }

func (*trialApps) Get(context.Context, registry.Instance) (registry.State, error) {
	return registry.Absent, nil
}
