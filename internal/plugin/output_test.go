package plugin

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/rollcall-dev/rollcall/internal/history"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/statuspage/entries"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestForScripts holds what a program reads to the captures in testdata: its fields are stable. ROLLCALL_TEST_GOLDEN=1 writes these anew.
func TestForScripts(t *testing.T) {
	t.Parallel()
	o := &options{version: "v1.2.3"}
	stuck := scene{
		state: appspub.LifecycleStatePreparingDelete, ready: true, record: lifecycle.InService, warning: "RegistryUnavailable",
		labels: map[string]string{"example.com/delete": "true"}, says: entries.Unacknowledged,
	}.view(t)
	serves := scene{state: appspub.LifecycleStateNormal, ready: true, labels: armed, record: lifecycle.InService, says: entries.In}.view(t)
	serves.Name = "web-2"
	stuck.facts.pod.Labels["controller-revision-hash"], serves.facts.pod.Labels["controller-revision-hash"] = "web-9b2d5", "web-64f7c"
	set := &kruisev1alpha1.CloneSet{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web", UID: "set"}}
	set.Spec.Replicas, set.Spec.UpdateStrategy.Partition = new(int32(2)), new(intstr.FromInt32(1))
	set.Status.UpdateRevision, set.Status.UpdatedReplicas, set.Status.AvailableReplicas = "web-64f7c", 1, 2
	told, err := historyOf(history.Read([]byte(anUpdate(t))), "prod", "storefront")
	expect.NoError(t, err)
	for name, value := range map[string]any{
		"status":  []Pod{stuck, serves},
		"explain": o.explained(stuck, nil),
		"rollout": rolloutOf(set, []Pod{stuck, serves}).forScripts(),
		"history": historyFor(told, told.Findings(), true),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asJSON, asYAML bytes.Buffer
			expect.NoError(t, (&form{name: "json"}).print(&asJSON, value))
			expect.NoError(t, (&form{name: "yaml"}).print(&asYAML, value))
			expectGolden(t, name+"-json", asJSON.String())
			same, err := yaml.JSONToYAML(asJSON.Bytes())
			expect.NoError(t, err)
			if string(same)+"\n" != asYAML.String() {
				t.Errorf("as YAML it has\n%s", &asYAML)
			}
		})
	}
}

// TestLintForScripts: the exit status is what it is for a person, and the standard output has nothing beside the object.
func TestLintForScripts(t *testing.T) {
	t.Parallel()
	config := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: rollcall-config, namespace: system}\ndata:\n  config.yaml: |" +
		strings.ReplaceAll(configText, "\n", "\n    ") + "\n---"
	type row struct {
		reason, text, want string
		status             int
	}
	expect.Each(t, map[string]row{
		"a finding": {
			reason: "it will not work", status: exitFailed,
			text: strings.Replace(cloneSetText, ", ports: [{containerPort: 80}]", "", 1),
			want: `"findings":[{"object":"CloneSet prod/web","message":"`,
		},
		"none": {
			reason: "a list is a list, if it has no item", text: cloneSetText,
			want: `{"workloads":1,"configurations":1,"findings":[],"notes":[{"object":"CloneSet prod/web","message":"spec.lifecycle.inPlaceUpdate`,
		},
	}, func(t *testing.T, c row) {
		var flat bytes.Buffer
		status, out, errOut := ran(t, config+c.text, "lint", "-", "-o", "json")
		if err := json.Compact(&flat, []byte(out)); err != nil || status != c.status || !strings.Contains(flat.String(), c.want) {
			t.Errorf("%s: status %d, %v and\n%s%swant status %d and %s", c.reason, status, err, out, errOut, c.status, c.want)
		}
	})
}

