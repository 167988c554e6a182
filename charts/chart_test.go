// Package charts holds the Helm chart to the kustomization: both install the same objects. It is a module of its own, since
// Helm's library is needed for nothing else.
package charts

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	loader3 "helm.sh/helm/v3/pkg/chart/loader"
	chartutil3 "helm.sh/helm/v3/pkg/chartutil"
	engine3 "helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// example are the values that config/default has and the chart leaves to its user.
const example = `
image: {registry: "", repository: rollcall}
config:
  cluster: example
  registry: {driver: http, endpoint: "https://registry.example.com"}
`

// monitoring turns on what config/components/prometheus adds.
const monitoring = `
metrics:
  serviceMonitor: {enabled: true}
  prometheusRule: {enabled: true}
`

const (
	evictions   = "  evictions: {enabled: true}\n"
	certManager = evictions + "evictions: {certManager: true}\n"
)

func TestChartInstallsWhatKustomizeInstalls(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ overlay, values string }{
		"default":    {overlay: "resources: [default]", values: example},
		"monitoring": {overlay: "resources: [default]\ncomponents: [components/prometheus]", values: example + monitoring},
		"evictions":  {overlay: "resources: [default]\ncomponents: [components/evictions]", values: example + evictions},
		"enrollment": {
			overlay: "resources: [default]\ncomponents: [components/enroll]", values: example + "  enroll: true",
		},
		"the pods' condition": {
			overlay: "resources: [default]\ncomponents: [components/pod-condition]", values: example + "  podCondition: true",
		},
		"EndpointSlices": {
			overlay: "resources: [default]\ncomponents: [components/pod-condition, components/endpointslice]",
			values:  strings.Replace(example, "driver: http", "driver: endpointslice", 1) + "  podCondition: true",
		},
		"the plugin's roles": {
			overlay: "resources: [default]\ncomponents: [components/plugin-roles]", values: example + "\npluginRoles: {enabled: true}",
		},
		"lint": {overlay: "resources: [default]\ncomponents: [components/lint]", values: example + "\nlint: {enabled: true}"},
		"write policy": {
			overlay: "resources: [default]\ncomponents: [components/write-policy]", values: example + "\nwritePolicy: {enabled: true}",
		},
		"evictions with cert-manager": {
			overlay: "resources: [default]\ncomponents: [components/evictions, components/evictions/cert-manager]", values: example + certManager,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rendered, err := helm(t, c.values)
			expect.NoError(t, err)
			want, got := comparable(t, kustomize(t, c.overlay)), comparable(t, rendered)
			data := got["ConfigMap/rollcall-config"].(map[string]any)["data"].(map[string]any)
			for _, feature := range []string{"enroll", "podCondition", "evictions"} { // the chart's rights follow from these
				delete(data, feature)
			}
			data["registry"].(map[string]any)["driver"] = "http" // and so do those of endpointslice
			// Helm's users create the namespace, as they do for every chart.
			delete(want, "Namespace/rollcall-system")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("objects (-kustomize +chart):\n%s", diff)
			}
		})
	}
}

// TestAuthorityOfTheEvictionsStays: a renewed certificate is one that the API server trusts already.
func TestAuthorityOfTheEvictionsStays(t *testing.T) {
	t.Parallel()
	rendered, err := helm(t, example+certManager)
	expect.NoError(t, err)
	objects := comparable(t, rendered)
	const ca = "rollcall-evictions-ca"
	for _, c := range []struct {
		reason, object, field string
		want                  any
	}{
		{"one that signs itself is trusted only after cert-manager has injected it", "Certificate/rollcall-evictions", "issuerRef.name", ca},
		{"the authority's certificate is not the one that is renewed", "Issuer/" + ca, "ca.secretName", ca},
		{"the Issuer signs with what cert-manager puts there", "Certificate/" + ca, "secretName", ca},
		{"the API server trusts no other to sign", "Certificate/" + ca, "isCA", true},
		{"cert-manager 1.18 and later make a new key otherwise", "Certificate/" + ca, "privateKey.rotationPolicy", "Never"},
		{"who signs has a name, which the certificate names", "Certificate/" + ca, "commonName", "rollcall-evictions"},
	} {
		object, _ := objects[c.object].(map[string]any)
		got, _, _ := unstructured.NestedFieldNoCopy(object, append([]string{"spec"}, strings.Split(c.field, ".")...)...)
		if got != c.want {
			t.Errorf("%s: spec.%s is %v, want %v: %s", c.object, c.field, got, c.want, c.reason)
		}
	}
}

// TestAnnotationsOfAllObjects: AKS' enforcer, for one, leaves alone what has an annotation, and Helm 4 fails on what it has changed.
func TestAnnotationsOfAllObjects(t *testing.T) {
	t.Parallel()
	values := strings.Replace(example, "driver: http", "driver: endpointslice", 1) + "  podCondition: true\n  enroll: true\n" +
		certManager + monitoring + `
  dashboard: {enabled: true, annotations: {folder: registries}}
lint: {enabled: true}
writePolicy: {enabled: true}
pluginRoles: {enabled: true}
networkPolicy: {enabled: true}
serviceAccount: {annotations: {example.com/role: registries}}
commonAnnotations: {admissions.enforcer/disabled: "true"}
`
	objects, err := helm(t, values)
	expect.NoError(t, err)
	own := map[string]string{
		"MutatingWebhookConfiguration": "cert-manager.io/inject-ca-from", "ServiceAccount": "example.com/role",
	}
	for _, o := range objects {
		annotations := o.GetAnnotations()
		if annotations["admissions.enforcer/disabled"] != "true" {
			t.Errorf("%s %s has annotations %v, want commonAnnotations", o.GetKind(), o.GetName(), annotations)
		}
		if key, has := own[o.GetKind()]; has && annotations[key] == "" {
			t.Errorf("%s %s has annotations %v, want its own too", o.GetKind(), o.GetName(), annotations)
		}
	}
	const fewest = 30 // all that the chart can have
	if len(objects) < fewest {
		t.Errorf("%d objects, want at least %d: is something off?", len(objects), fewest)
	}
}

