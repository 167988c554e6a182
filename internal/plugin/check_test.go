package plugin

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	encoding "encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rollcall-dev/rollcall/test/harness/bubble"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestCheck finds what is wrong with a cluster, and says what to do about each of it.
func TestCheck(t *testing.T) {
	t.Parallel()
	type row struct {
		reason, configuration string
		// break is what is wrong with a cluster that is otherwise whole.
		breaks func(*testing.T, *checked)
		want   []string
		status int
	}
	const whole = configText + "namespaces: [prod]\n"
	bubble.Each(t, map[string]row{
		"whole": {
			reason: "nothing is to be done", configuration: whole, breaks: func(*testing.T, *checked) {},
			want: []string{
				"ok Kubernetes: v1.34.4", "ok OpenKruise: v1.9.1", "ok OpenKruise's gates: KruiseDaemon=false", "ok configuration: cluster ",
				"ok managers: 1 ready, v1.0.0", "ok leader: rollcall-0", "ok rights: system:serviceaccount:system:rollcall has all",
				"ok registry default: consul, reached; an entry was written and removed", "ok workloads: 1 workload",
			},
		},
		"no OpenKruise": {
			reason: "nothing asks any hook", configuration: whole, status: exitFailed, breaks: func(_ *testing.T, c *checked) {
				c.lists = func(list client.ObjectList) error {
					if _, is := list.(*kruisev1alpha1.CloneSetList); is {
						return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "apps.kruise.io", Kind: "CloneSet"}}
					}
					return nil
				}
			},
			want: []string{"problem OpenKruise: the API server has no CRD for CloneSet of apps.kruise.io/v1alpha1: no manager works without it | install OpenKruise: https://"},
		},
		"no manager": {
			reason: "pods with hooks wait forever", configuration: whole, status: exitFailed, breaks: func(_ *testing.T, c *checked) {
				c.objects = slices.DeleteFunc(c.objects, func(o client.Object) bool { return o.GetNamespace() == "system" })
			},
			want: []string{
				"problem managers: namespace system has none | install Rollcall",
				"unknown registries: no manager leads that could ask them | start the managers first",
			},
		},
		"a configuration that the manager refuses": {
			reason: "it goes on with the one before, or does not start", configuration: strings.ReplaceAll(whole, "30s", "soon"), status: exitFailed,
			breaks: func(*testing.T, *checked) {}, want: []string{`drain: Invalid value: "soon": set a duration with its unit, such as "15s" | correct the fields`},
		},
		"rights that a feature lacks": {
			reason: "the feature waits for them", configuration: whole + "enroll: true\n", status: exitFailed,
			breaks: func(_ *testing.T, c *checked) { c.denied = "patch clonesets" },
			want: []string{
				"problem rights: enroll lacks: patch clonesets.apps.kruise.io in prod | Apply config/components/enroll, which the chart brings",
			},
		},
		"a registry that refuses to be written": {
			reason: "every pod would wait", configuration: whole, status: exitFailed, breaks: func(_ *testing.T, c *checked) {
				c.prints = `{"registry":"default","driver":"consul","error":"writing an entry: Permission denied"}`
			},
			want: []string{"problem registry default: consul: writing an entry: Permission denied | the registry rejects the credentials: correct auth, or grant them the rights of the page: https://github.com/rollcall-dev/rollcall/blob/v1.0.0/docs/drivers/consul.md"},
		},
		"a webhook whose CA has ended, and a workload without a port": {
			reason: "evictions fail, and new pods wait", configuration: whole + "evictions: {enabled: true}\n", status: exitFailed,
			breaks: func(t *testing.T, c *checked) {
				t.Helper()
				authority, _ := signed(t, now.Add(-time.Minute))
				c.objects = append(c.objects, webhookWith(authority), servesWith(authority))
				for _, object := range c.objects {
					if set, is := object.(*kruisev1alpha1.CloneSet); is {
						set.Spec.Template.Spec.Containers[0].Ports = nil
					}
				}
			},
			want: []string{
				"problem eviction webhook: the CA in webhook evictions.rollcall.dev ended ",
				"problem CloneSet prod/web: no port to register: set service.port in the config",
			},
		},
		"a webhook with the CA of the managers' certificate": {
			reason: "the API server can call them", configuration: whole + "evictions: {enabled: true}\n", breaks: func(t *testing.T, c *checked) {
				t.Helper()
				authority, chain := signed(t, now.Add(1000*time.Hour))
				c.objects = append(c.objects, webhookWith(authority), servesWith(chain))
			},
			want: []string{"ok eviction webhook: its CA is valid, and has signed the managers' certificate"},
		},
		"a webhook with a CA that is valid, and another": {
			reason: "evictions bypass the hooks", configuration: whole + "evictions: {enabled: true}\n", status: exitFailed,
			breaks: func(t *testing.T, c *checked) {
				t.Helper()
				authority, _ := signed(t, now.Add(1000*time.Hour))
				_, chain := signed(t, now.Add(1000*time.Hour))
				c.objects = append(c.objects, webhookWith(authority), servesWith(chain))
			},
			want: []string{"problem eviction webhook: the CA in webhook evictions.rollcall.dev does not fit the managers' certificate (x509: ", "| see the leader's log"},
		},
		"a webhook without a certificate": {
			reason: "no leader has issued it", configuration: whole + "evictions: {enabled: true}\n", status: exitFailed,
			breaks: func(t *testing.T, c *checked) {
				t.Helper()
				authority, _ := signed(t, now.Add(1000*time.Hour))
				c.objects = append(c.objects, webhookWith(authority), servesWith(nil))
			},
			want: []string{"the managers' Secret has no certificate yet"},
		},
		"no right to exec, and no status page": {
			reason: "the rest is checked", configuration: whole, status: exitUnchecked,
			breaks: func(_ *testing.T, c *checked) { c.prints, c.fails = "", errors.New("pods/exec is forbidden") },
			want:   []string{"unknown registries: the leader's pod could not run the check: pods/exec is forbidden", "| grant yourself pods/exec"},
		},
		"a check that ended halfway": {
			reason: "nothing is known of the registries that it did not come to", configuration: whole, status: exitUnchecked,
			breaks: func(_ *testing.T, c *checked) {
				c.prints, c.fails = `{"registry":"before","driver":"consul","written":true}`, errors.New("signal: killed")
			},
			want: []string{
				"ok registry before: consul, reached; an entry was written and removed",
				"unknown registry default: the check in the leader's pod ended before it came to this one: signal: killed | run this again",
			},
		},
		"an old OpenKruise, with a gate that does not go together": {
			reason: "it may work", configuration: whole, breaks: func(_ *testing.T, c *checked) {
				for _, object := range c.objects {
					if pod, is := object.(*corev1.Pod); is && pod.Namespace == kruiseNamespace {
						pod.Spec.Containers[0].Image = "openkruise/kruise-manager:v1.5.0"
						pod.Spec.Containers[0].Args = []string{"--feature-gates=CloneSetEventHandlerOptimization=true"}
					}
				}
			},
			want: []string{
				"warning OpenKruise: v1.5.0 is older than any version that Rollcall is tested with | upgrade to 1.7 or newer",
				"warning OpenKruise's gates: CloneSetEventHandlerOptimization is on",
			},
		},
		"another version of the plugin": {
			reason: "it may not know what the managers read", configuration: whole,
			breaks: func(_ *testing.T, c *checked) { c.version = "v0.9.0" },
			want:   []string{"warning versions: this plugin is v0.9.0, and the managers are v1.0.0: install the plugin of their version"},
		},
	}, func(t *testing.T, c row) {
		of := wholeCluster(t)
		c.breaks(t, of)
		all := of.check(t, c.configuration)
		var lines []string
		for _, one := range all {
			lines = append(lines, fmt.Sprintf("%s %s: %s | %s", one.Verdict, one.About, one.Message, one.Do))
			asks := one.Verdict == Problem || one.Verdict == Warning || one.Verdict == Unasked
			if lint := strings.HasPrefix(one.About, "CloneSet "); asks && one.Do == "" && !lint { // whose sentences say what to do
				t.Errorf("%s: nothing to do about %q", c.reason, lines[len(lines)-1])
			}
		}
		text := strings.Join(lines, "\n")
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: got\n%s\nwant %q", c.reason, text, want)
			}
		}
		if status := statusOf(verdictOf(all)); status != c.status || status == exitOK && strings.Contains(text, "problem") {
			t.Errorf("%s: exit status %d, want %d\n%s", c.reason, status, c.status, text)
		}
	})
}

