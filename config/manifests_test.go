// Package config_test holds the manifests to what they promise: it renders each kustomization, decodes what comes out
// strictly, and looks at the facts that a cluster would only show later.
package config_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/enroll"
	"github.com/rollcall-dev/rollcall/internal/lint"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
)

const namespace = "rollcall-system"

func TestEveryKustomizationRenders(t *testing.T) {
	t.Parallel()
	var folders []string
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && path == "components" { // the tests of the chart render them, on top of default
			return fs.SkipDir
		}
		if err == nil && entry.Name() == "kustomization.yaml" {
			folders = append(folders, filepath.Dir(path))
		}
		return err
	})
	expect.NoError(t, err)
	if !slices.Contains(folders, "default") || !slices.Contains(folders, "samples") {
		t.Fatalf("kustomizations: got %v, want default and samples among them", folders)
	}
	for _, folder := range folders {
		t.Run(folder, func(t *testing.T) {
			t.Parallel()
			objects, err := render(folder)
			expect.NoError(t, err)
			if len(objects) == 0 {
				t.Error("renders nothing")
			}
			for _, object := range objects {
				if c, is := object.(*corev1.ConfigMap); is && c.Data["config.yaml"] != "" && c.Name != "rollcall-config" {
					t.Errorf("the configuration is in ConfigMap %s: neither the manager's Events nor the kubectl plugin know that name", c.Name)
				}
			}
		})
	}
}

func TestAllIsInOneNamespace(t *testing.T) {
	t.Parallel()
	clusterWide := []string{"Namespace", "ClusterRole", "ClusterRoleBinding"}
	for _, object := range manifests(t) {
		kind := object.GetObjectKind().GroupVersionKind().Kind
		want := namespace
		if slices.Contains(clusterWide, kind) {
			want = ""
		}
		expect.Equal(t, want, object.GetNamespace(), "%s %s: namespace", kind, object.GetName())
	}
	expect.Equal(t, namespace, only[*corev1.Namespace](t).Name, "namespace")
}

func TestRolesGrantNoMoreThanIsUsed(t *testing.T) {
	t.Parallel()
	rules := slices.Concat(only[*rbacv1.ClusterRole](t).Rules, only[*rbacv1.Role](t).Rules)
	if len(rules) == 0 {
		t.Fatal("no rules: were they generated? make manifests")
	}
	got := map[string][]string{}
	for _, rule := range rules {
		if slices.Contains(slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs), rbacv1.ResourceAll) {
			t.Errorf("rule %v has a wildcard", rule)
		}
		if len(rule.NonResourceURLs) > 0 {
			t.Errorf("rule %v grants URLs", rule)
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				key := resource + "." + group
				got[key] = slices.Compact(slices.Sorted(slices.Values(slices.Concat(got[key], rule.Verbs))))
			}
		}
	}
	want := map[string][]string{
		"namespaces.":                 {"get", "list", "watch"},
		"nodes.":                      {"get", "list", "watch"},
		"pods.":                       {"get", "list", "patch", "watch"},
		"clonesets.apps.kruise.io":    {"get", "list", "watch"},
		"daemonsets.apps.kruise.io":   {"get", "list", "watch"},
		"statefulsets.apps.kruise.io": {"get", "list", "watch"},
		"events.events.k8s.io":        {"create", "patch"},
		"leases.coordination.k8s.io":  {"create", "get", "update"},
	}
	expect.Equal(t, want, got, "what the manager may do, each a verb that the code needs")
}

func TestBindingsNameWhatExists(t *testing.T) {
	t.Parallel()
	account := only[*corev1.ServiceAccount](t).Name
	want := []binding{
		{"", "ClusterRole", only[*rbacv1.ClusterRole](t).Name, rbacv1.Subject{Kind: "ServiceAccount", Name: account, Namespace: namespace}},
		{namespace, "Role", only[*rbacv1.Role](t).Name, rbacv1.Subject{Kind: "ServiceAccount", Name: account, Namespace: namespace}},
	}
	if diff := cmp.Diff(want, bindings(manifests(t)), cmpopts.SortSlices(func(a, b binding) bool { return a.Kind < b.Kind })); diff != "" {
		t.Errorf("the bindings (-want +got):\n%s", diff)
	}
	expect.Equal(t, account, only[*appsv1.Deployment](t).Spec.Template.Spec.ServiceAccountName, "the Deployment's service account")
}