func TestChartRefusesValues(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ reason, values, want string }{
		"no values": {
			reason: "the user learns what to write first",
			values: "{}", want: "config.cluster is empty: set the name of this cluster",
		},
		"no registry": {
			reason: "there is no default that could be right",
			values: "config: {cluster: a}", want: "config.registry is empty: set the registry's driver and endpoint",
		},
		"both forms of a registry": {
			reason: "the manager would refuse it too, but later",
			values: "config: {cluster: a, registry: {driver: memory}, registries: [{name: b, driver: memory}]}",
			want:   "config.registry and config.registries are both set",
		},
		"a registry of a list without a name": {
			reason: "no pod could choose it, and the manager would refuse it",
			values: "config: {cluster: a, registries: [{driver: memory}]}", want: "missing property 'name'",
		},
		"the only registry with a name": {
			reason: "the manager would refuse it",
			values: strings.Replace(example, "registry: {", "registry: {name: main, ", 1), want: "/config/registry/name",
		},
		"a value that does not exist": {
			reason: "a misspelt value changes nothing without a word",
			values: example + "replicas: 3", want: "additional properties 'replicas' not allowed",
		},
		"a field of the configuration that does not exist": {
			reason: "the manager would start and refuse it",
			values: strings.Replace(example, "cluster: example", "cluster: example\n  drian: 5s", 1),
			want:   "additional properties 'drian' not allowed",
		},
		"a group of values set to null": {
			reason: "templates would fail on it with a nil pointer",
			values: example + "pluginRoles: null\nevictions: null\n", want: "missing properties 'evictions', 'pluginRoles'",
		},
		"a label that the Deployment selects by": {
			reason: "the Deployment would select other pods than it makes",
			values: example + "commonLabels: {app.kubernetes.io/name: mine}", want: "commonLabels",
		},
		"the same for the pods alone": {
			reason: "the Deployment would select other pods than it makes",
			values: example + "podLabels: {app.kubernetes.io/component: mine}", want: "podLabels",
		},
		"a part of the metrics set to null": {
			reason: "templates would fail on it with a nil pointer",
			values: example + "metrics: {serviceMonitor: null}", want: "missing property 'serviceMonitor'",
		},
		"a ServiceAccount of one's own without its name": {
			reason: "the roles would be given to one that does not exist",
			values: example + "serviceAccount: {create: false}", want: "set serviceAccount.name",
		},
		"a duration without its unit": {
			reason: "the manager would start and refuse it",
			values: strings.Replace(example, "cluster: example", "cluster: example\n  drain: '15'", 1), want: "/config/drain",
		},
		"an object to override that the chart does not have": {
			reason: "a misspelt object changes nothing without a word",
			values: example + "overrides: {deploymnt: {}}", want: "additional properties 'deploymnt' not allowed",
		},
		"clean without roles": {
			reason: "the Job would have no right to change a workload",
			values: example + "rbac: {create: false}\nuninstall: {mode: clean}", want: "set uninstall.mode to check or none",
		},
		"a digest without its algorithm": {
			reason: "the kubelet would refuse the image's name",
			values: strings.Replace(example, "rollcall}", "rollcall, digest: abc}", 1), want: "/image/digest",
		},
		"a share without its sign": {
			reason: "the manager takes a threshold in percent only",
			values: strings.Replace(example, "cluster: example", "cluster: example\n  panicThreshold: 50", 1), want: "/config/panicThreshold",
		},
		"a share of more than all": {
			reason: "the manager takes 100% and less",
			values: strings.Replace(example, "cluster: example", "cluster: example\n  panicThreshold: 101%", 1), want: "/config/panicThreshold",
		},
		"an alert that is not there": {
			reason: "a change without an effect goes unnoticed",
			values: example + strings.Replace(monitoring, "prometheusRule: {", "prometheusRule: {alerts: {Rollcall: {for: 1m}}, ", 1),
			want:   "Rollcall has no alert Rollcall",
		},
		"a threshold where there is none": {
			reason: "a change without an effect goes unnoticed",
			values: example + strings.Replace(monitoring, "prometheusRule: {", "prometheusRule: {alerts: {RollcallHasNoLeader: {threshold: 600}}, ", 1),
			want:   "metrics.prometheusRule.alerts.RollcallHasNoLeader: this alert has no threshold",
		},
		"an interval without its unit": {
			reason: "Prometheus Operator would refuse the ServiceMonitor",
			values: example + strings.Replace(monitoring, "serviceMonitor: {", "serviceMonitor: {interval: '30', ", 1),
			want:   "/metrics/serviceMonitor/interval",
		},
		"a part of an entry": {
			reason: "the manager takes a whole number",
			values: strings.Replace(example, "cluster: example", "cluster: example\n  resync: {maxRemovals: 0.5}", 1),
			want:   "/config/resync/maxRemovals",
		},
		"a number in quotes": {
			reason: "the manager takes a text for a percentage only",
			values: strings.Replace(example, "cluster: example", "cluster: example\n  resync: {maxRemovals: '5'}", 1),
			want:   "/config/resync/maxRemovals",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := helm(t, c.values)
			expect.Error(t, c.reason, err, c.want)
		})
	}
}

// TestSchemaAndManagerAgreeOnDurations: what the chart takes does not crash the managers, and it refuses nothing that they take.
func TestSchemaAndManagerAgreeOnDurations(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text  string
		taken bool
	}{
		{"0", true}, {"0s", true}, {"15s", true}, {"1h2m3s", true}, {"1.5s", true}, {".5s", true}, {"1.s", true}, {"+5s", true}, {"250ms", true},
		{"7us", true}, {"7µs", true}, {"7ns", true},
		{"", false}, {"15", false}, {"s", false}, {".s", false}, {"-5s", false}, {"1d", false}, {"5 s", false}, {"5S", false}, {"5sx", false}, {"00", false},
	} {
		_, err := config.Parse(fmt.Appendf(nil, "{apiVersion: rollcall.dev/v1alpha1, kind: Configuration, cluster: a, registry: {driver: http}, drain: %q}", c.text),
			config.Limits{Drivers: []string{"http"}})
		_, refused := helm(t, strings.Replace(example, "cluster: example", fmt.Sprintf("cluster: example\n  drain: %q", c.text), 1))
		if (err == nil) != c.taken || (refused == nil) != c.taken {
			t.Errorf("%q: the manager ends with %v, the chart with %v; want them to take it: %v", c.text, err, refused, c.taken)
		}
	}
}

