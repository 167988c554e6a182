package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/drivers"
	"github.com/rollcall-dev/rollcall/internal/plugin"
	"github.com/rollcall-dev/rollcall/internal/statuspage"
	"github.com/rollcall-dev/rollcall/test/harness/account"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
	"github.com/rollcall-dev/rollcall/test/harness/manager"
)

// kubectl is a person with the plugin.
type kubectl struct {
	*scenario

	kubeconfig string
	// installation is the namespace of the manager.
	installation string
	// as is another user whose rights the person takes.
	as string
}

// Kubectl gives a person the rights of a client configuration.
func (s *scenario) Kubectl(name string, as *rest.Config) *kubectl {
	s.Helper()
	path := filepath.Join(s.TempDir(), name)
	s.must(account.WriteKubeconfig(path, as))
	return &kubectl{scenario: s, kubeconfig: path, installation: s.ns}
}

// Expect runs the plugin and holds its exit status and what it prints, errors included, to what is wanted.
func (k *kubectl) Expect(status int, arguments string, words ...string) {
	k.Helper()
	var out bytes.Buffer
	all := append(strings.Fields(arguments), "--kubeconfig", k.kubeconfig, "-n", k.ns, "--rollcall-namespace", k.installation, "--as", k.as)
	streams := genericiooptions.IOStreams{In: strings.NewReader("no\n"), Out: &out, ErrOut: &out}
	if got := plugin.Run(k.Context(), "test", all, streams, drivers.All()); got != status {
		k.Errorf("kubectl rollcall %s: exit status %d, want %d\n%s", arguments, got, status, out.String())
	}
	for _, word := range words {
		if !strings.Contains(out.String(), word) {
			k.Errorf("kubectl rollcall %s: no %q in\n%s", arguments, word, out.String())
		}
	}
}

// ExpectNo runs the plugin, which succeeds and does not print these words.
func (k *kubectl) ExpectNo(arguments string, words ...string) {
	k.Helper()
	var out bytes.Buffer
	all := append(strings.Fields(arguments), "--kubeconfig", k.kubeconfig, "-n", k.ns, "--rollcall-namespace", k.installation, "--as", k.as)
	status := plugin.Run(k.Context(), "test", all, genericiooptions.IOStreams{Out: &out, ErrOut: &out}, nil)
	if status != 0 || slices.ContainsFunc(words, func(word string) bool { return strings.Contains(out.String(), word) }) {
		k.Errorf("kubectl rollcall %s: exit status %d, and none of %q is wanted in\n%s", arguments, status, words, out.String())
	}
}

func withPage(c configuration) { c["statusPage"] = true }