// TestManagerRunsOnLinux: the image has no other platform, and a Windows node without a taint would be given a manager that never starts.
func TestManagerRunsOnLinux(t *testing.T) {
	t.Parallel()
	want := map[string]string{corev1.LabelOSStable: "linux"}
	expect.Equal(t, want, only[*appsv1.Deployment](t).Spec.Template.Spec.NodeSelector, "the pod's nodeSelector")
}

// TestNoSidecarStopsBeforeTheManager: for 45 s it finishes calls and gives its Lease back, and needs the network.
func TestNoSidecarStopsBeforeTheManager(t *testing.T) {
	t.Parallel()
	pod := only[*appsv1.Deployment](t).Spec.Template
	for key, want := range map[string]string{"sidecar.istio.io/inject": "false", "kuma.io/sidecar-injection": "disabled"} {
		expect.Equal(t, want, pod.Labels[key], "label %s", key)
	}
	for key, want := range map[string]string{"consul.hashicorp.com/connect-inject": "false", "linkerd.io/inject": "disabled"} {
		expect.Equal(t, want, pod.Annotations[key], "annotation %s", key)
	}
}

func TestManagerHasNoPrivilege(t *testing.T) {
	t.Parallel()
	pod := only[*appsv1.Deployment](t).Spec.Template.Spec
	if pod.HostNetwork || pod.HostPID || pod.HostIPC {
		t.Error("the pod shares a namespace of the host")
	}
	// No user and no group, of which OpenShift refuses all but the namespace's own. The image has them.
	wantPod := &corev1.PodSecurityContext{
		RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	expect.Equal(t, wantPod, pod.SecurityContext, "the pod's securityContext")
	wantContainer := &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	container := manager(t)
	expect.Equal(t, wantContainer, container.SecurityContext, "the container's securityContext")
	for _, volume := range pod.Volumes {
		// Without a group of its own, the manager reads files as anyone does.
		if s, c := volume.Secret, volume.ConfigMap; s != nil && s.DefaultMode != nil || c != nil && c.DefaultMode != nil {
			t.Errorf("volume %s has a mode of its own", volume.Name)
		}
	}
	for _, mount := range container.VolumeMounts {
		if !mount.ReadOnly {
			t.Errorf("volume %s is mounted to be written", mount.Name)
		}
	}
	if container.Resources.Requests.Cpu().IsZero() || container.Resources.Limits.Memory().IsZero() {
		t.Error("the container has no CPU request or no memory limit")
	}
	expect.Equal(t, "restricted", only[*corev1.Namespace](t).Labels["pod-security.kubernetes.io/enforce"], "the namespace enforces")
}

func TestManagerFindsItsConfiguration(t *testing.T) {
	t.Parallel()
	const file = "config.yaml"
	container, pod := manager(t), only[*appsv1.Deployment](t).Spec.Template.Spec
	configMap := only[*corev1.ConfigMap](t)
	if configMap.Name != "rollcall-config" || configMap.Data[file] == "" {
		t.Fatalf("ConfigMap %s has keys %v, want rollcall-config with %s", configMap.Name, configMap.Data, file)
	}
	volume := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool {
		return v.ConfigMap != nil && v.ConfigMap.Name == configMap.Name
	})
	if volume < 0 {
		t.Fatalf("no volume brings ConfigMap %s", configMap.Name)
	}
	mount := slices.IndexFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.Name == pod.Volumes[volume].Name
	})
	if mount < 0 {
		t.Fatalf("volume %s is not mounted", pod.Volumes[volume].Name)
	}
	expect.Equal(t, "", container.VolumeMounts[mount].SubPath, "the configuration is mounted by subPath, so a change would never arrive")
	want := "--config=" + container.VolumeMounts[mount].MountPath + "/" + file
	if !slices.Contains(container.Args, want) {
		t.Errorf("arguments %q, want %q among them", container.Args, want)
	}
	if !slices.Contains(container.Args, "--leader-elect") {
		t.Errorf("arguments %q, want --leader-elect among them: there are several managers", container.Args)
	}
	for name, field := range map[string]string{"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace"} {
		if i := slices.IndexFunc(container.Env, func(e corev1.EnvVar) bool { return e.Name == name }); i < 0 ||
			container.Env[i].ValueFrom.FieldRef.FieldPath != field {
			t.Errorf("environment %v, want %s from the pod", container.Env, name)
		}
	}
}

