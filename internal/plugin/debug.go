package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/rollcall-dev/rollcall/internal/orders"
	"github.com/rollcall-dev/rollcall/internal/statuspage/entries"
)

const (
	// explained is how many held pods are explained: more say the same.
	explained = 20
	// newest is how many Events are shown, and how many lines of each log.
	newest = 200
)

func (o *options) debugCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "debug",
		Short: "Print what a maintainer needs to investigate a problem, without secrets",
		Long: "Print what a maintainer needs: versions, the managers and their state, the configuration, the Lease, the status page, metrics, " +
			"Events, the held pods and the last lines of the logs. It reads no Secret, and masks passwords, tokens and the values of options, " +
			"headers and environment variables. It shows names and addresses of pods and services: read it before you pass it on. " +
			"What you may not read is left out, with a line that shows why.",
		Example: "  kubectl rollcall debug > rollcall-debug.txt",
		Args:    cobra.NoArgs,
		RunE: o.connected(func(ctx context.Context, c *cluster, _ []string) error {
			return c.debug(ctx, c.serverVersion)
		}),
	}
}

// serverVersion is that of the API server.
func (c *cluster) serverVersion() (string, error) {
	discovery, err := c.flags.ToDiscoveryClient()
	if err != nil {
		return "", fmt.Errorf("connecting to the API server: %w", err)
	}
	version, err := discovery.ServerVersion()
	if err != nil {
		return "", reading("the API server's version", err)
	}
	return version.GitVersion, nil
}

// part is one of the text: what could be read of it is shown, and then why the rest could not.
type part struct {
	title string
	write func(ctx context.Context, out io.Writer) error
}

// debug writes all parts. It masks the text as a whole: a secret of the configuration may be in any other part.
func (c *cluster) debug(ctx context.Context, server func() (string, error)) error {
	secrets := newSecrets()
	managers, unlisted := c.managerPods(ctx)
	if unlisted == nil && len(managers) == 0 {
		unlisted = fmt.Errorf("namespace %s has no pods of a manager: set --rollcall-namespace to where Rollcall is installed", c.installation)
	}
	for _, pod := range managers {
		secrets.ofPod(&pod)
	}
	each := func(write func(ctx context.Context, out io.Writer, pod *corev1.Pod) error) func(context.Context, io.Writer) error {
		return func(ctx context.Context, out io.Writer) error {
			all := []error{unlisted}
			for _, pod := range managers {
				fmt.Fprintf(out, "-- %s\n", pod.Name)
				all = append(all, write(ctx, out, &pod))
			}
			return errors.Join(all...)
		}
	}
	var text bytes.Buffer
	var failed error
	parts := []part{
		{"versions", func(ctx context.Context, out io.Writer) error { return c.versions(ctx, out, server) }},
		{"managers", each(func(_ context.Context, out io.Writer, pod *corev1.Pod) error { return writeYAML(out, describe(pod)) })},
		{"configuration", func(ctx context.Context, out io.Writer) error { return c.configuration(ctx, out, secrets) }},
		{"lease", c.writeLease},
		{"held pods", c.heldPods},
		{"events", c.writeEvents},
		{"status page", c.statusPage},
		{"metrics", each(c.metricsOf)},
		{"logs", each(c.logsOf)},
	}
	unread := 0
	for _, p := range parts {
		fmt.Fprintf(&text, "==== %s\n", p.title)
		if err := p.write(ctx, &text); err != nil {
			fmt.Fprintf(&text, "!! not all of it could be read: %v\n", err)
			failed, unread = err, unread+1
		}
		fmt.Fprintln(&text)
	}
	if _, err := io.WriteString(c.Out, secrets.hide(text.String())); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	if unread == len(parts) {
		return errors.New(secrets.hide(failed.Error()))
	}
	return nil
}

func (c *cluster) versions(ctx context.Context, out io.Writer, server func() (string, error)) error {
	fmt.Fprintf(out, "plugin: %s\n", c.version)
	version, err := server()
	fmt.Fprintf(out, "kubernetes: %s\n", version)
	var kruise corev1.PodList
	listed := c.List(ctx, &kruise, client.InNamespace("kruise-system"))
	if listed != nil {
		listed = reading("OpenKruise's pods", listed)
	}
	var images []string
	for _, pod := range kruise.Items {
		for _, container := range pod.Spec.Containers {
			images = append(images, container.Image)
		}
	}
	slices.Sort(images)
	fmt.Fprintf(out, "openkruise: %s\n", strings.Join(slices.Compact(images), " "))
	return errors.Join(err, listed)
}

// described is what is shown of a manager's pod: of its environment the names and where a value comes from.
type described struct {
	Name       string                   `json:"name"`
	Node       string                   `json:"node"`
	Started    *metav1.Time             `json:"started"`
	Deleted    *metav1.Time             `json:"deleted,omitempty"`
	Phase      corev1.PodPhase          `json:"phase"`
	Conditions []corev1.PodCondition    `json:"conditions"`
	Containers []corev1.Container       `json:"containers"`
	States     []corev1.ContainerStatus `json:"states"`
}