// TestKubectlPlugin: a person looks at pods that serve, finds the one that waits and why, and lets it go. The status page shows the
// same.
func TestKubectlPlugin(t *testing.T) {
	t.Parallel()
	const installation = "plugin-manager"
	s := alone(t, "plugin", withPage, elect(t, installation)...)
	s.Create(inPlace, replicas(2), func(set *kruisev1alpha1.CloneSet) { set.Spec.UpdateStrategy.MaxUnavailable = nil })
	s.ExpectSteady()
	person := s.Kubectl("admin", env.cluster.Config())
	person.Expect(6, "status", "namespace plugin has no ConfigMap rollcall-config", "--rollcall-namespace")
	s.must(s.k8s.Create(s.Context(), s.manager.config.configMap(installation)))
	person.installation = installation
	pods := s.Pods()
	person.Expect(0, "status", pods[0].Name, pods[1].Name, "Normal", "In")
	person.Expect(0, "explain "+pods[0].Name, "is in rotation: registry default acknowledged", "Nothing waits for Rollcall.")
	person.Expect(0, "rollout "+s.key.Name+" --watch", "2 of 2 pods updated, 2 available, 2 in rotation")

	repair := s.Fail(fakeregistry.OpDeregister, "out of order")
	pod := pods[0]
	s.DeleteByLabel(pod)
	s.AwaitState(pod, appspub.LifecycleStatePreparingDelete)
	s.ExpectEvent(pod, corev1.EventTypeWarning, "RegistryUnavailable", "hook preDelete waits")
	person.Expect(0, "status", "PreparingDelete", "preDelete", "RegistryUnavailable")
	person.Expect(0, "explain "+pod.Name, "OpenKruise waits at the hook preDelete, reason RegistryUnavailable", "out of order",
		"reasons.md#registryunavailable", "kubectl rollcall skip "+pod.Name)
	s.awaitPage("the pod and why it waits", func(p statuspage.Snapshot) bool {
		return slices.ContainsFunc(p.Pods, func(one statuspage.Pod) bool {
			return one.Pod == pod.Name && one.Hook == "preDelete" && one.Reason == "RegistryUnavailable" && one.Warning &&
				strings.Contains(one.Message, "out of order") && len(one.Instances) == 1
		})
	})

	person.Expect(1, "skip "+pods[1].Name+" --yes", "waits at no hook that can be skipped")
	person.Expect(1, "skip "+pod.Name, "Type yes to continue", "was not annotated")
	person.Expect(0, "skip "+pod.Name+" --yes", "the manager releases preDelete")
	s.AwaitGone(pod)
	s.ExpectMetric(`rollcall_releases_total{by="skip",hook="preDelete"} 1`)
	repair()
	s.ExpectSteady()
	s.awaitPage("that no pod waits", func(p statuspage.Snapshot) bool {
		return len(p.Pods) == 0 && len(p.Services) == 1 && p.Services[0].In == 2 && p.Services[0].Out+p.Services[0].Unacknowledged == 0 &&
			!p.Registries[0].Succeeded.IsZero()
	})

	person.Expect(3, "explain web-none", "has no pod and no workload web-none")
	s.must(s.k8s.Create(s.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "stranger"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "nginx"}}},
	}))
	person.Expect(4, "explain stranger", "is not managed by Rollcall: it belongs to no workload")
	stranger := s.style.load(t)
	stranger.Namespace, stranger.Name = s.ns, "stranger"
	stranger.Spec.Selector.MatchLabels["app"], stranger.Spec.Template.Labels["app"] = "stranger", "stranger"
	replicas(0)(stranger)
	unhooked(stranger)
	s.must(s.k8s.Create(s.Context(), stranger))
	person.Expect(4, "rollout stranger --watch", "is not managed by Rollcall", "kubectl rollcall enroll stranger")
	person.Expect(3, "enroll -l app=none", "has no CloneSet with the labels app=none")
	s.Kubectl("anyone", rest.AnonymousClientConfig(env.cluster.Config())).Expect(5, "status", "reading ConfigMap")
	s.expectAllowedWrites()
	s.expectInvariants("unasked") // a person released the hook without an acknowledgement
}

// awaitPage returns once the manager's page shows it.
func (s *scenario) awaitPage(what string, shows func(statuspage.Snapshot) bool) {
	s.Helper()
	s.await("the status page to show "+what, func() error {
		body, err := s.manager.Get(s.Context(), manager.MetricsServer, "/status.json")
		if err != nil {
			return err
		}
		var page statuspage.Snapshot
		if err := json.Unmarshal([]byte(body), &page); err != nil || !shows(page) {
			return fmt.Errorf("it shows %s (%w)", body, err)
		}
		return nil
	})
}

