package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
)

// freePage shows how a person does a manager's work.
const freePage = "docs/free-a-pod.md"

func (o *options) explainCommand() *cobra.Command {
	var output *form
	c := &cobra.Command{
		Use:   "explain POD|WORKLOAD|node/NAME",
		Short: "Show what a pod or a workload waits for and what you can do, or what a drain of a node would do",
		Long: "Of a pod, show why it is in rotation or not, what it waits for, and what you can do. Of a workload, show what its pods " +
			"wait for and what that means for its rollout. Of a node, ask for the eviction of each pod that Rollcall manages, as a dry run, " +
			"and show the answers, the entries that would leave, and how long the drains take.",
		Example: "  kubectl rollcall explain web-x7k2p -n prod\n  kubectl rollcall explain cloneset/web -n prod\n" +
			"  kubectl rollcall explain node/node-1",
		Args: oneName("pod, workload or node"),

		ValidArgsFunction: o.complete(&corev1.PodList{}, client.HasLabels{appspub.LifecycleStateKey}),
		RunE: o.connected(func(ctx context.Context, cluster *cluster, arguments []string) error {
			kind, name, err := subjectOf(arguments[0])
			switch {
			case err != nil:
				return err
			case kind == "":
				return cluster.explainNamed(ctx, name, output)
			case kind == kindPod:
				return cluster.explainPod(ctx, name, output)
			case kind == kindNode:
				return cluster.explainNode(ctx, name, output)
			default:
				return cluster.explainWorkload(ctx, kind, name, output)
			}
		}),
	}
	output = outputFlag(c)
	return c
}

func (c *cluster) explainPod(ctx context.Context, name string, output *form) error {
	p, w, err := c.pod(ctx, name)
	if err != nil {
		return err
	}
	if output.forScripts() {
		sayFirst(c.ErrOut, p.facts.leaderless)
		noEntries(c.ErrOut, w.unknown)
		return output.print(c.Out, c.explained(p, w.unknown))
	}
	c.explain(p, w.unknown)
	return nil
}

// Explained is what a program reads of a pod: [Pod], whose each handler is, and what explain prints for a person.
type Explained struct {
	Pod

	// Handlers are those of the workload's hooks.
	Handlers []Handler `json:"handlers"`
	// Explanation has a sentence an item, and Remedies what a person can do.
	Explanation []string `json:"explanation"`
	Remedies    []Remedy `json:"remedies"`
}

// Handler is one of a hook: a label with a value, or a finalizer.
type Handler struct {
	Hook      lifecycle.Hook `json:"hook"`
	Label     string         `json:"label,omitempty"`
	Value     string         `json:"value,omitempty"`
	Finalizer string         `json:"finalizer,omitempty"`
	// Set reports whether the pod has it, and Owned whether Rollcall owns it. Refused is why Rollcall does not use it all the same.
	Set     bool   `json:"set"`
	Owned   bool   `json:"owned"`
	Refused string `json:"refused,omitempty"`

	on int // how many pods of a workload have it
}

// Remedy is what a person can do, and how: a command, or a page to read.
type Remedy struct {
	What string `json:"what"`
	How  string `json:"how"`
}

func (o *options) explained(p Pod, unknown error) Explained {
	said := slices.DeleteFunc(sentences(p, unknown), func(s string) bool { return s == "" })
	return Explained{Pod: p, Handlers: handlersOf(p), Explanation: said, Remedies: o.remedies(p)}
}

func (o *options) skipCommand() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use:   "skip POD",
		Short: "Let a pod be updated or deleted without the registry's acknowledgement",
		Long: "Write the annotation " + lifecycle.AnnotationSkip + " for the hook that the pod waits at. Clients may still be sent " +
			"to the pod while it restarts or after it is gone, until the registry answers. You can't skip the acknowledgement that puts a " +
			"pod in rotation: the pod would count as available although clients can't find it.",
		Example: "  kubectl rollcall skip web-x7k2p -n prod",
		Args:    oneName("pod"),

		ValidArgsFunction: o.complete(&corev1.PodList{}, client.HasLabels{appspub.LifecycleStateKey}),
		RunE: o.connected(func(ctx context.Context, cluster *cluster, arguments []string) error {
			return cluster.skip(ctx, arguments[0], yes)
		}),
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "Do not ask for confirmation.")
	c.Flags().BoolVar(&o.dry, "dry-run", false, "Check, and write nothing.")
	return c
}

