package plugin

import (
	"context"
	"crypto/x509"
	encoding "encoding/pem"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	kruisev1beta1 "github.com/openkruise/kruise-api/apps/v1beta1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/lint"
	"github.com/rollcall-dev/rollcall/internal/rights"
)

// The oldest versions that the tests run on: see docs/reference/versions.md, which TestOldestVersions compares.
const (
	oldestKubernetes = "1.26"
	oldestKruise     = "1.7"
)

func (c *checker) checkKubernetes() {
	const about = "Kubernetes"
	is, err := c.server()
	if c.unless(err, about) {
		c.checkVersion(about, is, oldestKubernetes)
	}
}

func (c *checker) checkVersion(about, is, oldest string) {
	parsed, err := version.ParseGeneric(is)
	switch {
	case err != nil:
		c.add(Unasked, about, "compare it with "+c.page("reference/versions.md"), "version %s", is)
	case parsed.LessThan(version.MustParseGeneric(oldest)):
		c.add(Warning, about, "upgrade to "+oldest+" or newer", "%s is older than any version that Rollcall is tested with", is)
	default:
		c.add(OK, about, "", "%s", is)
	}
}

// install is what to do without OpenKruise.
const install = "install OpenKruise: https://openkruise.io/docs/installation"

func (c *checker) checkKruise(ctx context.Context) {
	const about = "OpenKruise"
	for _, list := range []client.ObjectList{
		&kruisev1alpha1.CloneSetList{}, &kruisev1beta1.StatefulSetList{}, &kruisev1alpha1.DaemonSetList{},
	} {
		of, err := c.GroupVersionKindFor(list)
		if err == nil {
			err = c.List(ctx, list, client.Limit(1))
		}
		switch kind := strings.TrimSuffix(of.Kind, "List"); {
		case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
			c.add(Problem, about, install, "the API server has no CRD for %s of %s: no manager works without it", kind, of.GroupVersion())
			return
		case err != nil:
			c.unless(reading(kind+"s", err), about)
			return
		}
	}
	pods, err := c.kruisePods(ctx)
	if !c.unless(err, about) {
		return
	}
	if !slices.ContainsFunc(pods, ready) {
		c.add(Problem, about, "kubectl -n "+kruiseNamespace+" get pods"+c.kubectl+" shows why, or "+install,
			"no controller of OpenKruise is ready in namespace %s: nothing moves a pod", kruiseNamespace)
		return
	}
	for _, tag := range tagsOf(pods) {
		c.checkVersion(about, tag, oldestKruise)
	}
	c.checkGates(pods)
}

// checkGates finds what of OpenKruise is switched on and does not go together with Rollcall.
func (c *checker) checkGates(pods []corev1.Pod) {
	for _, gates := range gatesOf(pods) {
		if strings.Contains(gates, "CloneSetEventHandlerOptimization=true") {
			c.add(Warning, "OpenKruise's gates", "use a label for preNormal, as kubectl rollcall enroll does",
				"CloneSetEventHandlerOptimization is on: up to 1.8.4 OpenKruise then misses a preNormal finalizer, and the pod hangs")
			return
		}
		c.add(OK, "OpenKruise's gates", "", "%s", gates)
	}
}

