package plugin

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rollcall-dev/rollcall/test/harness/bubble"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

const threeContexts = `{apiVersion: v1, kind: Config, current-context: a, users: [{name: me, user: {}}],
clusters: [{name: a, cluster: {server: "https://a"}}, {name: b, cluster: {server: "https://b"}}],
contexts: [{name: a, context: {cluster: a, user: me, namespace: shop}}, {name: b, context: {cluster: b, user: me}},
{name: "a,b", context: {cluster: b, user: me}}]}`

// TestContexts: each of several contexts has what the command line has, and its own namespace.
func TestContexts(t *testing.T) {
	t.Parallel()
	both := filepath.Join(t.TempDir(), "both")
	expect.NoError(t, os.WriteFile(both, []byte(threeContexts), 0o600))
	for arguments, want := range map[string]struct {
		reason string
		args   []string
		hosts  []string
	}{
		"none":             {"that of the kubeconfig", nil, []string{"https://a shop me"}},
		"one":              {"as for kubectl", []string{"--context=b"}, []string{"https://b default me"}},
		"two":              {"each is asked", []string{"--context=b,a"}, []string{"https://b default me", "https://a shop me"}},
		"one with a comma": {"it is one", []string{"--context=a,b"}, []string{"https://b default me"}},
		"a namespace":      {"it counts for each", []string{"--context=b,a", "-n", "pay"}, []string{"https://b pay me", "https://a pay me"}},
		"groups":           {"the person is the same", []string{"--context=b,a", "--as=me", "--as-group=x", "--as-group=y"}, []string{"https://b default me x y", "https://a shop me x y"}},
	} {
		o := &options{flags: genericclioptions.NewConfigFlags(true)}
		var got []string
		root := o.command()
		root.AddCommand(&cobra.Command{Use: "look", RunE: func(cmd *cobra.Command, _ []string) error {
			for _, one := range o.contexts(cmd) {
				server, err := one.flags.ToRESTConfig()
				if err != nil {
					return err
				}
				if one.context != "" && !slices.Contains(one.kubectlFlags, "--context="+one.context) {
					t.Errorf("kubectl is run with %q, want context %s", one.kubectlFlags, one.context)
				}
				namespace, err := one.namespace()
				text := server.Host + " " + namespace + " me"
				for _, group := range server.Impersonate.Groups {
					text += " " + group
				}
				got = append(got, text)
				if err != nil {
					return err
				}
			}
			return nil
		}})
		root.SetArgs(append([]string{"look", "--kubeconfig", both}, want.args...))
		expect.NoError(t, root.Execute())
		if !slices.Equal(got, want.hosts) {
			t.Errorf("%s: %s: it asks %q, want %q", arguments, want.reason, got, want.hosts)
		}
	}
}

// TestStatusOfSeveralClusters: a cluster that can't be asked hides no other.
func TestStatusOfSeveralClusters(t *testing.T) {
	t.Parallel()
	of := func(name, known string, refused error) *cluster {
		pod := scene{state: appspub.LifecycleStateNormal, labels: map[string]string{"app": "web"}}.pod(t)
		pod.Name = name
		c, _ := installed(t, configText, pod, theCloneSet(t, cloneSetText))
		c.context = known
		if refused != nil {
			c.Client = interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
				List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return refused },
			})
		}
		return c
	}
	refused := apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("no"))
	unknown := errors.New("context d: the kubeconfig does not have it")
	s, err := fleet{within: time.Minute, failed: []error{unknown}, clusters: []*cluster{
		of("web-1", "a", nil), of("web-2", "b", nil), of("web-3", "c", refused),
	}}.status(t.Context(), true, client.HasLabels{})
	expect.NoError(t, err)
	var got []string
	for _, p := range s.pods {
		got = append(got, p.Context+" "+p.Name)
	}
	if !slices.Equal(got, []string{"a web-1", "b web-2"}) || s.failed == nil || !errors.Is(s.failed, unknown) ||
		!strings.Contains(s.failed.Error(), "context c: ") {
		t.Errorf("it lists %q, and fails with %v", got, s.failed)
	}
	silent := of("web-2", "b", nil)
	s = together([]*status{{pods: []Pod{{Name: "web-1", Context: "a"}}, namespace: "shop"},
		{pods: []Pod{{Name: "web-2", Context: "b", facts: facts{unasked: true}}}, namespace: "pay", unknown: silent.of(errors.New("no answer"))}})
	var out, notes bytes.Buffer
	expect.NoError(t, s.write(&out, &notes, terminal{}, &form{}, false))
	for _, want := range []string{"CONTEXT   NAMESPACE   NAME", "REGISTRY", "  ?  "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, &out)
		}
	}
	if want := "REGISTRY is ?, and REASON is only what the pods show: context b: no answer\n"; notes.String() != want {
		t.Errorf("it notes %q, want %q", notes.String(), want)
	}
	alone := fleet{clusters: []*cluster{of("web-3", "c", refused)}}
	if _, err := alone.status(t.Context(), true, client.HasLabels{}); err == nil {
		t.Error("there is no cluster to show, and no error")
	}
}

// TestClustersAreAskedTogether: each of several has to answer for all to be shown, in one time of the bound.
func TestClustersAreAskedTogether(t *testing.T) {
	t.Parallel()
	bubble.Each(t, map[string]struct{ silent int }{"one is silent": {1}, "all are": {3}}, func(t *testing.T, c struct{ silent int }) {
		began := time.Now()
		f := fleet{within: clusterWithin, clusters: make([]*cluster, 3)}
		var answered atomic.Int32
		f.each(t.Context(), func(ctx context.Context, at int, _ *cluster) {
			if at < c.silent {
				<-ctx.Done()
				return
			}
			answered.Add(1)
		})
		if took := time.Since(began); took != clusterWithin || int(answered.Load()) != 3-c.silent {
			t.Errorf("%d answer, after %s", answered.Load(), took)
		}
	})
}
