package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/test/harness/account"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
	"github.com/rollcall-dev/rollcall/test/harness/manager"
)

// checks are those of a person who runs the plugin on a cluster. What kubectl would run in the leader's pod, the manager does here.
type checks struct {
	*scenario

	installation, plugin, config string
	env                          []string
}

// newChecks builds the plugin, and a kubectl that runs the manager with the flag that the plugin passes on.
func (s *scenario) newChecks(installation string) *checks {
	s.Helper()
	bin := filepath.Join(s.TempDir(), "bin")
	s.must(os.Mkdir(bin, 0o700))
	c := &checks{scenario: s, installation: installation, plugin: filepath.Join(bin, "kubectl-rollcall"), config: filepath.Join(bin, "config.yaml")}
	s.must(manager.Build(s.Context(), "github.com/rollcall-dev/rollcall/cmd/kubectl-rollcall", c.plugin))
	kubeconfig := filepath.Join(bin, "kubeconfig")
	s.must(account.WriteKubeconfig(kubeconfig, env.cluster.Config()))
	self, err := os.Executable()
	s.must(err)
	script := fmt.Sprintf("#!/bin/sh\nexec env %s %s --check-registries --config=%s\n", strings.Join(asManager(markMain), " "), self, c.config)
	s.must(os.WriteFile(filepath.Join(bin, "kubectl"), []byte(script), 0o700))
	c.env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "KUBECONFIG="+kubeconfig)
	return c
}

// Expect runs check, which exits with the status and prints these texts, and no other problem or warning than those among them.
func (c *checks) Expect(status int, want ...string) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	command := exec.CommandContext(ctx, c.plugin, "check", "--rollcall-namespace", c.installation)
	command.Env = c.env
	out, err := command.CombinedOutput()
	got := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		c.Fatalf("check can't be run: %v", err)
	}
	c.Logf("kubectl rollcall check, exit status %d:\n%s", got, out)
	if got != status {
		c.Errorf("check: exit status %d, want %d", got, status)
	}
	expected := strings.Join(want, "\n")
	for _, text := range want {
		if !strings.Contains(string(out), text) {
			c.Errorf("check does not print %q", text)
		}
	}
	for line := range strings.Lines(string(out)) {
		verdict, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		about, _, _ := strings.Cut(strings.TrimSpace(rest), ":")
		if found := verdict == "problem" || verdict == "warning" || verdict == "unknown"; found && !strings.Contains(expected, about) {
			c.Errorf("check finds what is not wrong: %s", line)
		}
	}
}

// Ready creates a pod that runs nowhere and is ready, and returns what removes it.
func (c *checks) Ready(pod *corev1.Pod) (remove func()) {
	c.Helper()
	c.must(client.IgnoreAlreadyExists(c.k8s.Create(c.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: pod.Namespace}})))
	c.must(client.IgnoreAlreadyExists(c.k8s.Create(c.Context(), &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Spec.ServiceAccountName},
	})))
	pod.Spec.AutomountServiceAccountToken, pod.Spec.SchedulerName = new(false), "none"
	c.must(c.k8s.Create(c.Context(), pod))
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	c.must(c.k8s.Status().Update(c.Context(), pod))
	return func() { c.must(c.k8s.Delete(context.WithoutCancel(c.Context()), pod, client.GracePeriodSeconds(0))) }
}

// Configures writes the ConfigMap that a person checks, and the file of the manager that asks the registries.
func (c *checks) Configures(edit func(configuration)) {
	c.Helper()
	config := defaultConfiguration(c.registry.URL(), c.ns)
	if edit != nil {
		edit(config)
	}
	now := config.configMap(c.installation)
	written := &corev1.ConfigMap{ObjectMeta: now.ObjectMeta}
	c.must(kube.Change(c.Context(), c.k8s, written, func() { written.Data = now.Data }))
	c.must(os.WriteFile(c.config, []byte(now.Data["config.yaml"]), 0o600))
}