// gatesOf are the arguments for feature gates, each once.
func gatesOf(pods []corev1.Pod) (all []string) {
	for i := range pods {
		for _, container := range pods[i].Spec.Containers {
			for _, argument := range container.Args {
				if gates, is := strings.CutPrefix(argument, "--feature-gates="); is && gates != "" {
					all = append(all, gates)
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func ready(pod corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(of corev1.PodCondition) bool {
		return of.Type == corev1.PodReady && of.Status == corev1.ConditionTrue
	})
}

func (c *checker) checkManagers(ctx context.Context) {
	const about = "managers"
	pods, err := c.managerPods(ctx)
	switch {
	case !c.unless(err, about):
		return
	case len(pods) == 0:
		c.add(Problem, about, "install Rollcall, or set --rollcall-namespace to where it is: "+c.page("install.md"),
			"namespace %s has none", c.installation)
		return
	}
	up := len(slices.DeleteFunc(slices.Clone(pods), func(pod corev1.Pod) bool { return !ready(pod) }))
	list := "kubectl -n " + c.installation + " get pods" + c.kubectl
	switch {
	case up == 0:
		c.add(Problem, about, list+" shows why, and so does the log", "none of %d is ready: /readyz shows what it waits for", len(pods))
	case up < len(pods):
		c.add(Warning, about, list+" shows which", "%d of %d are ready", up, len(pods))
	default:
		c.add(OK, about, "", "%d ready, %s", up, strings.Join(tagsOf(pods), ", "))
	}
	if text := skew(c.version, tagsOf(pods)); text != "" {
		c.add(Warning, "versions", "install the plugin of the managers' version", "%s", text)
	}
	c.checkLeader(ctx)
}

func (c *checker) checkLeader(ctx context.Context) {
	const about = "leader"
	lease, err := c.renewed(ctx)
	if err == nil {
		_, err = c.renewedAfter(ctx, lease)
	}
	switch {
	case err == nil:
		c.add(OK, about, "", "%s", *lease.Spec.HolderIdentity)
	case statusOf(err) == exitForbidden:
		c.unless(err, about)
	default:
		c.add(Problem, about, "see why no manager leads: "+c.page("leadership.md")+". A manager with --dry-run never does", "%v", err)
	}
}

// account is the ServiceAccount of the managers, as the API server calls it.
func (c *checker) account(ctx context.Context) (string, error) {
	pods, err := c.managerPods(ctx)
	if err != nil || len(pods) == 0 {
		return "", err
	}
	return fmt.Sprintf("system:serviceaccount:%s:%s", c.installation, pods[0].Spec.ServiceAccountName), nil
}

// checkRights asks the API server for what each feature of the configuration needs, on behalf of the managers.
func (c *checker) checkRights(ctx context.Context) {
	const about = "rights"
	user, err := c.account(ctx)
	if !c.unless(err, about) || user == "" {
		return
	}
	by := rights.Asker{
		Own: c.installation, Webhook: c.config.Evictions.Name,
		Allowed: func(what authorizationv1.ResourceAttributes) (bool, error) {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: user, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + c.installation, "system:authenticated"},
				ResourceAttributes: &what,
			}}
			err := c.Create(ctx, review)
			return review.Status.Allowed, asking(err)
		},
	}
	if c.config.Namespaces.Selector == nil {
		by.Namespaces = c.config.Namespaces.Names
	}
	endpoints := slices.ContainsFunc(c.config.RegistryNames(), func(name string) bool {
		return c.config.Registries[name].Driver == "endpointslice"
	})
	lacks := false
	for _, feature := range append([]rights.Feature{rights.Always()}, rights.Of(c.config.Features, endpoints, false)...) {
		missing, err := feature.Missing(by)
		if !c.unless(err, about) {
			return
		}
		if missing != "" {
			lacks = true
			c.add(Problem, about, feature.Remedy(), "%s lacks: %s", feature.Name, missing)
		}
	}
	if !lacks {
		c.add(OK, about, "", "%s has all that the configuration needs", user)
	}
}

// soon is how long before its end a certificate that was not renewed is a finding. Rollcall renews its own four months before the end.
const soon = 14 * 24 * time.Hour

func (c *checker) checkWebhook(ctx context.Context) {
	const about = "eviction webhook"
	if !c.config.Evictions.Enabled {
		return
	}
	var hooks admissionv1.MutatingWebhookConfiguration
	err := c.Get(ctx, client.ObjectKey{Name: c.config.Evictions.Name}, &hooks)
	switch {
	case apierrors.IsNotFound(err):
		c.add(Problem, about, "apply config/components/evictions, which the chart brings with config.evictions.enabled",
			"MutatingWebhookConfiguration %s is missing: evictions bypass the hooks", c.config.Evictions.Name)
		return
	case !c.unless(err, about):
		return
	}
	var secret corev1.Secret
	err = c.Get(ctx, client.ObjectKey{Namespace: c.installation, Name: c.config.Evictions.Name}, &secret)
	if err != nil && !apierrors.IsNotFound(err) {
		c.unless(reading("the certificate in Secret "+c.config.Evictions.Name, err), about)
		return
	}
	for _, hook := range hooks.Webhooks {
		why := wrongAuthority(hook.ClientConfig.CABundle, c.now())
		if why == "" {
			why = othersAuthority(hook.ClientConfig, secret.Data[corev1.TLSCertKey], c.now())
		}
		if why != "" {
			c.add(Problem, about, "see the leader's log; with cert-manager, kubectl describe its Certificate: "+c.page("evictions.md"),
				"the CA in webhook %s %s: the API server can't call the managers", hook.Name, why)
			return
		}
	}
	c.add(OK, about, "", "its CA is valid, and has signed the managers' certificate")
}

// othersAuthority reports what is wrong between a valid CA of a webhook and the certificate that the managers serve.
func othersAuthority(of admissionv1.WebhookClientConfig, chain []byte, now time.Time) string {
	block, rest := encoding.Decode(chain)
	if block == nil {
		return "has nothing to vouch for: the managers' Secret has no certificate yet"
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return fmt.Sprintf("can't be compared with the managers' certificate: %v", err)
	}
	options := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: now}
	options.Roots.AppendCertsFromPEM(of.CABundle)
	options.Intermediates.AppendCertsFromPEM(rest)
	if of.Service != nil {
		options.DNSName = of.Service.Name + "." + of.Service.Namespace + ".svc"
	}
	if _, err := leaf.Verify(options); err != nil {
		return fmt.Sprintf("does not fit the managers' certificate (%v)", err)
	}
	return ""
}

