package app

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

const minimal = `
cluster: prod-1
registry:
  driver: fake
hooks:
  owned: [example.com/*]
`

func TestRunRefusesABadStart(t *testing.T) {
	t.Parallel()
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	broken := func(err error) Option {
		return WithRegistry("fake", func(context.Context, registry.Config) (registry.Registry, error) { return nil, err })
	}
	fakes := WithRegistry("fake", newFake)
	type row struct {
		reason string
		config string
		args   []string
		opts   []Option
		want   []string
	}
	expect.Each(t, map[string]row{
		"an unknown driver": {"the known ones are listed", strings.Replace(minimal, "fake", "consol", 1), nil,
			[]Option{fakes}, []string{"config.yaml", "registry.driver", `"consol"`, `"fake"`}},
		"an unknown field": {"its path is named", minimal + "registri: {}", nil,
			[]Option{fakes}, []string{"config.yaml", "registri", "unknown field"}},
		"a driver's refusal": {"the driver's field gets the section's path", minimal, nil,
			[]Option{broken(registry.FieldError("options.weight", errors.New("set a number")))},
			[]string{"config.yaml", "registry.options.weight", "set a number"}},
		"a driver's failure": {"an error that names no field is the section's", minimal, nil,
			[]Option{broken(errors.New("no luck"))}, []string{"config.yaml", "registry: ", "no luck"}},
		"a driver's nothing": {"nil without an error is a driver's mistake", minimal, nil,
			[]Option{broken(nil)}, []string{"registry: ", "returned no registry"}},
		"a timeout that outlives the lease": {"the limit follows from the lease", strings.Replace(minimal, "fake", "fake\n  timeout: 6300ms", 1), nil,
			[]Option{fakes}, []string{"registry.timeout", "less than 6.3s"}},
		"a driver twice": {"one would hide the other", minimal, nil,
			[]Option{fakes, fakes}, []string{`"fake" was added twice`}},
		"a driver of nothing": {"it would panic later", minimal, nil,
			[]Option{WithRegistry("fake", nil)}, []string{`"fake" has no name or no constructor`}},
		"no configuration": {"the file is named", minimal, []string{"--config=/nonexistent/config.yaml"},
			[]Option{fakes}, []string{"/nonexistent/config.yaml"}},
		"no kubeconfig": {"the flag is named", minimal, []string{"--kubeconfig=/nonexistent/kubeconfig"},
			[]Option{fakes}, []string{"--kubeconfig", "/nonexistent/kubeconfig"}},
		"evictions outside a cluster": {"the namespace of its Service is not known", minimal + "evictions: {enabled: true}",
			[]string{"--kubeconfig=" + kubeconfig(t, "http://127.0.0.1:1")}, []Option{fakes}, []string{"evictions.enabled", "POD_NAMESPACE"}},
		"evictions that are not served": {"two choices contradict each other", minimal + "evictions: {enabled: true}",
			[]string{"--eviction-webhook-bind-address=0"}, []Option{fakes}, []string{"evictions.enabled", "--eviction-webhook-bind-address"}},
		"a page that is not served": {"two choices contradict each other", minimal + "statusPage: true",
			[]string{"--metrics-bind-address=0"}, []Option{fakes}, []string{"statusPage", "--metrics-bind-address"}},
		"an address that is taken": {"the flag is named", minimal, []string{
			"--kubeconfig=" + kubeconfig(t, "http://127.0.0.1:1"), "--metrics-bind-address=" + taken.Addr().String()},
			[]Option{fakes}, []string{"--metrics-bind-address", "in use"}},
	}, func(t *testing.T, tc row) {
		path := filepath.Join(t.TempDir(), "config.yaml")
		must(t, os.WriteFile(path, []byte(tc.config), 0o600))
		err := Run(t.Context(), append([]string{"--config=" + path}, tc.args...), tc.opts...)
		if err == nil {
			t.Fatalf("%s: it ran", tc.reason)
		}
		for _, part := range tc.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: error %q does not say %q", tc.reason, err, part)
			}
		}
	})
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	_, unknown := parseFlags([]string{"--nope"}, &bytes.Buffer{})
	_, misspelt := parseFlags([]string{"--leader-elct=false"}, &bytes.Buffer{})
	_, help := parseFlags([]string{"--help"}, &bytes.Buffer{})
	type row struct {
		err    error
		code   int
		stderr string
	}
	expect.Each(t, map[string]row{
		"stopped":        {nil, 0, ""},
		"help":           {help, 0, ""},
		"called wrongly": {unknown, 2, "rollcall: unknown flag --nope\nSee --help.\n"},
		"misspelt":       {misspelt, 2, "rollcall: unknown flag --leader-elct (did you mean --leader-elect?)\nSee --help.\n"},
		"failed":         {errors.New("no luck"), 1, "rollcall: no luck\n"},
	}, func(t *testing.T, tc row) {
		var stderr bytes.Buffer
		if code := exitCode(&stderr, tc.err); code != tc.code || stderr.String() != tc.stderr {
			t.Errorf("got %d and %q, want %d and %q", code, stderr.String(), tc.code, tc.stderr)
		}
	})
}