// checked is a cluster to check.
type checked struct {
	objects        []client.Object
	lists          func(client.ObjectList) error
	denied, prints string
	fails          error
	version        string
}

// wholeCluster has OpenKruise, a manager that leads, and a CloneSet with Rollcall's hooks.
func wholeCluster(t *testing.T) *checked {
	t.Helper()
	pod := func(namespace, name, image string, labels map[string]string, args ...string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
			Spec: corev1.PodSpec{
				ServiceAccountName: "rollcall", Containers: []corev1.Container{{Name: "manager", Image: image, Args: args}},
			},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
		}
	}
	return &checked{
		objects: []client.Object{
			theCloneSet(t, cloneSetText), leaseHeld(now),
			pod("system", "rollcall-0", "ghcr.io/rollcall-dev/rollcall:v1.0.0",
				map[string]string{"app.kubernetes.io/name": "rollcall", "app.kubernetes.io/component": "manager"}),
			pod(kruiseNamespace, "kruise-0", "openkruise/kruise-manager:v1.9.1",
				map[string]string{"control-plane": "controller-manager"}, "--feature-gates=KruiseDaemon=false"),
		},
		prints: `{"registry":"default","driver":"consul","written":true}`, version: "v1.0.0",
	}
}

func (c *checked) check(t *testing.T, configuration string) []Checked {
	t.Helper()
	led := slices.ContainsFunc(c.objects, func(o client.Object) bool { return o.GetName() == "rollcall" })
	cluster, _ := installed(t, configuration, c.objects...)
	cluster.version = c.version
	if led {
		renewing(t, cluster)
	}
	below, _ := cluster.Client.(client.WithWatch)
	cluster.Client = interceptor.NewClient(below, interceptor.Funcs{
		List: func(ctx context.Context, to client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if c.lists != nil {
				if err := c.lists(list); err != nil {
					return err
				}
			}
			return to.List(ctx, list, opts...)
		},
		Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
			review, is := object.(*authorizationv1.SubjectAccessReview)
			if !is {
				return fmt.Errorf("the check creates %T", object)
			}
			of := review.Spec.ResourceAttributes
			review.Status.Allowed = of.Verb+" "+of.Resource != c.denied && review.Spec.User == "system:serviceaccount:system:rollcall"
			return nil
		},
	})
	return (&checker{
		cluster: cluster, server: func() (string, error) { return "v1.34.4", nil },
		inManager: func(_ context.Context, pod *corev1.Pod, flag string) ([]byte, error) {
			if pod.Name != "rollcall-0" || flag != "--check-registries" {
				t.Errorf("it runs %s in %s", flag, pod.Name)
			}
			return []byte("a line of a log\n" + c.prints + "\n"), c.fails
		},
	}).check(t.Context())
}