// TestKubectlPluginAsksTheManager: a person with the rights that ship sees through the API server what the registry says, and
// everybody else what is in the way.
func TestKubectlPluginAsksTheManager(t *testing.T) {
	t.Parallel()
	host := drivertest.OwnAddress(t) // the API server's proxy refuses 127.0.0.1
	const installation = "plugin-registry-manager"
	s := alone(t, "plugin-registry", withPage, append(elect(t, installation),
		"--metrics-bind-address="+host+":0", "--health-probe-bind-address="+host+":0")...)
	pod := s.Begin(replicas(1))[0]
	s.must(s.k8s.Create(s.Context(), s.manager.config.configMap(installation)))
	allow := func(user, namespace string, rules ...rbacv1.PolicyRule) {
		named := metav1.ObjectMeta{Namespace: namespace, Name: user}
		s.must(s.k8s.Create(s.Context(), &rbacv1.Role{ObjectMeta: named, Rules: rules}))
		s.must(s.k8s.Create(s.Context(), &rbacv1.RoleBinding{
			ObjectMeta: named, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		}))
	}
	person := func(user string, rules []rbacv1.PolicyRule) *kubectl {
		allow(user, installation, rules...)
		allow(user, s.ns, rbacv1.PolicyRule{
			APIGroups: []string{"", "apps.kruise.io"}, Verbs: []string{"get", "list"},
			Resources: []string{"pods", "clonesets", "statefulsets", "daemonsets"},
		})
		k := s.Kubectl(user, env.cluster.Config())
		k.installation, k.as = installation, user
		return k
	}
	var shipped []rbacv1.PolicyRule
	for _, object := range kustomize(t, "config", "components", "plugin-roles") {
		if role, is := object.(*rbacv1.Role); is && (role.Name == "rollcall-viewer" || role.Name == "rollcall-status-reader") {
			shipped = append(shipped, role.Rules...)
		}
	}
	onCall := person("on-call", shipped)
	guest := person("guest", append(slices.DeleteFunc(slices.Clone(shipped),
		func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "pods/proxy") }),
		rbacv1.PolicyRule{APIGroups: []string{""}, Verbs: []string{"get", "list"}, Resources: []string{"pods"}}))
	onCall.Expect(0, "status", "REGISTRY is not shown, and REASON is only what the pods show: the leader ")

	page, err := s.manager.URL(manager.MetricsServer, "")
	s.must(err)
	remove := s.managersPod(installation, page)
	onCall.Expect(0, "status", "ROTATION   REGISTRY   WAITS AT", "In         In         -")
	onCall.Expect(0, "explain "+pod.Name, "According to the manager, registry default has "+s.ns+" at", "in rotation.")
	guest.Expect(0, "status", "REASON is only what the pods show: you lack the right to get pods or pods/proxy in namespace "+installation,
		"the reasons are only what the pods show: reading Events")
	repair := s.Fail(fakeregistry.OpDeregister, "out of order")
	defer repair()
	s.DeleteByLabel(pod)
	s.awaitPage("why the pod waits", func(p statuspage.Snapshot) bool {
		return len(p.Pods) == 1 && p.Pods[0].Reason == "RegistryUnavailable"
	})
	for _, arguments := range []string{"status", "rollout " + s.key.Name, "explain " + pod.Name} {
		onCall.Expect(0, arguments, "RegistryUnavailable") // without the right to list Events
		onCall.ExpectNo(arguments, "warning")
		guest.Expect(0, arguments, "Acknowledgement")
	}
	onCall.Expect(0, "explain "+pod.Name, "OpenKruise waits at the hook preDelete, reason RegistryUnavailable", "out of order")
	onCall.Expect(3, "history "+s.key.Name, "no line that a manager wrote in JSON") // the pod runs nowhere

	remove()
	other, err := s.manager.URL(manager.HealthServer, "")
	s.must(err)
	remove = s.managersPod(installation, other)
	onCall.Expect(0, "explain "+pod.Name, "The registries' entries are not shown, and the reason is only what the pod shows: the manager", "is older than this plugin")

	remove()
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.must(secure.Listener.Close())
	secure.Listener, err = new(net.ListenConfig).Listen(s.Context(), "tcp", host+":0")
	s.must(err)
	secure.StartTLS()
	defer secure.Close()
	s.managersPod(installation, secure.URL)
	onCall.Expect(0, "status", "REASON is only what the pods show: the manager", "runs with --metrics-secure", "leave out --as")
}