// The fields in docs/configuration.md are those of the schema, and the manager takes each.
func TestSchemaKnowsEveryField(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/configuration.md")
	expect.NoError(t, err)
	schema, err := os.ReadFile("rollcall/values.schema.json")
	expect.NoError(t, err)
	page, _, _ = bytes.Cut(page, []byte("\n## Which address\n"))
	var listed []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`[A-Za-z.]+`(, )?)+ \\|").FindAll(page, -1) {
		listed = append(listed, regexp.MustCompile("[A-Za-z.]+").FindAllString(string(row), -1)...)
	}
	var values struct {
		Properties map[string]any
		Defs       map[string]any `json:"$defs"`
	}
	expect.NoError(t, yaml.Unmarshal(schema, &values))
	known := append(fieldsOf(values.Properties["config"], ""), fieldsOf(values.Defs["registry"], "")...)
	for _, field := range listed {
		if !slices.Contains(known, field) {
			t.Errorf("values.schema.json lacks %s", field)
		}
	}
	for _, field := range known {
		isObject := slices.ContainsFunc(known, func(other string) bool { return strings.HasPrefix(other, field+".") })
		if !isObject && !slices.Contains(listed, field) {
			t.Errorf("docs/configuration.md lacks %s", field)
		}
	}
}

// fieldsOf are the fields of an object in a schema, with their paths as in docs/configuration.md: an object of a list has a table.
func fieldsOf(schema any, path string) (fields []string) {
	object, _ := schema.(map[string]any)
	properties, _ := object["properties"].(map[string]any)
	for name, below := range properties {
		fields = append(fields, path+name)
		switch name {
		case "registry", "registries", "default":
		case "allowed":
			fields = append(fields, fieldsOf(below.(map[string]any)["items"], "")...)
		default:
			fields = append(fields, fieldsOf(below, path+name+".")...)
		}
	}
	forms, _ := object["oneOf"].([]any)
	for _, form := range forms {
		fields = append(fields, fieldsOf(form, path)...)
	}
	return fields
}

func TestChartTakesEveryValue(t *testing.T) {
	t.Parallel()
	objects, err := helm(t, example+`
metrics: {dashboard: {enabled: true, annotations: {folder: g}}, serviceMonitor: {enabled: true, interval: 17s, labels: {e: f}, tlsConfig: {serverName: by.cert-manager}}}
replicaCount: 3
imagePullSecrets: [{name: pull}]
extraArgs: [--dry-run]
extraEnv: [{name: GOMEMLIMIT, value: 100MiB}]
extraVolumes: [{name: certificate, secret: {secretName: of-the-metrics}}]
extraVolumeMounts: [{name: certificate, mountPath: /certificate}]
podSecurityContext: {fsGroup: 1234}
priorityClassName: high
nodeSelector: {pool: infra}
tolerations: [{operator: Exists}]
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}
topologySpreadConstraints: [{topologyKey: zone, maxSkew: 1, whenUnsatisfiable: DoNotSchedule}]
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
enabled: true
podAnnotations: {a: b}
podLabels: {c: d}
commonLabels: {team: platform}
extraObjects: [{apiVersion: v1, kind: ConfigMap, metadata: {name: "of-{{ .Release.Name }}"}}]
securityContext: {procMount: Default}
serviceAccount: {name: of-mine, annotations: {role: arn}}
networkPolicy: {enabled: true, metricsFrom: [{podSelector: {}}], egress: [{ports: [{port: 8501}]}]}
secrets: {tls: other-tls, auth: other-auth}
`)
	expect.NoError(t, err)
	text, err := yaml.Marshal(comparable(t, objects))
	expect.NoError(t, err)
	for _, want := range []string{
		"replicas: 3", "name: pull", "- --dry-run", "priorityClassName: high", "pool: infra", "operator: Exists", "a: b", "c: d",
		"role: arn", "name: GOMEMLIMIT", "secretName: of-the-metrics", "mountPath: /certificate", "fsGroup: 1234", "runAsNonRoot: true", "e: f",
		"serverName: by.cert-manager", "nodeSelectorTerms: []", "topologyKey: zone", "hostNetwork: true", "dnsPolicy: ClusterFirstWithHostNet",
		"interval: 17s", "folder: g", `grafana_dashboard: "1"`, "team: platform", "name: of-rollcall", "procMount: Default", "allowPrivilegeEscalation: false",
		"serviceAccountName: of-mine", "port: 8501", "- Egress",
		"secretName: other-tls", "secretName: other-auth",
	} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("%q is nowhere in what the chart renders", want)
		}
	}
	if bytes.Contains(text, []byte("podAntiAffinity")) {
		t.Error("the default affinity is there beside the one of the values")
	}
	if bytes.Contains(text, []byte("insecureSkipVerify")) {
		t.Error("Prometheus checks no certificate, whatever metrics.serviceMonitor.tlsConfig says")
	}
}

// hook marks what Helm creates for a moment only.
const hook = "helm.sh/hook"