func TestConfigurationIsAccepted(t *testing.T) {
	t.Parallel()
	section := configuration(t).Registries[config.DefaultRegistry]
	if section.Driver != "http" || section.Endpoint == "" {
		t.Errorf("registry %+v, want driver http with an endpoint", section)
	}
}

// TestSmallestConfiguration: what a reader meets first is a whole configuration, and each line of it is required.
func TestSmallestConfiguration(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"../README.md", "../docs/configuration.md"} {
		text, err := os.ReadFile(page)
		expect.NoError(t, err)
		_, after, _ := strings.Cut(string(text), "```yaml\n")
		first, _, _ := strings.Cut(after, "```")
		if _, err := config.Parse([]byte(first), config.Limits{Drivers: []string{"consul"}}); err != nil {
			t.Errorf("%s: %v\n%s", page, err, first)
		}
		for line := range strings.Lines(first) {
			if c, err := config.Parse([]byte(strings.Replace(first, line, "", 1)), config.Limits{Drivers: []string{"consul"}}); err == nil &&
				c.Registries[config.DefaultRegistry].Endpoint != "" {
				t.Errorf("%s: the first configuration works without %q", page, line)
			}
		}
	}
}

// A comment that shows a default has to be true: with it the configuration is what it is without.
func TestCommentedDefaultsAreThoseOfTheManager(t *testing.T) {
	t.Parallel()
	inForce := func(c *config.Config) string {
		section := c.Registries[config.DefaultRegistry]
		return fmt.Sprint(c.Namespaces, section.Timeout, section.RegisteredByApp, c.Service.Name, c.Drain, c.PanicThreshold, c.Resync)
	}
	shown := uncommented(t, "namespaces", "timeout", "registeredBy", "service", "name", "drain", "panicThreshold", "resync")
	expect.Equal(t, inForce(configuration(t)), inForce(shown), "what is in force")
}

// A comment that shows a field is as good as documentation: it has to be true.
func TestConfigurationIsAcceptedWithEachCommentedField(t *testing.T) {
	t.Parallel()
	got := uncommented(t, "tls", "caFile", "certFile", "keyFile", "auth", "tokenFile", "hooks", "service", "port", "metadata", "proceedAfter",
		"enroll", "podCondition", "statusPage", "evictions")
	section := got.Registries[config.DefaultRegistry]
	if section.TLS.CAFile == "" || section.TLS.KeyFile == "" || section.Auth.TokenFile == "" || got.Service.Port == 0 ||
		len(got.Service.Metadata) == 0 || len(got.Hooks.Owned) == 0 || !got.Evictions.Enabled || !got.Enroll {
		t.Errorf("got %+v, want the fields that were commented", got)
	}
}

// uncommented is the configuration of config/default with these of its commented fields.
func uncommented(t *testing.T, fields ...string) *config.Config {
	t.Helper()
	var lines []string
	shown := 0
	for line := range strings.Lines(only[*corev1.ConfigMap](t).Data["config.yaml"]) {
		before, field, _ := strings.Cut(line, "# ")
		if slices.Contains(fields, strings.TrimSpace(strings.SplitN(field, ":", 2)[0])) {
			line = before + field
			shown++
		}
		lines = append(lines, line)
	}
	if shown != len(fields) {
		t.Fatalf("found %d commented fields, want %q", shown, fields)
	}
	text := strings.Join(lines, "")
	got, err := config.Parse([]byte(text), limits())
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return got
}

func TestExamplesAreAccepted(t *testing.T) {
	t.Parallel()
	for folder, registries := range map[string]int{"two-registries": 2, "one-namespace": 1, "own-keys": 1} {
		t.Run(folder, func(t *testing.T) {
			t.Parallel()
			objects, err := render("examples/" + folder)
			expect.NoError(t, err)
			configMap := named[*corev1.ConfigMap](t, objects, "rollcall-config")
			if configMap.Namespace != namespace {
				t.Errorf("the ConfigMap is in %s, where the manager would not find it", configMap.Namespace)
			}
			got, err := config.Parse([]byte(configMap.Data["config.yaml"]), config.Limits{Drivers: []string{"consul", "eureka", "nacos"}})
			expect.NoError(t, err)
			if names := got.RegistryNames(); len(names) != registries || len(got.DefaultRegistries) != 1 {
				t.Errorf("registries %q with the defaults %q, want %d and one", names, got.DefaultRegistries, registries)
			}
		})
	}
}