// TestRightsOfThePlugin: with the roles that ship each command works, one that only looks can't write, and without them people with
// Kubernetes' own role view still see their pods.
func TestRightsOfThePlugin(t *testing.T) {
	t.Parallel()
	const installation = "plugin-rights-manager"
	s := alone(t, "plugin-rights", nil, elect(t, installation)...)
	pod := s.Begin(replicas(1))[0]
	s.must(s.k8s.Create(s.Context(), s.manager.config.configMap(installation)))
	for _, object := range kustomize(t, "config", "components", "plugin-roles") {
		if _, is := object.(*rbacv1.Role); is {
			object.SetNamespace(installation)
		}
		s.must(s.k8s.Create(s.Context(), object))
	}
	bind := func(user, namespace, kind, role string) {
		s.must(s.k8s.Create(s.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: user + "-" + strings.ReplaceAll(role, ":", "-")},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		}))
	}
	person := func(user string) *kubectl {
		k := s.Kubectl(user, env.cluster.Config())
		k.installation, k.as = installation, user
		return k
	}
	viewer, operator, plain := person("viewer"), person("operator"), person("plain")
	bind("viewer", s.ns, "ClusterRole", "view")
	bind("viewer", installation, "Role", "rollcall-viewer")
	bind("operator", s.ns, "ClusterRole", "edit")
	bind("operator", installation, "Role", "rollcall-viewer")
	bind("operator", installation, "Role", "rollcall-operator")
	bind("plain", installation, "Role", "rollcall-viewer")
	bind("plain", s.ns, "ClusterRole", "system:aggregate-to-view")
	onCall := person("on-call")
	bind("on-call", installation, "Role", "rollcall-viewer")
	bind("on-call", installation, "Role", "rollcall-status-reader")
	plain.Expect(5, "status", `cannot list resource "daemonsets"`)
	s.must(s.k8s.Create(s.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "clonesets"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"apps.kruise.io"}, Resources: []string{"clonesets"}, Verbs: []string{"list"}}},
	}))
	bind("plain", s.ns, "Role", "clonesets")
	plain.Expect(0, "status", pod.Name, "pods of DaemonSets are not shown")
	s.awaitRight("edit", "clonesets", "patch") // Kubernetes' own roles take the others in
	for _, arguments := range []string{"status", "explain " + pod.Name, "rollout " + s.key.Name} {
		viewer.ExpectNo(arguments, "warning")
	}

	other := s.style.load(t)
	other.Namespace, other.Name = s.ns, "other"
	other.Spec.Selector.MatchLabels["app"], other.Spec.Template.Labels["app"] = "other", "other"
	replicas(0)(other)
	unhooked(other)
	s.must(s.k8s.Create(s.Context(), other))
	s.Fail(fakeregistry.OpDeregister, "out of order")
	s.DeleteByLabel(pod)
	s.AwaitState(pod, appspub.LifecycleStatePreparingDelete)
	viewer.Expect(5, "enroll other", `cannot patch resource "clonesets"`)
	viewer.Expect(5, "skip "+pod.Name+" --yes", `cannot patch resource "pods"`)
	viewer.Expect(5, "resync", `cannot patch resource "leases"`)
	viewer.Expect(5, "history "+s.key.Name, "reading the managers' pods")
	s.managersPod(installation, "http://127.0.0.1:1")
	viewer.Expect(0, "debug", "reading the managers' pods")
	onCall.Expect(0, "debug", "container manager, before its last restart: false")
	onCall.ExpectNo("debug", "reading the managers' pods", "you lack the right")
	operator.Expect(0, "enroll other", "other enrolled")
	operator.Expect(0, "enroll other --undo", "other unenrolled")
	operator.Expect(0, "resync", "compares the registries with the cluster now")
	operator.Expect(1, "resync --approve", "lists removals that wait for approval")
	operator.Expect(0, "skip "+pod.Name+" --yes", "the manager releases preDelete")
	s.AwaitGone(pod)
	s.expectInvariants("unasked") // a person released the hook without an acknowledgement
}

// awaitRight returns once a ClusterRole has been given a right.
func (s *scenario) awaitRight(role, resource, verb string) {
	s.Helper()
	s.await("ClusterRole "+role+" to have a right", func() error {
		var all rbacv1.ClusterRole
		err := s.k8s.Get(s.Context(), client.ObjectKey{Name: role}, &all)
		if err == nil && !slices.ContainsFunc(all.Rules, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, verb)
		}) {
			err = fmt.Errorf("it may not %s %s", verb, resource)
		}
		return err
	})
}

// managersPod stands for the manager's process where its lease names it, with a server as its port of the metrics.
func (s *scenario) managersPod(namespace, server string) (remove func()) {
	s.Helper()
	name, err := os.Hostname()
	s.must(err)
	address, err := url.Parse(server)
	s.must(err)
	port, err := strconv.ParseInt(address.Port(), 10, 32)
	s.must(err)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{
			"app.kubernetes.io/name": "rollcall", "app.kubernetes.io/component": "manager",
		}},
		Spec: corev1.PodSpec{SchedulerName: "none", Containers: []corev1.Container{{
			Name: "manager", Image: "rollcall", Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: int32(port)}},
		}}},
	}
	s.must(s.k8s.Create(s.Context(), pod))
	pod.Status.PodIP, pod.Status.PodIPs = address.Hostname(), []corev1.PodIP{{IP: address.Hostname()}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "manager"}}
	s.must(s.k8s.Status().Update(s.Context(), pod))
	return func() { s.must(s.k8s.Delete(s.Context(), pod, client.GracePeriodSeconds(0))) }
}