// TestUninstallHook: Helm stops if its Job fails, before it deletes anything.
func TestUninstallHook(t *testing.T) {
	t.Parallel()
	type row struct{ reason, values, account, argument, rights, verbs string }
	expect.Each(t, map[string]row{
		"default": {
			reason: "it only lists, by the managers' own rights", account: "rollcall", argument: "--uninstall=check",
		},
		"clean": {
			reason: "the managers have no right to change workloads", values: "uninstall: {mode: clean}", account: "rollcall-uninstall",
			argument: "--uninstall=clean", rights: "ClusterRole ClusterRoleBinding ServiceAccount",
			verbs: "clonesets,statefulsets,daemonsets: list,patch; namespaces: get,list,patch; pods: list",
		},
		"none":      {reason: "a person wants no check", values: "uninstall: {mode: none}"},
		"a dry run": {reason: "the pods wait for another installation", values: "extraArgs: [--dry-run]"},
		"a dry run, spelled out": {
			reason: "it is the same flag", values: "extraArgs: [--dry-run=true]",
		},
		"no dry run": {
			reason: "its pods wait for it", values: "extraArgs: [--dry-run=false]", account: "rollcall", argument: "--uninstall=check",
		},
	}, func(t *testing.T, c row) {
		objects, err := helm(t, example+c.values+"\n")
		expect.NoError(t, err)
		var account, argument string
		var rights, verbs []string
		for _, o := range objects {
			annotations := o.GetAnnotations()
			if annotations[hook] == "" || annotations[hook] == "test" {
				continue
			}
			if annotations[hook] != "pre-delete" {
				t.Errorf("%s: %s %s is a hook %s", c.reason, o.GetKind(), o.GetName(), annotations[hook])
			}
			if o.GetKind() != "Job" {
				rights = append(rights, o.GetKind())
				if annotations["helm.sh/hook-weight"] != "-1" {
					t.Errorf("%s: %s comes after the Job that needs it", c.reason, o.GetKind())
				}
				rules, _, _ := unstructured.NestedSlice(o.Object, "rules")
				for _, r := range rules {
					resources, _, _ := unstructured.NestedStringSlice(r.(map[string]any), "resources")
					may, _, _ := unstructured.NestedStringSlice(r.(map[string]any), "verbs")
					verbs = append(verbs, strings.Join(resources, ",")+": "+strings.Join(may, ","))
				}
				continue
			}
			account, _, _ = unstructured.NestedString(o.Object, "spec", "template", "spec", "serviceAccountName")
			containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
			arguments := containers[0].(map[string]any)["args"].([]any)
			argument = arguments[len(arguments)-1].(string)
		}
		slices.Sort(rights)
		if got := strings.Join(rights, " "); account != c.account || argument != c.argument || got != c.rights {
			t.Errorf("%s: account %q, argument %q, rights %q; want %q, %q, %q", c.reason, account, argument, got, c.account, c.argument, c.rights)
		}
		if got := strings.Join(verbs, "; "); got != c.verbs {
			t.Errorf("%s: the role has %q, want %q", c.reason, got, c.verbs)
		}
	})
}

// TestServiceAccountOfTheUser: the chart gives its roles to the one that the user created, and does not own it.
func TestServiceAccountOfTheUser(t *testing.T) {
	t.Parallel()
	objects, err := helm(t, example+evictions+"serviceAccount: {create: false, name: mine}\n")
	expect.NoError(t, err)
	for _, o := range objects {
		subjects, _, _ := unstructured.NestedSlice(o.Object, "subjects")
		for _, subject := range subjects {
			if name := subject.(map[string]any)["name"]; name != "mine" {
				t.Errorf("%s %s gives its rights to %v", o.GetKind(), o.GetName(), name)
			}
		}
		if o.GetKind() == "ServiceAccount" {
			t.Error("the chart has a ServiceAccount, which helm uninstall would delete")
		}
	}
}

// TestWritePolicyIsForTheAccountOfTheRelease: its parameters follow from what the account has to write.
func TestWritePolicyIsForTheAccountOfTheRelease(t *testing.T) {
	t.Parallel()
	objects, err := helmAs(t, "pay", strings.Replace(example, "cluster: example", "cluster: example\n"+
		"  hooks: {owned: [example.com/*], newlyCreated: [example.com/new]}", 1)+
		"serviceAccount: {name: mine}\nwritePolicy: {enabled: true}\n")
	expect.NoError(t, err)
	rendered := comparable(t, objects)
	parameters, _, _ := unstructured.NestedStringMap(rendered["ConfigMap/rollcall-write-policy"].(map[string]any), "data")
	want := map[string]string{"owned": "example.com/*", "newlyCreated": "example.com/new"}
	if diff := cmp.Diff(want, parameters); diff != "" {
		t.Errorf("parameters (-want +got):\n%s", diff)
	}
	for _, name := range []string{"pay-write-policy", "pay-write-policy-keys"} {
		text, err := yaml.Marshal(rendered["ValidatingAdmissionPolicy/"+name])
		expect.NoError(t, err)
		if !bytes.Contains(text, []byte("'system:serviceaccount:rollcall-system:mine'")) {
			t.Errorf("%s is not for the ServiceAccount of the release:\n%s", name, text)
		}
		if binding := rendered["ValidatingAdmissionPolicyBinding/"+name]; binding == nil {
			t.Errorf("%s is not bound", name)
		}
	}
}

// TestNetworkPolicyClosesWhatNobodyIsGiven: no rule stands for no restriction by accident.
func TestNetworkPolicyClosesWhatNobodyIsGiven(t *testing.T) {
	t.Parallel()
	const enabled = "networkPolicy: {enabled: true}\n"
	for _, c := range []struct{ reason, values, ports, types string }{
		{"only kubelet asks, and calls are not restricted", example + enabled, "health", "Ingress"},
		{"the API server asks about evictions", example + evictions + enabled, "health evictions", "Ingress"},
		{
			"the metrics are for those who are named", example + strings.Replace(enabled, "true", "true, metricsFrom: [{podSelector: {}}]", 1),
			"health metrics", "Ingress",
		},
		{
			"calls are restricted to what is given", example + strings.Replace(enabled, "true", "true, egress: [{ports: [{port: 443}]}]", 1),
			"health", "Ingress Egress",
		},
	} {
		objects, err := helm(t, c.values)
		expect.NoError(t, err)
		i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "NetworkPolicy" })
		if i < 0 {
			t.Fatalf("%s: there is no NetworkPolicy", c.reason)
		}
		var ports []string
		ingress, _, _ := unstructured.NestedSlice(objects[i].Object, "spec", "ingress")
		for _, rule := range ingress {
			for _, port := range rule.(map[string]any)["ports"].([]any) {
				ports = append(ports, port.(map[string]any)["port"].(string))
			}
		}
		types, _, _ := unstructured.NestedStringSlice(objects[i].Object, "spec", "policyTypes")
		if got, is := strings.Join(ports, " "), strings.Join(types, " "); got != c.ports || is != c.types {
			t.Errorf("%s: open are %q of %q, want %q of %q", c.reason, got, is, c.ports, c.types)
		}
	}
}