// A file that the configuration names must be in a folder that is mounted.
func TestFilesOfTheConfigurationsAreMounted(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("examples/two-registries/config.yaml")
	expect.NoError(t, err)
	files := regexp.MustCompile(`/etc/rollcall/\S+`).FindAllString(only[*corev1.ConfigMap](t).Data["config.yaml"]+string(text), -1)
	if len(files) < 5 {
		t.Fatalf("found only %q", files)
	}
	for _, file := range files {
		mounted := slices.ContainsFunc(manager(t).VolumeMounts, func(m corev1.VolumeMount) bool {
			return m.MountPath == path.Dir(file) && m.SubPath == ""
		})
		if !mounted {
			t.Errorf("%s is in no folder that is mounted", file)
		}
	}
}

func TestSelectorsFindTheManager(t *testing.T) {
	t.Parallel()
	deployment, budget := only[*appsv1.Deployment](t), only[*policyv1.PodDisruptionBudget](t)
	set := labels.Set(deployment.Spec.Template.Labels)
	for name, selector := range map[string]*metav1.LabelSelector{
		"Deployment": deployment.Spec.Selector, "PodDisruptionBudget": budget.Spec.Selector,
	} {
		matcher, err := metav1.LabelSelectorAsSelector(selector)
		expect.NoError(t, err)
		if matcher.Empty() || !matcher.Matches(set) {
			t.Errorf("%s selects %s, which is not the pod with %s", name, matcher, set)
		}
	}
	if policy := budget.Spec.UnhealthyPodEvictionPolicy; policy == nil || *policy != policyv1.AlwaysAllow {
		t.Error("a drain waits for managers that are not ready")
	}
	if container := manager(t); container.LivenessProbe.HTTPGet.Path != "/healthz" ||
		container.ReadinessProbe.HTTPGet.Path != "/readyz" {
		t.Errorf("probes ask %s and %s", container.LivenessProbe.HTTPGet.Path, container.ReadinessProbe.HTTPGet.Path)
	}
}

// The samples are held to what the configuration beside them claims.
func TestSamplesHaveHooks(t *testing.T) {
	t.Parallel()
	c := configuration(t)
	objects, err := render("samples")
	expect.NoError(t, err)
	styles := map[string]bool{}
	for _, object := range objects {
		set, isCloneSet := object.(*kruisev1alpha1.CloneSet)
		if !isCloneSet {
			t.Errorf("%T is no CloneSet", object)
			continue
		}
		t.Run(set.Name, func(t *testing.T) {
			t.Parallel()
			expectHooked(t, set, c)
		})
		styles["finalizers"] = styles["finalizers"] || len(set.Spec.Lifecycle.PreDelete.FinalizersHandler) > 0
		styles["labels"] = styles["labels"] || len(set.Spec.Lifecycle.PreDelete.LabelsHandler) > 0
		styles["preNormal"] = styles["preNormal"] || set.Spec.Lifecycle.PreNormal != nil
	}
	expect.Equal(t, map[string]bool{"finalizers": true, "labels": true, "preNormal": true}, styles, "styles of hooks in the samples")
}

// TestKeysOfYourOwn: the keys and marks of OpenKruise's guides are Rollcall's by the configuration that the sample refers to, and by no other.
func TestKeysOfYourOwn(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("examples/own-keys/config.yaml")
	expect.NoError(t, err)
	c, err := config.Parse(text, config.Limits{Drivers: []string{"consul"}})
	expect.NoError(t, err)
	text, err = os.ReadFile("samples/cloneset_own_keys.yaml")
	expect.NoError(t, err)
	set := &kruisev1alpha1.CloneSet{}
	expect.NoError(t, yaml.UnmarshalStrict(text, set))
	expectHooked(t, set, c)
	for _, mark := range c.Hooks.NewlyCreated {
		if set.Spec.Template.Labels[mark] != "true" && set.Spec.Template.Annotations[mark] != "true" {
			t.Errorf("the template does not have the mark %s", mark)
		}
	}
	if enroll.Managed(set, configuration(t)) {
		t.Error("config/default claims a key of the sample")
	}
}

