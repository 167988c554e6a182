package plugin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/statuspage/entries"
)

// Verdict is what came of one check.
type Verdict string

// The verdicts. Unknown is what a person may not read, or what can't be asked now.
const (
	OK      Verdict = "ok"
	Warning Verdict = "warning"
	Unasked Verdict = "unknown"
	Problem Verdict = "problem"
)

// Checked is one check, and what to do about it.
type Checked struct {
	Verdict Verdict `json:"verdict"`
	About   string  `json:"about"`
	Message string  `json:"message"`
	Do      string  `json:"do,omitempty"`
}

// checker runs the checks. Its fields are what a test replaces.
type checker struct {
	*cluster

	// server is the API server's version, and inManager runs the manager's binary in a pod of it.
	server    func() (string, error)
	inManager func(ctx context.Context, pod *corev1.Pod, flag string) ([]byte, error)
	// config is nil if it can't be read.
	config *config.Config
	all    []Checked
}

func (o *options) checkCommand() *cobra.Command {
	var output *form
	c := &cobra.Command{
		Use:   "check",
		Short: "Check the installation, OpenKruise, the registries and the workloads, and show what to do",
		Long: "Check Kubernetes, OpenKruise and its CRDs, the configuration, the managers and their leader, the rights of each feature, the " +
			"certificate of the eviction webhook, each registry, and the workloads with Rollcall's hooks. Each problem comes with what to do.\n\n" +
			"The registries are checked in the leader's pod, by its own credentials: Rollcall lists its entries, writes one of service " +
			"rollcall-check that nothing answers to, and removes it. That needs the right to exec there. Without it, the status page shows " +
			"what the leader knows.\n\n" +
			"The exit status is 0 without a problem, 1 with one, and 10 if something could not be checked.",
		Example: "  kubectl rollcall check\n  kubectl rollcall check -o json",
		Args:    cobra.NoArgs,
		RunE: o.connected(func(ctx context.Context, cluster *cluster, _ []string) error {
			run := &checker{cluster: cluster, server: cluster.serverVersion, inManager: cluster.execManager}
			all := run.check(ctx)
			if output.forScripts() {
				if err := output.print(o.Out, all); err != nil {
					return err
				}
			} else {
				printChecks(o, all)
			}
			return verdictOf(all)
		}),
	}
	output = outputFlag(c)
	return c
}

// check returns all checks, in the order in which a person fixes what they find.
func (c *checker) check(ctx context.Context) []Checked {
	c.checkKubernetes()
	c.checkKruise(ctx)
	c.checkConfiguration(ctx)
	c.checkManagers(ctx)
	if c.config != nil {
		c.checkRights(ctx)
		c.checkWebhook(ctx)
		c.checkRegistries(ctx)
		c.checkWorkloads(ctx)
	}
	return c.all
}

func (c *checker) add(v Verdict, about, do, format string, arguments ...any) {
	c.all = append(c.all, Checked{v, about, fmt.Sprintf(format, arguments...), do})
}

// page is one of the docs, of the plugin's version.
func (c *checker) page(name string) string { return reason.Docs(c.version, "docs/"+name) }

// unless adds that something could not be read, if so.
func (c *checker) unless(err error, about string) bool {
	if err != nil {
		c.add(Unasked, about, "ask somebody with more rights to run this, or grant them", "%v", err)
	}
	return err == nil
}

func verdictOf(all []Checked) error {
	count := func(v Verdict) (n int) {
		for _, one := range all {
			if one.Verdict == v {
				n++
			}
		}
		return n
	}
	if n := count(Problem); n > 0 {
		return fmt.Errorf("problems found: %d", n)
	}
	if n := count(Unasked); n > 0 {
		return &exitError{exitUnchecked, fmt.Errorf("checks that could not be made: %d", n)}
	}
	return nil
}

func printChecks(o *options, all []Checked) {
	on := terminalOf(o.Out)
	for _, one := range all {
		mark := map[Verdict]tone{Problem: bad, Warning: waits, Unasked: waits}[one.Verdict]
		fmt.Fprint(o.Out, on.line(fmt.Sprintf("%-8s %s: %s", one.Verdict, one.About, printable(one.Message)), mark))
		if one.Do != "" {
			fmt.Fprintf(o.Out, "         do: %s\n", printable(one.Do))
		}
	}
}

func (c *checker) checkConfiguration(ctx context.Context) {
	const about = "configuration"
	parsed, err := c.cluster.config(ctx, config.Limits{})
	switch {
	case statusOf(err) == exitForbidden:
		c.unless(err, about)
		return
	case err != nil:
		c.add(Problem, about, "correct the fields, and see that manager --check-config accepts the file", "%v", err)
		return
	}
	c.config = parsed
	lease, unled := c.renewed(ctx)
	refusal, err := c.refusal(ctx, lease, unled)
	switch {
	case err != nil:
		c.unless(err, about)
	case refusal != "":
		c.add(Problem, about, "correct what the manager rejects; it keeps its previous configuration until then", "%s", refusal)
	default:
		c.add(OK, about, "", "cluster %s, registries: %s", parsed.Cluster, strings.Join(parsed.RegistryNames(), ", "))
	}
}