// TestImageRegistry: a mirror takes the place of the registry alone. What else tells releases apart is there too.
func TestImageRegistry(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]string{
		"":                                 "image: ghcr.io/rollcall-dev/rollcall:dev",
		"image: {registry: mirror:5000}\n": "image: mirror:5000/rollcall-dev/rollcall:dev",
	} {
		files, err := render4("rollcall", strings.Replace(example, "image: {registry: \"\", repository: rollcall}\n", values, 1))
		expect.NoError(t, err)
		if text := files["rollcall/templates/deployment.yaml"]; !strings.Contains(text, want+"\n") ||
			!strings.Contains(text, "app.kubernetes.io/instance: rollcall\n") {
			t.Errorf("with %q there is no %q in\n%s", values, want, text)
		}
	}
}

// TestGlobalImageRegistry: a parent chart sets one registry for all of its charts.
func TestGlobalImageRegistry(t *testing.T) {
	t.Parallel()
	objects, err := helm(t, example+"global: {imageRegistry: mirror.example.com}\n")
	expect.NoError(t, err)
	images := 0
	for _, o := range objects {
		containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
		for _, container := range containers {
			images++
			if got := container.(map[string]any)["image"]; got != "mirror.example.com/rollcall:dev" {
				t.Errorf("%s %s has the image %v", o.GetKind(), o.GetName(), got)
			}
		}
	}
	if images != 2 {
		t.Errorf("there are %d containers, want those of the Deployment and of the uninstall Job", images)
	}
}

// TestOverrides: what no value sets can be set all the same, and what is not overridden stays.
func TestOverrides(t *testing.T) {
	t.Parallel()
	objects, err := helm(t, example+monitoring+`
overrides:
  deployment:
    metadata: {annotations: {a: b}}
    spec:
      revisionHistoryLimit: 3
      strategy: {type: Recreate}
      template:
        spec:
          automountServiceAccountToken: false
          terminationGracePeriodSeconds: null
          initContainers: [{name: wait, image: wait}]
          volumes: [{name: config, configMap: {defaultMode: 256}}, {name: more, emptyDir: {}}]
          containers:
          - name: manager
            livenessProbe: {periodSeconds: 7}
            env: [{name: POD_NAME, valueFrom: null, value: fixed}, {name: MORE, value: x}]
            ports: [{containerPort: 8080, hostPort: 8080}]
            volumeMounts: [{mountPath: /etc/rollcall/tls, readOnly: false}]
          - {name: proxy, image: "proxy:1"}
  podDisruptionBudget: {spec: {maxUnavailable: null, minAvailable: 1}}
  serviceMonitor: {spec: {sampleLimit: 1000, endpoints: [{port: metrics, scrapeTimeout: 5s}]}}
`)
	expect.NoError(t, err)
	plain, err := helm(t, example+monitoring)
	expect.NoError(t, err)
	want := comparable(t, plain)
	change := func(object string, do func(spec map[string]any)) {
		do(want[object].(map[string]any)["spec"].(map[string]any))
	}
	want["Deployment/rollcall"].(map[string]any)["metadata"].(map[string]any)["annotations"] = map[string]any{"a": "b"}
	change("Deployment/rollcall", func(spec map[string]any) {
		spec["revisionHistoryLimit"], spec["strategy"] = 3.0, map[string]any{"type": "Recreate"}
		pod := spec["template"].(map[string]any)["spec"].(map[string]any)
		pod["automountServiceAccountToken"] = false
		delete(pod, "terminationGracePeriodSeconds")
		pod["initContainers"] = []any{map[string]any{"name": "wait", "image": "wait"}}
		volumes := pod["volumes"].([]any)
		volumes[0].(map[string]any)["configMap"].(map[string]any)["defaultMode"] = 256.0
		pod["volumes"] = append(volumes, map[string]any{"name": "more", "emptyDir": map[string]any{}})
		containers := pod["containers"].([]any)
		manager := containers[0].(map[string]any)
		manager["livenessProbe"].(map[string]any)["periodSeconds"] = 7.0
		env := manager["env"].([]any)
		env[0] = map[string]any{"name": "POD_NAME", "value": "fixed"}
		manager["env"] = append(env, map[string]any{"name": "MORE", "value": "x"})
		manager["ports"].([]any)[0].(map[string]any)["hostPort"] = 8080.0
		manager["volumeMounts"].([]any)[1].(map[string]any)["readOnly"] = false
		pod["containers"] = append(containers, map[string]any{"name": "proxy", "image": "proxy:1"})
	})
	change("PodDisruptionBudget/rollcall", func(spec map[string]any) {
		delete(spec, "maxUnavailable")
		spec["minAvailable"] = 1.0
	})
	change("ServiceMonitor/rollcall", func(spec map[string]any) {
		spec["sampleLimit"] = 1000.0
		spec["endpoints"].([]any)[0].(map[string]any)["scrapeTimeout"] = "5s"
	})
	if diff := cmp.Diff(want, comparable(t, objects), cmp.Transformer("numbers", numbers)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

// numbers makes each number a float64: one that is decoded by itself is an integer.
func numbers(number int64) float64 { return float64(number) }

// TestHelmTest: helm test asks the registries as the managers do, and ends.
func TestHelmTest(t *testing.T) {
	t.Parallel()
	type row struct{ reason, values, argument string }
	expect.Each(t, map[string]row{
		"default":                {reason: "it writes an entry and removes it", argument: "--check-registries"},
		"a dry run":              {reason: "it writes nothing", values: "extraArgs: [--dry-run]", argument: "--check-config"},
		"a dry run, spelled out": {reason: "it is the same flag", values: "extraArgs: [--dry-run=true]", argument: "--check-config"},
		"no dry run":             {reason: "it is the same flag", values: "extraArgs: [--dry-run=false]", argument: "--check-registries"},
		"a sidecar": {
			reason: "the pod would never end", argument: "--check-registries",
			values: "overrides: {deployment: {spec: {template: {spec: {containers: [{name: proxy, image: proxy}]}}}}}",
		},
	}, func(t *testing.T, c row) {
		objects, err := helm(t, example+"secrets: {auth: mine}\nserviceAccount: {name: of-mine}\n"+c.values+"\n")
		expect.NoError(t, err)
		i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetAnnotations()[hook] == "test" })
		if i < 0 {
			t.Fatalf("%s: there is no test", c.reason)
		}
		containers, _, _ := unstructured.NestedSlice(objects[i].Object, "spec", "containers")
		account, _, _ := unstructured.NestedString(objects[i].Object, "spec", "serviceAccountName")
		restarts, _, _ := unstructured.NestedString(objects[i].Object, "spec", "restartPolicy")
		text, err := yaml.Marshal(objects[i])
		expect.NoError(t, err)
		arguments := containers[0].(map[string]any)["args"].([]any)
		if len(containers) != 1 || arguments[len(arguments)-1] != c.argument || account != "of-mine" || restarts != "Never" ||
			!bytes.Contains(text, []byte("secretName: mine")) || bytes.Contains(text, []byte("Probe")) ||
			objects[i].GetLabels()["app.kubernetes.io/component"] == "manager" {
			t.Errorf("%s: the test is\n%s", c.reason, text)
		}
	})
}