// signed makes an authority, and the certificate of the managers that it has signed.
func signed(t *testing.T, until time.Time) (authority, chain []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	expect.NoError(t, err)
	parent := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: until, IsCA: true, BasicConstraintsValid: true,
		Subject: pkix.Name{CommonName: "authority"},
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: now.Add(-time.Hour), NotAfter: until, DNSNames: []string{"rollcall-evictions.system.svc"},
	}
	for _, of := range []struct {
		to   *[]byte
		what *x509.Certificate
	}{{&authority, parent}, {&chain, leaf}} {
		der, err := x509.CreateCertificate(rand.Reader, of.what, parent, &key.PublicKey, key)
		expect.NoError(t, err)
		*of.to = encoding.EncodeToMemory(&encoding.Block{Type: "CERTIFICATE", Bytes: der})
	}
	return authority, chain
}

func webhookWith(authority []byte) *admissionv1.MutatingWebhookConfiguration {
	return &admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "rollcall-evictions"},
		Webhooks: []admissionv1.MutatingWebhook{{
			Name: "evictions.rollcall.dev", ClientConfig: admissionv1.WebhookClientConfig{
				CABundle: authority, Service: &admissionv1.ServiceReference{Namespace: "system", Name: "rollcall-evictions"},
			},
		}},
	}
}