// TestArguments that a command refuses: forms of the output that it has not, flags that do not go together, and slips.
func TestArguments(t *testing.T) {
	t.Parallel()
	for arguments, want := range map[string]string{
		"status -o xml":                     `invalid argument "xml" for "-o, --output" flag: must be wide, name, json, yaml or jsonpath=TEMPLATE`,
		"explain web-1 -o wide":             `invalid argument "wide" for "-o, --output" flag: must be json, yaml or jsonpath=TEMPLATE`,
		"status --watch -o json":            "--watch shows a table: remove --output json",
		"status --watch -o name":            "--watch shows a table: remove --output name",
		"status -o jsonpath":                "must be wide, name, json, yaml or jsonpath=TEMPLATE",
		"status -o jsonpath={.a":            `"{.a" is not a template such as jsonpath='{.pods[*].name}'`,
		"rollout web --timeout 1m":          "--timeout limits --watch: add --watch, or remove --timeout",
		"rollout web --watch --timeout -1s": "--timeout -1s: set a duration such as 10m, or 0 for no limit",
		"rollout web --watch -oyaml":        "--watch shows a table: remove --output yaml",
		"resync --rollcall-namespce=two":    "unknown flag: --rollcall-namespce (did you mean --rollcall-namespace?)",
		"resync --aprove":                   "unknown flag: --aprove (did you mean --approve?)",
		"resync --something-else":           "unknown flag: --something-else\n",
		"resync -Z":                         "unknown shorthand flag: 'Z' in -Z\n",
		"explain":                           "set the name of one pod, workload or node, such as: kubectl rollcall explain web-x7k2p -n prod",
		"rollout web api":                   "set the name of one CloneSet, such as: kubectl rollcall rollout web -n prod",
		"history web -f - -o jsno":          `invalid argument "jsno" for "-o, --output" flag: must be json, yaml or jsonpath=TEMPLATE`,
	} {
		status, _, errOut := ran(t, "", append(strings.Fields(arguments), "--server", "http://127.0.0.1:1")...)
		if status != exitFailed || !strings.Contains(errOut, want) {
			t.Errorf("%s: status %d and %q, want %q", arguments, status, errOut, want)
		}
	}
}

// TestNamesAndPaths: a script takes names, and fields by kubectl's templates.
func TestNamesAndPaths(t *testing.T) {
	t.Parallel()
	s := &status{pods: []Pod{{Name: "web-1", Namespace: "prod"}, {Name: "web-2", Namespace: "prod"}}}
	for name, want := range map[string]string{
		"name":                "pod/web-1\npod/web-2\n",
		"jsonpath={[*].name}": "web-1 web-2",
		`jsonpath={range [*]}{.namespace}/{.name}{","}{end}`: "prod/web-1,prod/web-2,",
		"jsonpath={[*].none}":                                "",
	} {
		var out bytes.Buffer
		f := &form{allowed: []string{"name", jsonPath}}
		expect.NoError(t, f.Set(name))
		expect.NoError(t, s.write(&out, io.Discard, terminal{}, f, false))
		expect.Equal(t, want, out.String(), "-o %s", name)
	}
}

// TestStatusOfNames: a name is a pod's or a workload's.
func TestStatusOfNames(t *testing.T) {
	t.Parallel()
	pods := []Pod{{Name: "web-1", Workload: "web"}, {Name: "web-2", Workload: "web"}, {Name: "api-1", Workload: "api"}, {Name: "web"}}
	for names, want := range map[string]string{
		"": "web-1 web-2 api-1 web", "web": "web-1 web-2 web", "web-1 api": "web-1 api-1", "cloneset/api pod/web-2": "web-2 api-1", "shop": "",
	} {
		s := &status{pods: slices.Clone(pods), namespace: "prod"}
		s.only(strings.Fields(names))
		var got []string
		for _, p := range s.pods {
			got = append(got, p.Name)
		}
		expect.Equal(t, want, strings.Join(got, " "), "pods of %q", names)
		var notes bytes.Buffer
		if err := s.write(io.Discard, &notes, terminal{}, &form{}, false); err != nil || want == "" && !strings.Contains(notes.String(), "called shop") {
			t.Errorf("%q: %v and %q", names, err, &notes)
		}
	}
}