func TestAlertsOfTheUser(t *testing.T) {
	t.Parallel()
	rules := func(values string) map[string]map[string]any {
		objects, err := helm(t, example+strings.Replace(monitoring, "prometheusRule: {", "prometheusRule: {"+values+", ", 1))
		expect.NoError(t, err)
		byName := map[string]map[string]any{}
		for _, o := range objects {
			groups, _, _ := unstructured.NestedSlice(o.Object, "spec", "groups")
			for _, group := range groups {
				for _, rule := range group.(map[string]any)["rules"].([]any) {
					byName[rule.(map[string]any)["alert"].(string)] = rule.(map[string]any)
				}
			}
		}
		return byName
	}
	before := rules("labels: {}")
	for alert, threshold := range map[string]string{
		"RollcallPodWaitsTooLong": "> 600", "RollcallPodDrainedForNothing": "> 600", "RollcallResyncFails": "> 900",
		"RollcallEvictionsNotServed": "< 604800",
	} {
		after := rules("alerts: {" + alert + ": {threshold: 7200, for: 3m, labels: {severity: page, team: web}}}")
		want := maps.Clone(before[alert])
		want["expr"] = strings.Replace(want["expr"].(string), threshold, threshold[:2]+"7200", 1)
		want["for"], want["labels"] = "3m", map[string]any{"severity": "page", "team": "web"}
		if diff := cmp.Diff(want, after[alert]); diff != "" || want["expr"] == before[alert]["expr"] {
			t.Errorf("%s (-want +got):\n%s", alert, diff)
		}
		if delete(after, alert); len(after) != len(before)-1 {
			t.Errorf("%d alerts are left, want all but %s", len(after), alert)
		}
	}
	if after := rules("alerts: {RollcallWorkloadsUnmatched: {enabled: false}}"); len(after) != len(before)-1 || after["RollcallWorkloadsUnmatched"] != nil {
		t.Errorf("%d alerts are left, want all but the one that is disabled", len(after))
	}
}