// expectHooked expects what the kubectl plugin expects of a CloneSet too, and hooks before each end, whose handlers the template leaves out.
func expectHooked(t *testing.T, set *kruisev1alpha1.CloneSet, c *config.Config) {
	t.Helper()
	for _, finding := range lint.Workload(clusterstate.AsWorkload(set), c, nil) {
		t.Error(finding)
	}
	template, hooks := set.Spec.Template, set.Spec.Lifecycle
	if hooks.PreDelete == nil || hooks.InPlaceUpdate == nil {
		t.Fatal("wants hooks preDelete and inPlaceUpdate")
	}
	for _, hook := range []*appspub.LifecycleHook{hooks.PreNormal, hooks.InPlaceUpdate, hooks.PreDelete} {
		if hook == nil {
			continue
		}
		for key, value := range hook.LabelsHandler {
			if !c.Hooks.Owns(key) || template.Labels[key] == value {
				t.Errorf("label %s must be one of the configuration's %s, and is %q on a new pod", key, c.Hooks, template.Labels[key])
			}
		}
		for _, key := range hook.FinalizersHandler {
			if !c.Hooks.Owns(key) || slices.Contains(template.Finalizers, key) {
				t.Errorf("finalizer %s must be one of the configuration's %s, and not on a new pod", key, c.Hooks)
			}
		}
	}
	if !labels.SelectorFromSet(set.Spec.Selector.MatchLabels).Matches(labels.Set(template.Labels)) {
		t.Errorf("selects %v, which is not its own pod with %v", set.Spec.Selector.MatchLabels, template.Labels)
	}
}

func limits() config.Limits { return config.Limits{Drivers: []string{"http", "memory"}} }

func configuration(t *testing.T) *config.Config {
	t.Helper()
	c, err := config.Parse([]byte(only[*corev1.ConfigMap](t).Data["config.yaml"]), limits())
	if err != nil {
		t.Fatalf("the ConfigMap's content: %v", err)
	}
	return c
}

func manager(t *testing.T) corev1.Container {
	t.Helper()
	containers := only[*appsv1.Deployment](t).Spec.Template.Spec.Containers
	if len(containers) != 1 {
		t.Fatalf("%d containers, want 1", len(containers))
	}
	return containers[0]
}

var renderDefault = sync.OnceValues(func() ([]client.Object, error) { return render("default") })

func manifests(t *testing.T) []client.Object {
	t.Helper()
	objects, err := renderDefault()
	expect.NoError(t, err)
	return objects
}

// only returns the one object of its type in config/default.
func only[T client.Object](t *testing.T) T {
	t.Helper()
	var found []T
	for _, object := range manifests(t) {
		if typed, is := object.(T); is {
			found = append(found, typed)
		}
	}
	if len(found) != 1 {
		t.Fatalf("config/default has %d objects of type %T, want 1", len(found), *new(T))
	}
	return found[0]
}

// render returns what the pinned kustomize makes of a folder, decoded strictly: a field that the API does not have, or
// that stands twice, is an error.
// built is the text that kustomize makes of a folder.
func built(folder string) (*bytes.Buffer, error) {
	var out, problems bytes.Buffer
	cmd := exec.Command("go", "tool", "-modfile=../hack/tools/go.mod", "kustomize", "build", folder)
	// As in the Makefile, whatever the tests run with: so the tool is built once.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("rendering %s: %w\n%s", folder, err, problems.String())
	}
	return &out, nil
}

func render(folder string) ([]client.Object, error) {
	out, err := built(folder)
	if err != nil {
		return nil, err
	}
	decoder := serializer.NewCodecFactory(kube.Scheme(clientscheme.AddToScheme), serializer.EnableStrict).UniversalDeserializer()
	reader := utilyaml.NewYAMLReader(bufio.NewReader(out))
	var objects []client.Object
	for {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading what %s renders: %w", folder, err)
		}
		decoded, _, err := decoder.Decode(text, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("decoding what %s renders: %w\n%s", folder, err, text)
		}
		object, is := decoded.(client.Object)
		if !is {
			return nil, fmt.Errorf("%s renders a %T, which is no object", folder, decoded)
		}
		objects = append(objects, object)
	}
}