// TestKubectlCheck: a person checks a cluster in which OpenKruise's controller and a ready manager are missing, and the managers' ServiceAccount has
// no rights. The API server itself says so. Then the cluster is whole, and breaks in one way after the other.
func TestKubectlCheck(t *testing.T) {
	t.Parallel()
	const installation = "check-manager"
	s := alone(t, "check", nil, elect(t, installation)...)
	s.Create(inPlace, replicas(1))
	s.ExpectSteady()
	person := s.Kubectl("admin", env.cluster.Config())
	person.installation = installation
	person.Expect(1, "check", "problem  configuration: namespace check-manager has no ConfigMap rollcall-config", "do: ")
	s.must(s.k8s.Create(s.Context(), s.manager.config.configMap(installation)))
	s.must(s.k8s.Create(s.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: installation, Name: "nobody"}}))
	s.must(s.k8s.Create(s.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: installation, Name: "rollcall-0",
			Labels: map[string]string{"app.kubernetes.io/name": "rollcall", "app.kubernetes.io/component": "manager"},
		},
		Spec: corev1.PodSpec{
			ServiceAccountName: "nobody", AutomountServiceAccountToken: new(false), NodeSelector: map[string]string{"no": "node"},
			Containers: []corev1.Container{{Name: "manager", Image: "ghcr.io/rollcall-dev/rollcall:v1.0.0"}},
		},
	}))
	person.Expect(1, "check", "ok       Kubernetes: v", "problem  OpenKruise: no controller of OpenKruise is ready in namespace kruise-system",
		"ok       configuration: cluster ", "problem  managers: none of 1 is ready", "ok       leader: ",
		"problem  rights: the manager lacks: get, list, watch, patch pods in check; ", "Apply config/rbac", "unknown  registries: the leader ", "--check-registries",
		"problem  CloneSet check/"+s.key.Name+": the template sets label example.com/")
	person.Expect(0, "version", "plugin:     test", "managers:   v1.0.0", "kubernetes: v")
	s.must(s.k8s.Delete(s.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: installation, Name: "rollcall-0"}}))
	s.DeleteCloneSet("Background")
	s.expectFindings(installation)
}

// TestKubectlPreview: what a person sees before anything is enrolled is what the manager then does.
func TestKubectlPreview(t *testing.T) {
	t.Parallel()
	const installation = "preview-manager"
	s := alone(t, "preview", nil, elect(t, installation)...)
	unmarked := func(set *kruisev1alpha1.CloneSet) { // the mark alone has a pod registered
		delete(set.Spec.Template.Labels, "example.com/newly-create")
	}
	s.Create(replicas(1), unhooked, unmarked)
	pod := s.AwaitRunning()
	person := s.Kubectl("admin", env.cluster.Config())
	person.installation = installation
	person.Expect(6, "enroll --dry-run --all", "if the installation is gone, or none is there yet, pass")
	s.must(s.k8s.Create(s.Context(), s.manager.config.configMap(installation)))
	person.Expect(0, "enroll --dry-run "+s.key.Name, "would be enrolled: preNormal label rollcall.dev/pre-normal=true", pod.Name,
		pod.Status.PodIP, "nothing", "Rollcall would manage 1 pod of 1 CloneSet")
	written := s.registry.Calls(fakeregistry.Match{Op: fakeregistry.OpRegister, Namespace: s.ns})
	s.Expect(len(written) == 0, "the registry was written for the pod: %+v", written)
	var set kruisev1alpha1.CloneSet
	s.must(s.k8s.Get(s.Context(), s.key, &set))
	s.Expect(set.Spec.Lifecycle == nil, "the CloneSet got hooks: %+v", set.Spec.Lifecycle)
	person.Expect(0, "enroll "+s.key.Name, "enrolled")
	s.ExpectSteady()
	person.Expect(0, "enroll --dry-run --all", "unchanged: it already has Rollcall's hooks", pod.Name, "in rotation")
	s.DeleteCloneSet("Background")
}