// checkRegistries runs the manager's own check in the leader's pod. If that is not possible, it shows what the leader knows.
func (c *checker) checkRegistries(ctx context.Context) {
	const about = "registries"
	lease, err := c.renewed(ctx)
	if err != nil {
		c.add(Unasked, about, "start the managers first: they have the credentials", "no manager leads that could ask them")
		return
	}
	var pod corev1.Pod
	name, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	err = c.Get(ctx, client.ObjectKey{Namespace: c.installation, Name: name}, &pod)
	switch {
	case apierrors.IsNotFound(err):
		c.add(Unasked, about, "run the manager there with --check-registries", "the leader %s is not a pod in namespace %s", name, c.installation)
		return
	case err != nil:
		c.unless(reading("the leader's pod", err), about)
		return
	}
	text, err := c.inManager(ctx, &pod, "--check-registries")
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	var seen []string
	for _, line := range lines {
		var one entries.RegistryCheck
		if json.Unmarshal(line, &one) != nil || one.Registry == "" {
			continue
		}
		seen = append(seen, one.Registry)
		c.registry(one.Registry, one.Driver, one.Note, one.Error)
	}
	if len(seen) == 0 {
		older := errors.New("it printed nothing: it may be older than this plugin")
		c.registriesByPage(ctx, fmt.Errorf("the leader's pod could not run the check: %w", cmp.Or(err, older)))
		return
	}
	for _, name := range c.config.RegistryNames() {
		if !slices.Contains(seen, name) {
			c.add(Unasked, "registry "+name, "run this again; the leader's log shows how fast the registries answer",
				"the check in the leader's pod ended before it came to this one: %v", cmp.Or(err, errors.New("it printed no line about it")))
		}
	}
}

func (c *checker) registry(name, driver, note, failure string) {
	about := "registry " + name
	switch {
	case failure != "":
		c.add(Problem, about, registryRemedy(failure)+": "+c.page("drivers/"+driver+".md"), "%s: %s", driver, failure)
	case note != "":
		c.add(OK, about, "", "%s, reached. Nothing was written: %s", driver, note)
	default:
		c.add(OK, about, "", "%s, reached; an entry was written and removed", driver)
	}
}

// registryRemedy is what to do about a call that failed, by the words of Go, gRPC and the servers. The first that matches counts.
func registryRemedy(failure string) string {
	for _, one := range []struct{ says, do string }{
		{`no such host|name resolution|server misbehaving`,
			"no such host: correct endpoint, and check that the managers' pods can resolve it"},
		{`connection refused`, "nothing listens there: correct host and port in endpoint, and check that the registry runs"},
		{`x509:|tls:|certificate|HTTP response to HTTPS client|HTTP request to an HTTPS server|malformed HTTP response`,
			"TLS failed: set tls.caFile to the CA of the registry's certificate, tls.certFile and tls.keyFile if it asks for one, and " +
				"http or https in endpoint as the registry serves"},
		{`(?i)\b401\b|\b403\b|permission denied|unauthori[sz]ed|unauthenticated|forbidden|authentication|not authenticated|\bACL\b`,
			"the registry rejects the credentials: correct auth, or grant them the rights of the page"},
		{`i/o timeout|deadline exceeded|timed out|no route to host|network is unreachable|connection reset`,
			"no answer: check that NetworkPolicies and firewalls let the managers reach endpoint, and how fast the registry answers"},
	} {
		if regexp.MustCompile(one.says).MatchString(failure) {
			return one.do
		}
	}
	return "see which rights and which network it needs"
}

// registriesByPage shows what the leader knows, which is whether it has listed the registry and whether calls fail.
func (c *checker) registriesByPage(ctx context.Context, why error) {
	const do = "grant yourself pods/exec in the managers' namespace, and run this again to see whether Rollcall can write there"
	lease, err := c.lease(ctx)
	var page entries.Page
	if err == nil {
		limited, cancel := context.WithTimeout(ctx, answerWithin)
		defer cancel()
		_, err = c.ask(limited, lease, entries.PagePath, nil, &page)
	}
	if err != nil {
		c.add(Unasked, "registries", do, "%v; nor does the status page tell: %v", why, err)
		return
	}
	for _, r := range page.Registries {
		failure := r.Failure
		if failure == "" && r.Breaker == "open" {
			failure = "the leader's calls fail, and it makes only one every five seconds"
		}
		if failure != "" {
			c.registry(r.Name, r.Driver, "", failure)
			continue
		}
		c.add(Unasked, "registry "+r.Name, do, "%s, reached, by the leader's status page. Whether it can be written is not known: %v",
			r.Driver, why)
	}
}

// execWithin bounds a check of all registries, each of which may take its timeout several times.
const execWithin = 2 * time.Minute

// execManager runs the manager's binary with one more flag in its own pod, by kubectl: it is there where the plugin is.
func (c *cluster) execManager(ctx context.Context, pod *corev1.Pod, flag string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, execWithin)
	defer cancel()
	arguments := append(slices.Clone(c.kubectlFlags), "-n", pod.Namespace, "exec", pod.Name, "-c", "manager", "--", "/manager", flag)
	for _, container := range pod.Spec.Containers {
		for _, argument := range container.Args {
			if container.Name == "manager" && strings.HasPrefix(argument, "--config=") {
				arguments = append(arguments, argument)
			}
		}
	}
	var failure bytes.Buffer
	command := exec.CommandContext(ctx, "kubectl", arguments...) //nolint:gosec // the person's own kubectl, with the person's flags
	command.Stderr = &failure
	text, err := command.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(failure.String()))
	}
	return text, err
}
