package plugin

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestOnlyYesAgrees: a person who adds anything has something else in mind.
func TestOnlyYesAgrees(t *testing.T) {
	t.Parallel()
	for answer, agrees := range map[string]bool{
		"yes\n": true, " yes \r\n": true, "yes": true, "": false, "\n": false, "y\n": false, "YES\n": false, "yes wait\n": false, "yes, no\n": false,
	} {
		o := &options{IOStreams: genericiooptions.IOStreams{In: strings.NewReader(answer), ErrOut: io.Discard}}
		if err := (&cluster{options: o, where: "context prod"}).confirm(false, "The pod goes on.", "it was not released"); (err == nil) != agrees {
			t.Errorf("answer %q: got error %v, want none: %v", answer, err, agrees)
		}
	}
}

// TestKubectlIsTheSamePerson: the kubectl that the plugin runs gets every flag that chooses the cluster or the person. A flag that a newer
// library adds is passed on too.
func TestKubectlIsTheSamePerson(t *testing.T) {
	t.Parallel()
	notPassed := map[string]string{
		"namespace": "each call has its own", "request-timeout": "it is of one request", "cache-dir": "it chooses nobody", "disable-compression": "it chooses nobody",
	}
	o := &options{flags: genericclioptions.NewConfigFlags(true)}
	root, all := o.command(), pflag.NewFlagSet("", pflag.ContinueOnError)
	root.AddCommand(&cobra.Command{Use: "look", Run: func(*cobra.Command, []string) {}})
	o.flags.AddFlags(all)
	given, want := []string{"look"}, []string(nil)
	all.VisitAll(func(f *pflag.Flag) {
		value := map[string]string{"bool": "true"}[f.Value.Type()]
		if value == "" {
			value = "a-" + f.Name
		}
		argument := "--" + f.Name + "=" + value
		if given = append(given, argument); notPassed[f.Name] == "" {
			want = append(want, argument)
		}
	})
	root.SetArgs(given)
	expect.NoError(t, root.Execute())
	if !slices.Equal(o.kubectlFlags, want) || !slices.Contains(want, "--token=a-token") {
		t.Errorf("kubectl is run with %q, want %q", o.kubectlFlags, want)
	}
}

// TestCommandsToCopy are about the cluster and the installation that the person's own command was about.
func TestCommandsToCopy(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"":                      "kubectl rollcall skip web -n prod",
		"-n pay --context=kind": "kubectl rollcall skip web -n prod --context=kind",
		"--as=a --as-group=b --as-group=c --token=secret": "kubectl rollcall skip web -n prod --as=a --as-group=b --as-group=c",
		"--insecure-skip-tls-verify --tls-server-name=a --certificate-authority=b": "kubectl rollcall skip web -n prod " +
			"--certificate-authority=b --insecure-skip-tls-verify=true --tls-server-name=a",
		"--rollcall-namespace two --kubeconfig=/tmp/a'b": `kubectl rollcall skip web -n prod --kubeconfig='/tmp/a'\''b' --rollcall-namespace=two`,
	} {
		o := &options{flags: genericclioptions.NewConfigFlags(true)}
		root := o.command()
		root.AddCommand(&cobra.Command{Use: "look", Run: func(*cobra.Command, []string) {}})
		root.SetArgs(append([]string{"look"}, strings.Fields(given)...))
		expect.NoError(t, root.Execute())
		if got := o.again("skip %s -n %s", "web", "prod"); got != want {
			t.Errorf("after %q: got %s, want %s", given, got, want)
		}
		kubectl, _, _ := strings.Cut(strings.TrimPrefix(want, "kubectl rollcall skip web -n prod"), " --rollcall-namespace")
		if got := (&cluster{options: o}).noLeader().Error(); !strings.Contains(got, " get pods"+kubectl+" shows") {
			t.Errorf("after %q: got %s, want the flags %s", given, got, kubectl)
		}
	}
}

// TestWhere: a person who agrees sees which cluster the answer is about.
func TestWhere(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config")
	expect.NoError(t, os.WriteFile(path, []byte(`
apiVersion: v1
kind: Config
current-context: one
clusters: [{name: c, cluster: {server: "https://api.example.com"}}]
contexts: [{name: one, context: {cluster: c}}, {name: two, context: {cluster: c}}]
`), 0o600))
	for given, want := range map[string]string{"": "context one (https://api.example.com)", "two": "context two (https://api.example.com)"} {
		flags := genericclioptions.NewConfigFlags(true)
		flags.KubeConfig, flags.Context = &path, &given
		cluster, err := (&options{flags: flags}).cluster()
		expect.NoError(t, err)
		if cluster.where != want {
			t.Errorf("got %q, want %q", cluster.where, want)
		}
	}
}

// TestLogin: whoever kubectl logs in can use the plugin. The user's entry is what kubectl's own documentation has for OIDC. Over HTTP
// nobody is logged in.
func TestLogin(t *testing.T) {
	t.Parallel()
	var login atomic.Value
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		login.Store(r.Header.Get("Authorization"))
		http.NotFound(w, r)
	}))
	t.Cleanup(api.Close)
	claims := fmt.Sprintf(`{"exp": %d}`, time.Now().Add(time.Hour).Unix())
	token := "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2lnbmVk"
	path := filepath.Join(t.TempDir(), "config")
	expect.NoError(t, os.WriteFile(path, fmt.Appendf(nil, `
apiVersion: v1
kind: Config
current-context: one
clusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: true}}]
contexts: [{name: one, context: {cluster: c, user: u}}]
users:
- name: u
  user: {auth-provider: {name: oidc, config: {idp-issuer-url: "https://login.example.com", client-id: kubernetes, id-token: %s}}}
`, api.URL, token), 0o600))
	_, _, problems := ran(t, "", "status", "--kubeconfig", path)
	if got := login.Load(); got != "Bearer "+token {
		t.Errorf("the API server was sent the login %v, want the token of the kubeconfig: %s", got, problems)
	}
}

// TestHelpFitsAScreen: what a command does is not pushed off the screen by flags that it shares with kubectl.
func TestHelpFitsAScreen(t *testing.T) {
	t.Parallel()
	const width, height = 100, 48
	for _, c := range Command().Commands() {
		_, out, _ := ran(t, "", c.Name(), "--help")
		on, lines := terminal{width: width}, 0
		for line := range strings.Lines(out) {
			lines += on.rows([]byte(line))
		}
		if lines > height || !strings.Contains(out, "--rollcall-namespace") || strings.Contains(out, "--client-certificate") {
			t.Errorf("%s --help takes %d lines of %d columns, and %d are a screen:\n%s", c.Name(), lines, width, height, out)
		}
	}
}