// TestRolesOfTheUser: the chart creates no role and no binding, whatever is on.
func TestRolesOfTheUser(t *testing.T) {
	t.Parallel()
	values := strings.Replace(example, "driver: http", "driver: endpointslice", 1) + "  podCondition: true\n  enroll: true\n" + evictions + monitoring
	with, err := helm(t, values)
	expect.NoError(t, err)
	without, err := helm(t, values+"rbac: {create: false}\n")
	expect.NoError(t, err)
	want, got := comparable(t, with), comparable(t, without)
	roles := 0
	for object := range want {
		if strings.Contains(object, "Role") {
			roles++
			delete(want, object)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || roles < 10 {
		t.Errorf("%d roles and bindings, want 10 at least; the other objects (-with them +without):\n%s", roles, diff)
	}
}

// TestValuesForProduction: the file that docs/production.md has people download renders, and the manager takes its configuration.
func TestValuesForProduction(t *testing.T) {
	t.Parallel()
	values, err := os.ReadFile("rollcall/values-production.yaml")
	expect.NoError(t, err)
	objects, err := helm(t, string(values))
	expect.NoError(t, err)
	rendered := comparable(t, objects)
	for _, object := range []string{
		"MutatingWebhookConfiguration/rollcall-evictions", "ServiceMonitor/rollcall", "PrometheusRule/rollcall",
		"ValidatingAdmissionPolicy/rollcall-lint", "ValidatingAdmissionPolicy/rollcall-write-policy",
	} {
		if rendered[object] == nil {
			t.Errorf("it renders %v, and no %s", slices.Sorted(maps.Keys(rendered)), object)
		}
	}
	if text, err := yaml.Marshal(rendered["Deployment/rollcall"]); err != nil || !bytes.Contains(text, []byte("tolerationSeconds: 30")) {
		t.Errorf("the managers stay on a node that has died for longer than 30 s: %v\n%s", err, text)
	}
}

// TestChartServesPlainMetricsWhereAsked: the kubectl plugin reads the status page over the API server's proxy, which passes on no token.
func TestChartServesPlainMetricsWhereAsked(t *testing.T) {
	t.Parallel()
	objects, err := helm(t, example+monitoring+"  secure: false\n")
	expect.NoError(t, err)
	text, err := yaml.Marshal(comparable(t, objects))
	expect.NoError(t, err)
	for _, of := range []string{"--metrics-secure", "scheme: https", "rollcall-metrics-reader", "tokenreviews"} {
		if bytes.Contains(text, []byte(of)) {
			t.Errorf("it renders %q", of)
		}
	}
}

// The manager refuses a change of cluster, namespaces, features and what a registry is until it starts again, and everything else in that
// edit with it.
func TestChartRestartsTheManagersWhereTheyMustStartAnew(t *testing.T) {
	t.Parallel()
	template := func(former, now string) any {
		objects, err := helm(t, strings.Replace(example, former, now, 1))
		expect.NoError(t, err)
		for _, o := range objects {
			if o.GetKind() == "Deployment" {
				annotations, _, _ := unstructured.NestedMap(o.Object, "spec", "template", "metadata", "annotations")
				return annotations["checksum/config"]
			}
		}
		return nil
	}
	before := template("", "")
	if _, is := before.(string); !is {
		t.Errorf("the checksum is %v, want a text", before)
	}
	const registry = `registry: {driver: http, endpoint: "https://registry.example.com"}`
	for _, c := range []struct {
		reason, former, now string
		restarts            bool
	}{
		{"the manager marks entries with it", "cluster: example", "cluster: other", true},
		{"the manager's caches are made for them", "cluster: example", "cluster: example\n  namespaces: [orders]", true},
		{"its controller is added once", "cluster: example", "cluster: example\n  enroll: true", true},
		{"its server is made once", "cluster: example", "cluster: example\n  evictions: {enabled: true}", true},
		{"a running manager applies it", "cluster: example", "cluster: example\n  drain: 7s", false},
		{"a name stands for one registry while the manager runs", "registry.example.com", "other.example.com", true},
		{"and a registry keeps its name", registry, `registries: [{name: main, driver: http, endpoint: "https://registry.example.com"}]`, true},
		{"default is the name of the only one", registry, `registries: [{name: default, driver: http, endpoint: "https://registry.example.com"}]`, false},
		{"it is the same registry", "5s", "3s", false},
	} {
		if now := template(c.former, c.now); (now != before) != c.restarts {
			t.Errorf("with %q the pods restart: %v, want %v: %s", c.now, now != before, c.restarts, c.reason)
		}
	}
}

// Two releases share a cluster by namespaces, and each must know its webhook by name.
func TestReleasesHaveClusterObjectsOfTheirOwn(t *testing.T) {
	t.Parallel()
	values := strings.Replace(example, "cluster: example", "cluster: example\n  namespaces: [orders]", 1)
	objects, err := helmAs(t, "shop", values+evictions+"  enroll: true\n  podCondition: true\nlint: {enabled: true}\n"+
		"pluginRoles: {enabled: true}"+monitoring)
	expect.NoError(t, err)
	rendered := comparable(t, objects)
	for _, o := range objects {
		if o.GetNamespace() == "" && !strings.HasPrefix(o.GetName(), "shop-") {
			t.Errorf("another release has a %s %s too", o.GetKind(), o.GetName())
		}
	}
	for _, kind := range []string{"MutatingWebhookConfiguration", "Service", "Secret", "ClusterRole", "Role"} {
		if rendered[kind+"/shop-evictions"] == nil {
			t.Errorf("there is no %s shop-evictions in %v", kind, slices.Sorted(maps.Keys(rendered)))
		}
	}
	for object, part := range map[string]string{
		"ConfigMap/rollcall-config":                          "name: shop-evictions",
		"MutatingWebhookConfiguration/shop-evictions":        "operator: In\n      values:\n      - orders\n",
		"ValidatingAdmissionPolicyBinding/shop-lint":         "- orders",
		"ValidatingAdmissionPolicyBinding/shop-lint-unowned": "policyName: shop-lint-unowned",
	} {
		text, err := yaml.Marshal(rendered[object])
		expect.NoError(t, err)
		if !bytes.Contains(text, []byte(part)) {
			t.Errorf("%s does not have %q:\n%s", object, part, text)
		}
	}
}

// TestNamespacesByLabel: what is asked about evictions and new CloneSets is asked where the manager works.
func TestNamespacesByLabel(t *testing.T) {
	t.Parallel()
	const selector = "\n  namespaces: {matchLabels: {team: orders}, matchExpressions: [{key: tier, operator: Exists}]}"
	values := strings.Replace(example, "cluster: example", "cluster: example"+selector, 1)
	objects, err := helmAs(t, "shop", values+evictions+"lint: {enabled: true}\n")
	expect.NoError(t, err)
	rendered := comparable(t, objects)
	const byLabel = "namespaceSelector:\n    matchExpressions:\n    - key: tier\n      operator: Exists\n"
	for object, parts := range map[string][]string{
		"ConfigMap/rollcall-config":                   {"team: orders"},
		"MutatingWebhookConfiguration/shop-evictions": {byLabel, "operator: NotIn\n      values:\n      - kube-system\n", "matchLabels:\n      team: orders\n"},
		"ValidatingAdmissionPolicyBinding/shop-lint":  {"matchExpressions:\n      - key: tier\n", "matchLabels:\n        team: orders\n"},
	} {
		text, err := yaml.Marshal(rendered[object])
		expect.NoError(t, err)
		for _, part := range parts {
			if !bytes.Contains(text, []byte(part)) {
				t.Errorf("%s does not have %q:\n%s", object, part, text)
			}
		}
	}
	if _, err := helm(t, values+"rbac: {clusterRole: false}\n"); err == nil || !strings.Contains(err.Error(), "list the namespaces in config.namespaces") {
		t.Errorf("got %v with Roles alone, want what to set", err)
	}
}

// TestRolesInPlaceOfTheClusterRole: the managers of a list of namespaces have what they need there, and nothing elsewhere.
func TestRolesInPlaceOfTheClusterRole(t *testing.T) {
	t.Parallel()
	values := strings.Replace(example, "driver: http", "driver: endpointslice", 1)
	values = strings.Replace(values, "cluster: example", "cluster: example\n  namespaces: [orders, pay]", 1) + "  podCondition: true\n  enroll: true\n"
	whole, err := helm(t, values)
	expect.NoError(t, err)
	want := rightsIn(t, whole)[""]
	objects, err := helm(t, values+"rbac: {clusterRole: false}\n")
	expect.NoError(t, err)
	got := rightsIn(t, objects)
	for _, right := range want {
		resource, verb, _ := strings.Cut(right, " ")
		if resource == "nodes" || resource == "namespaces" && verb != "get" {
			continue // no Role grants them
		}
		for _, namespace := range []string{"orders", "pay"} {
			if !slices.Contains(got[namespace], right) {
				t.Errorf("in %s, the managers lack %q of %q", namespace, right, got[namespace])
			}
		}
	}
	if len(want) == 0 || len(got[""]) > 0 {
		t.Errorf("in the whole cluster, the managers have %q, and had %q", got[""], want)
	}
	if !slices.Contains(got["kube-system"], "namespaces get") || !slices.Contains(got["rollcall-system"], "events create") {
		t.Errorf("the managers can't identify the cluster, or tell of the configuration: %q", got)
	}
	if _, err := helm(t, example+"rbac: {clusterRole: false}\n"); err == nil || !strings.Contains(err.Error(), "config.namespaces") {
		t.Errorf("got %v without namespaces, want what to set", err)
	}
}

// rightsIn are the managers' rights by namespace, none for the whole cluster, as far as bound.
func rightsIn(t *testing.T, objects []*unstructured.Unstructured) map[string][]string {
	t.Helper()
	granted, bound := map[string][]string{}, map[string][]string{}
	for _, o := range objects {
		rules, _, _ := unstructured.NestedSlice(o.Object, "rules")
		for _, rule := range rules {
			resources, _, _ := unstructured.NestedStringSlice(rule.(map[string]any), "resources")
			verbs, _, _ := unstructured.NestedStringSlice(rule.(map[string]any), "verbs")
			for _, resource := range resources {
				for _, verb := range verbs {
					role := o.GetNamespace() + "/" + o.GetName()
					granted[role] = append(granted[role], resource+" "+verb)
				}
			}
		}
	}
	for _, o := range objects {
		name, found, _ := unstructured.NestedString(o.Object, "roleRef", "name")
		if found {
			bound[o.GetNamespace()] = append(bound[o.GetNamespace()], granted[o.GetNamespace()+"/"+name]...)
		}
	}
	return bound
}

// helm renders the chart as helm install rollcall --namespace rollcall-system does.
func helm(t *testing.T, text string) ([]*unstructured.Unstructured, error) {
	t.Helper()
	return helmAs(t, "rollcall", text)
}

// helmAs is helm for a release of another name.
func helmAs(t *testing.T, release, text string) ([]*unstructured.Unstructured, error) {
	t.Helper()
	files, err := render4(release, text)
	files3, err3 := render3(release, text)
	if diff := cmp.Diff(files3, files); diff != "" || (err3 == nil) != (err == nil) {
		t.Errorf("Helm 3 (-) and Helm 4 (+) render the chart differently, with the errors %v and %v:\n%s", err3, err, diff)
	}
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, ".yaml") {
			objects = append(objects, decode(t, strings.NewReader(files[name]))...)
		}
	}
	return objects, nil
}