func TestFlags(t *testing.T) {
	t.Parallel()
	f, err := parseFlags(nil, &bytes.Buffer{})
	must(t, err)
	f.zap = flags{}.zap
	want := flags{
		config: "/etc/rollcall/config/config.yaml", metrics: metricsFlags{address: ":8080"}, healthAddress: ":8081",
		pprofAddress: off, leaderElect: true,
		evictionsAddress: ":9443",
	}
	if fmt.Sprint(*f) != fmt.Sprint(want) {
		t.Errorf("defaults are %+v, want %+v", *f, want)
	}
	for name, args := range map[string][]string{
		"an argument that is no flag": {"start"},
		"the workers of an older one": {"--workers=64"},
		"no configuration":            {"--config="},
		"no number":                   {"--metrics-secure=many"},
		"an empty address":            {"--pprof-bind-address="},
		"metrics that are not served": {"--metrics-secure", "--metrics-bind-address=0"},
		"a certificate without use":   {"--metrics-cert-dir=/certs"},
	} {
		var usage *usageError
		if _, err := parseFlags(args, &bytes.Buffer{}); !errors.As(err, &usage) {
			t.Errorf("%s: got %v, want a usage error", name, err)
		}
	}
}

// TestFirstEmptyAddressIsNamed: a person who corrects one flag after the other is led through them in one order.
func TestFirstEmptyAddressIsNamed(t *testing.T) {
	t.Parallel()
	for range 20 {
		_, err := parseFlags([]string{"--eviction-webhook-bind-address=", "--pprof-bind-address=", "--metrics-bind-address="}, &bytes.Buffer{})
		if err == nil || !strings.HasPrefix(err.Error(), "--metrics-bind-address is empty") {
			t.Fatalf("got %v, want the first address", err)
		}
	}
}

func TestHelpAndVersionGoToTheOutput(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]string{"--help": "      --leader-elect ", "--version": "v1.2.3\n"} {
		var out bytes.Buffer
		toOut := func(o *options) { o.output = &out }
		err := Run(t.Context(), []string{arg}, WithVersion("v1.2.3"), toOut)
		if err != nil && !errors.Is(err, flag.ErrHelp) {
			t.Errorf("%s: %v", arg, err)
		}
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s wrote %q, want %q in it", arg, out.String(), want)
		}
	}
}

// TestCheckConfig has no cluster.
func TestCheckConfig(t *testing.T) {
	t.Parallel()
	refuses := func(context.Context, registry.Config) (registry.Registry, error) {
		return nil, registry.FieldError("options.dc", errors.New("unknown field"))
	}
	type row struct{ reason, driver, want string }
	expect.Each(t, map[string]row{
		"right":                      {reason: "no API server is asked", driver: "fake"},
		"a driver that there is not": {reason: "the plugin knows no drivers", driver: "faek", want: "registry.driver: Unsupported value"},
		"what the driver refuses":    {reason: "the plugin makes no registry", driver: "refuses", want: "registry.options.dc"},
		"what the driver can't do": {
			reason: "a running pod would stay in rotation", driver: "fake, registeredBy: App", want: "registry.registeredBy",
		},
		"what only applications can do": {reason: "no pod could ever register", driver: "pods", want: "set registeredBy: App"},
	}, func(t *testing.T, c row) {
		path := filepath.Join(t.TempDir(), "config.yaml")
		must(t, os.WriteFile(path, []byte(strings.Replace(minimal, "\n  driver: fake", " {driver: "+c.driver+"}", 1)), 0o600))
		var out bytes.Buffer
		err := Run(t.Context(), []string{"--check-config", "--config=" + path}, WithRegistry("fake", newFake),
			WithRegistry("refuses", refuses), WithRegistry("pods", always(podCaller{newSteering(t)})), func(o *options) { o.output = &out })
		if c.want != "" {
			expect.Error(t, c.reason, err, c.want)
			return
		}
		if !strings.HasPrefix(out.String(), "# "+path+": no problem found.") || !strings.Contains(out.String(), "\ndrain: 15s\n") {
			t.Errorf("%s: got %v and wrote %q, want what is in force", c.reason, err, out.String())
		}
		configured(t, out.String())
	})
}

// TestCheckConfigListsEverything that a person has to correct: of the file, and of each driver.
func TestCheckConfigListsEverything(t *testing.T) {
	t.Parallel()
	refuses := func(_ context.Context, c registry.Config) (registry.Registry, error) {
		return nil, errors.Join(registry.FieldError("endpoint", fmt.Errorf("%q is not an address", c.Endpoint)),
			errors.Join(registry.FieldError("options.dc", errors.New("unknown field")), registry.FieldError("options.dc", errors.New("unknown field"))))
	}
	path := filepath.Join(t.TempDir(), "config.yaml")
	must(t, os.WriteFile(path, []byte("cluster: a\ndrain: soon\nregistries:\n- {name: a, driver: refuses, endpoint: x, default: true}\n"+
		"- {name: b, driver: refuses, endpoint: 5}\n- {name: c, driver: none}\n"), 0o600))
	err := Run(t.Context(), []string{"--check-config", "--config=" + path}, WithRegistry("refuses", refuses))
	for _, want := range []string{
		`drain: Invalid value: "soon"`, `registries[a].endpoint: Invalid value: "x" is not an address`, "registries[a].options.dc",
		"registries[b].endpoint: Invalid value: this is a number", "registries[b].options.dc", `registries[c].driver: Unsupported value: "none"`,
	} {
		if strings.Count(err.Error(), want) != 1 {
			t.Errorf("got %v, want %q in it once", err, want)
		}
	}
	if strings.Count(err.Error(), "registries[b].endpoint") != 1 || strings.Count(err.Error(), "registries[c].driver") != 1 {
		t.Errorf("a field is refused twice: %v", err)
	}
}

// kubeconfig writes one that names the API server at url.
func kubeconfig(t *testing.T, url string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(path, fmt.Appendf(nil, `
apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: %q}}]
contexts: [{name: test, context: {cluster: test, namespace: team}}]
current-context: test
`, url), 0o600))
	return path
}

func must(t *testing.T, err error) {
	t.Helper()
	expect.NoError(t, err)
}