// expectFindings checks the cluster once it is whole, and then breaks it in one way after the other.
func (s *scenario) expectFindings(installation string) {
	s.Helper()
	c := s.newChecks(installation)
	c.Configures(nil)
	defer c.Ready(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kruise-system", Name: "kruise-0", Labels: map[string]string{"control-plane": "controller-manager"}},
		Spec: corev1.PodSpec{ServiceAccountName: "kruise", Containers: []corev1.Container{{
			Name: "manager", Image: "openkruise/kruise-manager:v1.9.1", Args: []string{"--feature-gates=KruiseDaemon=false"},
		}}},
	})()
	host, err := os.Hostname()
	s.must(err)
	c.Ready(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: installation, Name: host, Labels: map[string]string{
			"app.kubernetes.io/name": "rollcall", "app.kubernetes.io/component": "manager",
		}},
		Spec: corev1.PodSpec{ServiceAccountName: "rollcall", Containers: []corev1.Container{{Name: "manager", Image: "ghcr.io/rollcall-dev/rollcall:v1.0.0"}}},
	})
	bound := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: installation}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: installation, Name: "rollcall"}},
	}
	s.must(s.k8s.Create(s.Context(), bound))
	defer func() { s.must(client.IgnoreNotFound(s.k8s.Delete(context.WithoutCancel(s.Context()), bound))) }()
	c.awaitRights(true)
	c.workload("whole", nil)
	c.Expect(0, "ok       OpenKruise: v1.9.1", "ok       managers: 1 ready, v1.0.0", "ok       leader: "+host, "ok       rights: ",
		"ok       registry default: http, reached; an entry was written and removed", "ok       workloads: 1 workload")

	c.Configures(func(config configuration) {
		config["registry"] = map[string]any{"driver": "http", "endpoint": "http://127.0.0.1:1"}
	})
	c.Expect(1, "problem  registry default: http: ", "connection refused", "docs/drivers/http.md", "problems found: 1")
	c.Configures(nil)

	c.workload("portless", func(set *kruisev1alpha1.CloneSet) { set.Spec.Template.Spec.Containers[0].Ports = nil })
	c.Expect(1, "problem  CloneSet check/portless: no port to register: set ", "problems found: 1")
	s.must(s.k8s.Delete(s.Context(), &kruisev1alpha1.CloneSet{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "portless"}}))

	c.Configures(func(config configuration) {
		config["evictions"] = map[string]any{"enabled": true, "name": "check-evictions"}
	})
	c.Expect(1, "problem  eviction webhook: MutatingWebhookConfiguration check-evictions is missing", "do: apply config/components/evictions")
	webhook := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "check-evictions"}, Webhooks: []admissionv1.MutatingWebhook{{
		Name: "evictions.rollcall.dev", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionv1.SideEffectClassNoneOnDryRun),
		FailurePolicy: new(admissionv1.Ignore), ClientConfig: admissionv1.WebhookClientConfig{URL: new("https://127.0.0.1:1")},
	}}}
	s.must(s.k8s.Create(s.Context(), webhook))
	defer func() { s.must(s.k8s.Delete(context.WithoutCancel(s.Context()), webhook)) }()
	c.Expect(1, "problem  eviction webhook: the CA in webhook evictions.rollcall.dev is empty or not a certificate", "do: see the leader's log")
	c.Configures(nil)

	s.must(s.k8s.Delete(s.Context(), bound))
	c.awaitRights(false)
	c.Expect(1, "problem  rights: the manager lacks: get, list, watch, patch pods in check; ", "do: Apply config/rbac")

	s.manager.Kill()
	s.await("the lease to end", func() error {
		var lease coordinationv1.Lease
		err := s.k8s.Get(s.Context(), client.ObjectKey{Namespace: installation, Name: "rollcall"}, &lease)
		if err == nil && time.Since(lease.Spec.RenewTime.Time) < time.Duration(*lease.Spec.LeaseDurationSeconds+1)*time.Second {
			err = errors.New("it has not")
		}
		return err
	})
	c.Expect(1, "problem  leader: ", "do: see why no manager leads: ", "problem  rights", "unknown  registries: no manager leads")
	restart(s.T, s.manager)
}

// workload creates one without pods that Rollcall has no trouble with, unless the edit makes some.
func (c *checks) workload(name string, edit func(*kruisev1alpha1.CloneSet)) {
	c.Helper()
	set := c.style.load(c.T)
	set.Namespace, set.Name = c.ns, name
	set.Spec.Selector.MatchLabels["app"], set.Spec.Template.Labels["app"] = name, name
	maps.DeleteFunc(set.Spec.Template.Labels, func(key, _ string) bool { return strings.HasPrefix(key, "example.com/") }) // handlers
	replicas(0)(set)
	if edit != nil {
		edit(set)
	}
	c.must(c.k8s.Create(c.Context(), set))
}

// awaitRights returns once the API server gives the managers' ServiceAccount its rights, or has taken them.
func (c *checks) awaitRights(given bool) {
	c.Helper()
	c.await("the rights to change", func() error {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:" + c.installation + ":rollcall",
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: c.ns, Verb: "get", Resource: "pods"},
		}}
		err := c.k8s.Create(c.Context(), review)
		if err == nil && review.Status.Allowed != given {
			err = fmt.Errorf("the ServiceAccount may get pods: %t", review.Status.Allowed)
		}
		return err
	})
}