// render4 returns the files that Helm 4 renders.
func render4(release, text string) (map[string]string, error) {
	chart, err := loader.Load("rollcall")
	if err != nil {
		return nil, err
	}
	values, err := common.ReadValues([]byte(text))
	if err != nil {
		return nil, err
	}
	options := common.ReleaseOptions{Name: release, Namespace: "rollcall-system", IsInstall: true}
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.KubeVersion = common.KubeVersion{Version: "v1.37.0", Major: "1", Minor: "37"}
	all, err := util.ToRenderValues(chart, values, options, capabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(chart, all)
}

// render3 returns those that Helm 3 renders.
func render3(release, text string) (map[string]string, error) {
	chart, err := loader3.Load("rollcall")
	if err != nil {
		return nil, err
	}
	values, err := chartutil3.ReadValues([]byte(text))
	if err != nil {
		return nil, err
	}
	options := chartutil3.ReleaseOptions{Name: release, Namespace: "rollcall-system", IsInstall: true}
	capabilities := chartutil3.DefaultCapabilities.Copy()
	capabilities.KubeVersion = chartutil3.KubeVersion{Version: "v1.37.0", Major: "1", Minor: "37"}
	all, err := chartutil3.ToRenderValues(chart, values, options, capabilities)
	if err != nil {
		return nil, err
	}
	return engine3.Render(chart, all)
}

func kustomize(t *testing.T, overlay string) []*unstructured.Unstructured {
	t.Helper()
	folder := t.TempDir()
	config, err := filepath.Abs("../config")
	expect.NoError(t, err)
	if config, err = filepath.Rel(folder, config); err != nil { // kustomize takes no absolute path
		t.Fatal(err)
	}
	overlay = "kind: Kustomization\n" + strings.NewReplacer("[", "["+config+"/", ", ", ", "+config+"/").Replace(overlay)
	expect.NoError(t, os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(overlay), 0o600))
	command := exec.CommandContext(t.Context(), "go", "tool", "-modfile=../hack/tools/go.mod", "kustomize", "build", folder)
	// As in the Makefile, whatever the tests run with: so the tool is built once.
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("kustomize build: %v\n%s", err, stderr.String())
	}
	return decode(t, bytes.NewReader(out))
}

func decode(t *testing.T, r io.Reader) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	decoder := utilyaml.NewYAMLOrJSONDecoder(r, 4096)
	for {
		object := map[string]any{}
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		expect.NoError(t, err)
		if len(object) > 0 {
			objects = append(objects, &unstructured.Unstructured{Object: object})
		}
	}
}

// comparable returns the objects by kind and name, without the labels that say who rendered them, the image's tag, what
// restarts the managers, and the comments and order of the configuration.
func comparable(t *testing.T, objects []*unstructured.Unstructured) map[string]any {
	t.Helper()
	byName := map[string]any{}
	for _, o := range objects {
		if o.GetAnnotations()[hook] != "" {
			continue // it is Helm's alone
		}
		labels := o.GetLabels()
		for _, renderer := range []string{"app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "app.kubernetes.io/version", "helm.sh/chart"} {
			delete(labels, renderer)
		}
		o.SetLabels(labels)
		switch o.GetKind() {
		case "ConfigMap":
			text, is, _ := unstructured.NestedString(o.Object, "data", "config.yaml")
			if !is {
				break
			}
			if _, err := config.Parse([]byte(text), config.Limits{Drivers: []string{"consul", "http", "endpointslice"}}); err != nil {
				t.Fatalf("the manager refuses the configuration: %v", err)
			}
			var content map[string]any
			expect.NoError(t, yaml.Unmarshal([]byte(text), &content))
			o.Object["data"] = content
		case "Deployment":
			unstructured.RemoveNestedField(o.Object, "spec", "template", "metadata", "annotations", "checksum/config")
			unstructured.RemoveNestedField(o.Object, "spec", "template", "metadata", "labels", "app.kubernetes.io/instance")
			containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
			manager := containers[0].(map[string]any)
			manager["image"], _, _ = strings.Cut(manager["image"].(string), ":")
			if manager["imagePullPolicy"] == "IfNotPresent" { // the API server's default for a tag that is not latest
				delete(manager, "imagePullPolicy")
			}
			expect.NoError(t, unstructured.SetNestedSlice(o.Object, containers, "spec", "template", "spec", "containers"))
		}
		byName[o.GetKind()+"/"+o.GetName()] = o.Object
	}
	return byName
}