func describe(pod *corev1.Pod) described {
	d := described{
		Name: pod.Name, Node: pod.Spec.NodeName, Started: pod.Status.StartTime, Deleted: pod.DeletionTimestamp, Phase: pod.Status.Phase,
		Conditions: pod.Status.Conditions, States: pod.Status.ContainerStatuses,
	}
	for _, container := range pod.Spec.Containers {
		shown := corev1.Container{
			Name: container.Name, Image: container.Image, Args: container.Args, Resources: container.Resources, VolumeMounts: container.VolumeMounts,
		}
		for _, env := range container.Env {
			if env.Value != "" {
				env.Value = masked
			}
			shown.Env = append(shown.Env, env)
		}
		d.Containers = append(d.Containers, shown)
	}
	return d
}

func (c *cluster) configuration(ctx context.Context, out io.Writer, secrets *secrets) error {
	var object corev1.ConfigMap
	if err := c.Get(ctx, client.ObjectKey{Namespace: c.installation, Name: configMapName}, &object); err != nil {
		return reading("ConfigMap "+configMapName, err)
	}
	var content any
	if err := yaml.Unmarshal([]byte(object.Data[configKey]), &content); err != nil {
		return errors.New("it is not YAML, and is not shown because it could contain secrets") // the error could quote them
	}
	return writeYAML(out, secrets.ofConfig("", content, false))
}

func (c *cluster) writeLease(ctx context.Context, out io.Writer) error {
	var lease coordinationv1.Lease
	if err := c.Get(ctx, client.ObjectKey{Namespace: c.installation, Name: orders.Lease}, &lease); err != nil {
		return reading("Lease "+orders.Lease, err)
	}
	return writeYAML(out, map[string]any{"now": c.now().UTC(), "orders": lease.Annotations[orders.Annotation], "spec": lease.Spec})
}

// everywhere runs a read of all namespaces, and of the person's own where that is forbidden.
func (c *cluster) everywhere(out io.Writer, read func(namespace string) error) error {
	err := read("")
	if !apierrors.IsForbidden(err) {
		return err
	}
	fmt.Fprintf(out, "only namespace %s: %v\n", c.namespace, err)
	return read(c.namespace)
}

// heldPods explains the pods that wait.
func (c *cluster) heldPods(ctx context.Context, out io.Writer) error {
	warnings := &bytes.Buffer{}
	own := *c
	own.options = new(*c.options)
	own.Out, own.ErrOut, own.warned = out, warnings, nil
	err := own.everywhere(out, func(namespace string) error {
		s, err := own.status(ctx, namespace, client.MatchingLabels{})
		if err != nil {
			return err
		}
		held := slices.DeleteFunc(slices.Clone(s.pods), func(p Pod) bool { return p.Hook == "" && p.Reason == "" })
		fmt.Fprintf(out, "%d of %d managed pods wait or have a reason\n", len(held), len(s.pods))
		for _, p := range held[:min(len(held), explained)] {
			fmt.Fprintf(out, "-- %s/%s\n", p.Namespace, p.Name)
			own.explain(p, s.unknown)
		}
		return nil
	})
	_, _ = warnings.WriteTo(out)
	return err
}

func (c *cluster) writeEvents(ctx context.Context, out io.Writer) error {
	return c.everywhere(out, func(namespace string) error {
		events, err := c.reported(ctx, namespace)
		if err != nil {
			return reading("Events", err)
		}
		for _, e := range events[max(0, len(events)-newest):] {
			times := int32(1)
			if e.Series != nil {
				times = e.Series.Count
			}
			fmt.Fprintf(out, "%s %s %s x%d %s %s/%s: %s\n", lastSeen(e).UTC().Format(metav1.RFC3339Micro), e.Type, e.Reason, times,
				e.Regarding.Kind, e.Regarding.Namespace, e.Regarding.Name, printable(e.Note))
		}
		return nil
	})
}

func (c *cluster) statusPage(ctx context.Context, out io.Writer) error {
	lease, err := c.lease(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	var page json.RawMessage
	if _, err := c.ask(ctx, lease, entries.PagePath, nil, &page); err != nil {
		return err
	}
	return writeYAML(out, page)
}

// metricsOf writes Rollcall's own series and the process', without the buckets of histograms.
func (c *cluster) metricsOf(ctx context.Context, out io.Writer, pod *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	text, err := c.answered(ctx, pod, "/metrics", nil)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		name, _, _ := strings.Cut(line, "{")
		of := slices.ContainsFunc([]string{"rollcall", "process_", "go_goroutines", "go_memstats_heap_inuse", "workqueue_depth"},
			func(prefix string) bool { return strings.HasPrefix(name, prefix) })
		if of && !strings.HasSuffix(name, "_bucket") {
			fmt.Fprint(out, line)
		}
	}
	return nil
}

// logsOf writes the last lines of the manager, and of the container before it if it was restarted.
func (c *cluster) logsOf(ctx context.Context, out io.Writer, pod *corev1.Pod) error {
	return c.eachLog(ctx, pod, newest, func(container string, previous bool, text []byte) {
		fmt.Fprintf(out, "-- %s, container %s, before its last restart: %t\n", pod.Name, container, previous)
		_, _ = out.Write(text)
	})
}

func writeYAML(out io.Writer, value any) error {
	text, err := yaml.Marshal(value)
	if err != nil {
		return fmt.Errorf("encoding it: %w", err)
	}
	_, err = out.Write(text)
	return err
}