// wrongAuthority reports what is wrong with a webhook's CA bundle, of which one certificate must be valid.
func wrongAuthority(bundle []byte, now time.Time) string {
	last := time.Time{}
	for block, rest := encoding.Decode(bundle); block != nil; block, rest = encoding.Decode(rest) {
		if parsed, err := x509.ParseCertificate(block.Bytes); err == nil && parsed.NotAfter.After(last) {
			last = parsed.NotAfter
		}
	}
	switch {
	case last.IsZero():
		return "is empty or not a certificate"
	case last.Before(now):
		return "ended " + last.Format(time.RFC3339)
	case last.Sub(now) < soon:
		return "ends " + last.Format(time.RFC3339) + " and was not renewed"
	}
	return ""
}

// checkWorkloads lints what Rollcall is to manage, as the command lint does for a file.
func (c *checker) checkWorkloads(ctx context.Context) {
	const about = "workloads"
	watches, namespaces := c.watched(ctx, c.config), map[string]labels.Set{}
	labelsOf := c.labelsAfter(ctx, func(namespace string) labels.Set { return namespaces[namespace] })
	good := 0
	err := clusterstate.EachWorkload(ctx, c, func(w *clusterstate.Workload) {
		if !lifecycle.HooksOf(w.ForDecision(), c.config.Hooks).Any() || !watches(w.GetNamespace()) {
			return
		}
		of := labelsOf(w.GetNamespace())
		namespaces[w.GetNamespace()] = of
		if findings := trouble(w, c.config, of); len(findings) > 0 {
			c.add(Problem, w.Kind+" "+path.Join(w.GetNamespace(), w.GetName()), "", "%s", strings.Join(findings, "; "))
			return
		}
		good++
	})
	if c.unless(err, about) && good > 0 {
		c.add(OK, about, "", "%s with hooks of Rollcall's: nothing is wrong with them", counted(good, "workload"))
	}
}

// trouble has what to do in each sentence.
func trouble(w *clusterstate.Workload, c *config.Config, of labels.Set) []string {
	return append(lint.Annotations(w), lint.Workload(w, c, of)...)
}