// skip asks first. An annotation that no manager reads, or that it refuses, would skip nothing.
func (c *cluster) skip(ctx context.Context, name string, yes bool) error {
	p, w, err := c.pod(ctx, name)
	if err != nil {
		return err
	}
	if p.Reason == reason.NotWatched {
		return &exitError{exitNotManaged, errors.New(p.Message)}
	}
	led, err := c.led(ctx, w.lease, w.unled)
	if err != nil {
		return fmt.Errorf("%w; to release the pod without a manager, see %s", err, reason.Docs(c.version, freePage))
	}
	if err := c.cannotSkip(p); err != nil {
		return err
	}
	if c.dry {
		fmt.Fprintf(c.Out, "pod/%s would be annotated to skip %s, which waits because of %s (dry run)\n", p.Name, p.Hook, p.Reason)
		return nil
	}
	question := fmt.Sprintf("Skipping %s of %s/%s (%s): clients may still be sent to the pod.", p.Hook, p.Namespace, p.Name, p.Reason)
	if err := c.confirm(yes, question, fmt.Sprintf("%s/%s was not annotated", p.Namespace, p.Name)); err != nil {
		return err
	}
	was := &corev1.Pod{ObjectMeta: p.facts.pod.ObjectMeta}
	err = annotate(ctx, c, "pod", was, lifecycle.AnnotationSkip, func(pod *corev1.Pod) (string, []operation, error) {
		now, _ := w.view(lifecycle.PodOf(pod))
		if now.Hook != p.Hook || now.State != p.State || !now.Since.Equal(p.Since) {
			return "", nil, fmt.Errorf("%s/%s was not annotated: it has moved on since the question, and the annotation would be for a hook "+
				"that it waits at later: %s shows what it waits for now", p.Namespace, p.Name, c.again("explain %s -n %s", p.Name, p.Namespace))
		}
		// A handler that is released by now, and nothing else, shows that the annotation would be for a later hook.
		version := operation{Op: "test", Path: "/metadata/resourceVersion", Value: pod.ResourceVersion}
		return skipWith(now), []operation{version}, c.cannotSkip(now)
	})
	if err != nil {
		return err
	}
	unless := ""
	if !led { // a dry run has no Lease
		unless = ", unless it runs with --dry-run"
	}
	fmt.Fprintf(c.Out, "pod/%s annotated: the manager releases %s when it next reconciles the pod%s\n", p.Name, p.Hook, unless)
	return nil
}

// cannotSkip returns why the manager would not follow the annotation, in its own words.
func (c *cluster) cannotSkip(p Pod) error {
	if d := p.facts.decision; !d.Releases || d.Skip().Empty() {
		return fmt.Errorf("%s/%s waits at no hook that can be skipped: %s shows what it waits for",
			p.Namespace, p.Name, c.again("explain %s -n %s", p.Name, p.Namespace))
	}
	with := *p.facts.pod
	with.ObjectMeta = *with.ObjectMeta.DeepCopy()
	metav1.SetMetaDataAnnotation(&with.ObjectMeta, lifecycle.AnnotationSkip, skipWith(p))
	if refused := lifecycle.SkipOf(&with, p.facts.workload).RefusedIn(p.facts.decision); refused != "" {
		return fmt.Errorf("the manager would skip no hook: %s", refused)
	}
	return nil
}

// skipWith is the annotation that skips the pod's hook, and what it has skipped without.
func skipWith(p Pod) string {
	hooks := lifecycle.SkipOf(p.facts.pod, p.facts.workload).Hooks
	if !slices.Contains(hooks, p.Hook) {
		hooks = append(hooks, p.Hook)
	}
	words := make([]string, len(hooks))
	for i, hook := range hooks {
		words[i] = string(hook)
	}
	return strings.Join(words, ",")
}

// pod reads one that Rollcall manages, and what there is around it.
func (c *cluster) pod(ctx context.Context, name string) (Pod, *world, error) {
	var whole corev1.Pod
	if err := c.one(ctx, "pod", name, &whole); err != nil {
		return Pod{}, nil, err
	}
	pod := lifecycle.PodOf(&whole)
	w, err := c.world(ctx, c.namespace)
	if err != nil {
		return Pod{}, nil, err
	}
	if err := w.unreadable(pod); err != nil {
		return Pod{}, nil, err
	}
	p, is := w.view(pod)
	if is {
		return p, w, nil
	}
	if !w.watches(p.Namespace) {
		return Pod{}, nil, notWatched(w.config, p.Namespace)
	}
	why := fmt.Sprintf("its workload has no hook with a handler that Rollcall owns (%s)", w.config.Hooks)
	if foreign := foreignOwner(pod); foreign != "" {
		why = "it " + foreign
	}
	return Pod{}, nil, &exitError{exitNotManaged, fmt.Errorf("pod %s/%s is not managed by Rollcall: %s", c.namespace, name, why)}
}

func parseSelector(text string) (client.ListOption, error) {
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("--selector %q: %w", text, err)
	}
	return client.MatchingLabelsSelector{Selector: selector}, nil
}