func servesWith(chain []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "rollcall-evictions"}, Data: map[string][]byte{corev1.TLSCertKey: chain},
	}
}

// TestRegistryRemedy: the remedy follows from what failed.
func TestRegistryRemedy(t *testing.T) {
	t.Parallel()
	for failure, want := range map[string]string{
		"Get \"http://consul:8500\": dial tcp: lookup consul on 10.96.0.10:53: no such host":                      "no such host",
		`dial tcp 10.0.0.9:8500: connect: connection refused`:                                                     "nothing listens",
		`rpc error: code = Unavailable desc = connection error: desc = "transport: dial tcp: connection refused"`: "nothing listens",
		"tls: failed to verify certificate: x509: certificate signed by unknown authority":                        "TLS failed",
		"http: server gave HTTP response to HTTPS client":                                                         "TLS failed",
		"Unexpected response code: 403 (Permission denied)":                                                       "rejects the credentials",
		"the server answers 401": "rejects the credentials",
		"zk: not authenticated":  "rejects the credentials",
		"etcdserver: authentication failed, invalid user ID or password":     "rejects the credentials",
		"context deadline exceeded":                                          "no answer",
		"dial tcp 10.0.0.9:2181: i/o timeout":                                "no answer",
		"registry has 4031 entries, and group \"oracle\" is not one of them": "see which rights",
	} {
		if got := registryRemedy(failure); !strings.HasPrefix(got, want) && !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", failure, got, want)
		}
	}
}

// TestOldestVersions: the check warns of what is older than any version that is tested.
func TestOldestVersions(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "versions.md"))
	expect.NoError(t, err)
	for name, oldest := range map[string]string{"Kubernetes": oldestKubernetes, "OpenKruise": oldestKruise} {
		all := regexp.MustCompile(`\| `+name+` \| (\d+\.\d+)`).FindAllStringSubmatch(string(page), -1)
		if len(all) == 0 || all[len(all)-1][1] != oldest {
			t.Errorf("%s: the page has %v, and the check %s", name, all, oldest)
		}
	}
}

// TestSkew warns of releases only: what is built from a checkout has no order.
func TestSkew(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason, plugin string
		managers       []string
		want           string
	}{
		"the same":                    {"all is well", "v1.0.0", []string{"v1.0.0"}, ""},
		"the same, mirrored":          {"the mirror leaves out the letter", "v1.0.0", []string{"1.0.0"}, ""},
		"older":                       {"the plugin may read what they do not write", "v1.1.0", []string{"v1.0.0"}, "the managers are v1.0.0"},
		"in the middle of an upgrade": {"one of them is another", "v1.0.0", []string{"v1.0.0", "v1.1.0"}, "the managers are v1.1.0"},
		"a checkout":                  {"it may be either", "v1.0.0", []string{"dev", "sha256:ab"}, ""},
		"built by oneself":            {"it may be either", "unknown", []string{"v1.0.0"}, ""},
	} {
		if got := skew(c.plugin, c.managers); got == "" != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q\nreason: %s", name, got, c.want, c.reason)
		}
	}
	for image, want := range map[string]string{
		"ghcr.io/rollcall-dev/rollcall:v1.0.0": "v1.0.0", "registry:5000/rollcall": "latest", "registry:5000/rollcall:v2@sha256:ab": "v2",
		"rollcall@sha256:ab": "sha256:ab",
	} {
		if got := tagOf(image); got != want {
			t.Errorf("image %s has tag %q, want %q", image, got, want)
		}
	}
}
