package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/enroll"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/lint"
	"github.com/rollcall-dev/rollcall/internal/service"
)

// enrolling is what a person asks for.
type enrolling struct {
	names             []string
	selector, file    string
	all, undo, label  bool
	acrossAll, chosen bool
}

func (o *options) enrollCommand() *cobra.Command {
	var of enrolling
	c := &cobra.Command{
		Use:   "enroll (CLONESET... | -l SELECTOR | --all | --label-namespace)",
		Short: "Add Rollcall's hooks to CloneSets without restarting pods, or remove them",
		Long: "Write spec.lifecycle of CloneSets. It is not part of the pod template, so no pod restarts, and Rollcall arms the running pods. " +
			"A CloneSet that already has hooks is left as it is. --undo removes only what this command added.\n\n" +
			"--dry-run writes nothing and needs no manager. For each CloneSet it shows the hooks that it would get or why it is refused, and " +
			"for each pod the entries that Rollcall would keep. It also shows what the registry has there now, if this machine can reach " +
			"the registry and has the files of the configuration. -A is for the whole cluster.",
		Example: "  kubectl rollcall enroll --dry-run -A --config config.yaml\n  kubectl rollcall enroll web -n prod\n" +
			"  kubectl rollcall enroll --all -n prod\n  kubectl rollcall enroll web -n prod --undo",

		ValidArgsFunction: o.complete(&kruisev1alpha1.CloneSetList{}),
		RunE: o.connected(func(ctx context.Context, cluster *cluster, names []string) error {
			of.names, of.chosen = names, of.all || of.acrossAll || of.selector != ""
			if err := of.check(o.dry); err != nil {
				return err
			}
			return cluster.enroll(ctx, of)
		}),
	}
	c.Flags().StringVarP(&of.selector, "selector", "l", "", "Enroll the CloneSets in the namespace that have these labels.")
	c.Flags().BoolVar(&of.all, "all", false, "Enroll all CloneSets in the namespace.")
	c.Flags().BoolVar(&of.label, "label-namespace", false,
		"Label the namespace, so that Rollcall enrolls all of its CloneSets, also later ones.")
	c.Flags().BoolVar(&of.undo, "undo", false, "Remove the hooks, or the label, that this command added.")
	c.Flags().BoolVar(&o.dry, "dry-run", false, "Show what would be done, and write nothing.")
	c.Flags().BoolVarP(&of.acrossAll, "all-namespaces", "A", false, "With --dry-run: preview the CloneSets of all namespaces.")
	c.Flags().StringVar(&of.file, "config", "", "With --dry-run: the configuration file. Default: the ConfigMap in the cluster.")
	return c
}

// check refuses flags that exclude each other. A dry run without a choice reads the whole namespace.
func (e *enrolling) check(dry bool) error {
	switch named := len(e.names) > 0; {
	case !dry && (e.acrossAll || e.file != ""):
		return errors.New("-A and --config are for --dry-run: add it, or remove them")
	case e.label && (e.chosen || named):
		return errors.New("--label-namespace is for all CloneSets of the namespace: specify no others")
	case e.chosen && named, e.undecided() && (e.undo || !dry):
		return errors.New("specify names of CloneSets, -l SELECTOR, --all or --label-namespace")
	}
	return nil
}

// undecided reports whether no argument chooses CloneSets.
func (e *enrolling) undecided() bool { return !e.chosen && !e.label && len(e.names) == 0 }

func (c *cluster) enroll(ctx context.Context, of enrolling) error {
	switch {
	case c.dry && !of.undo:
		return c.preview(ctx, of)
	case of.label:
		return c.labelNamespace(ctx, of.undo)
	}
	sets, err := c.cloneSets(ctx, of.names, of.selector)
	if err != nil {
		return err
	}
	if of.undo {
		return c.withdraw(ctx, sets)
	}
	return c.give(ctx, sets)
}

// cloneSets reads those with the names, or without names those that match the selector.
func (c *cluster) cloneSets(ctx context.Context, names []string, selector string) ([]kruisev1alpha1.CloneSet, error) {
	matching, err := parseSelector(selector)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		var list kruisev1alpha1.CloneSetList
		if err := c.List(ctx, &list, client.InNamespace(c.namespace), matching); err != nil {
			return nil, reading("CloneSets", err)
		}
		if len(list.Items) == 0 {
			if selector == "" {
				return nil, &exitError{exitNotFound, fmt.Errorf("namespace %s has no CloneSets", c.namespace)}
			}
			return nil, &exitError{exitNotFound, fmt.Errorf("namespace %s has no CloneSet with the labels %s", c.namespace, selector)}
		}
		return list.Items, nil
	}
	sets := make([]kruisev1alpha1.CloneSet, len(names))
	for i, name := range names {
		if err := c.one(ctx, "CloneSet", name, &sets[i]); err != nil {
			return nil, err
		}
	}
	return sets, nil
}

// each prints what was done to each CloneSet, in one word or a few.
func (o *options) each(sets []kruisev1alpha1.CloneSet, do func(*kruisev1alpha1.CloneSet) (did string, err error)) error {
	var failed []error
	for i := range sets {
		did, err := do(&sets[i])
		failed = append(failed, err)
		if err == nil {
			fmt.Fprintf(o.Out, "cloneset.apps.kruise.io/%s %s\n", sets[i].Name, did)
		}
	}
	return errors.Join(failed...)
}

// give gives the hooks to CloneSets of one namespace. New pods would wait at them for a manager that leads.
func (c *cluster) give(ctx context.Context, sets []kruisev1alpha1.CloneSet) error {
	parsed, err := c.config(ctx, config.Limits{})
	if err != nil {
		return err
	}
	lease, unled := c.renewed(ctx)
	refusal, err := c.refusal(ctx, lease, unled)
	if err == nil && refusal != "" {
		err = fmt.Errorf("new pods might wait at the hooks forever: %s", refusal)
	}
	if err != nil {
		return err
	}
	if !c.watches(ctx, parsed, sets[0].Namespace) {
		return notWatched(parsed, sets[0].Namespace)
	}
	if _, err := c.led(ctx, lease, unled); err != nil {
		return err
	}
	of, err := c.labelsOf(ctx, sets[0].Namespace, parsed.Service.Allowed)
	if err != nil {
		return err
	}
	err = c.each(sets, func(set *kruisev1alpha1.CloneSet) (string, error) {
		if enroll.Owned(set, enroll.FormerPluginOwner) {
			return "was enrolled: its hooks now belong to the field manager " + string(enroll.PluginOwner),
				asking(enroll.TakeOver(ctx, c, set, enroll.FormerPluginOwner, enroll.PluginOwner))
		}
		if enroll.Managed(set, parsed) {
			return "unchanged: it already has Rollcall's hooks", nil
		}
		if why := enroll.Obstacle(set, parsed, of); why != "" {
			return "", fmt.Errorf("CloneSet %s is not enrolled: %s", set.Name, why)
		}
		return "enrolled", asking(enroll.Enroll(ctx, c, set, enroll.PluginOwner))
	})
	if err != nil {
		return err
	}
	return c.warnOfUnseen(ctx, sets, parsed)
}

// looks is how many times, a second apart, pods are read whose CloneSets have just got their hooks: a manager takes a moment.
const looks = 15

// warnOfUnseen reports which ready pods of the CloneSets will keep OpenKruise waiting, since the entries that their applications write are
// not found.
func (c *cluster) warnOfUnseen(ctx context.Context, sets []kruisev1alpha1.CloneSet, parsed *config.Config) error {
	for tries := 1; ; tries++ {
		unseen, err := c.unseen(ctx, sets, parsed)
		if err != nil || len(unseen) == 0 {
			return err
		}
		if tries == looks {
			c.warnOnce("the applications in these pods register themselves, and Rollcall has not found their entries: %s. OpenKruise will wait "+
				"before it deletes such a pod or updates it in place. %s shows what was looked for; enroll with --undo removes the hooks",
				strings.Join(unseen, ", "), c.again("explain %s -n %s", unseen[0], sets[0].Namespace))
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the applications' entries to be found: %w", ctx.Err())
		case <-time.After(refresh):
		}
	}
}

// unseen are the names of the ready pods of the CloneSets whose applications register themselves, and have not been found by a manager.
func (c *cluster) unseen(ctx context.Context, sets []kruisev1alpha1.CloneSet, parsed *config.Config) (names []string, err error) {
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(sets[0].Namespace)); apierrors.IsForbidden(err) {
		return nil, nil // a person who may not list pods reads the CloneSet's Events
	} else if err != nil {
		return nil, reading("pods", err)
	}
	for i := range pods.Items {
		pod := lifecycle.PodOf(&pods.Items[i])
		record := lifecycle.RecordOf(pod)
		found := record.Want == lifecycle.InService && len(record.Unfound) == 0
		of := slices.ContainsFunc(sets, func(set kruisev1alpha1.CloneSet) bool { return metav1.IsControlledBy(pod, &set) })
		if of && lifecycle.IsReady(pod) && !found && lint.RegistersItself(pod.Annotations, parsed) {
			names = append(names, pod.Name)
		}
	}
	return names, nil
}

// withdraw takes back what give gave.
func (c *cluster) withdraw(ctx context.Context, sets []kruisev1alpha1.CloneSet) error {
	return c.each(sets, func(set *kruisev1alpha1.CloneSet) (string, error) {
		did := "unchanged: this command added no hooks to it"
		for _, owner := range []client.FieldOwner{enroll.PluginOwner, enroll.FormerPluginOwner} {
			if !enroll.Owned(set, owner) {
				continue
			}
			if c.dry {
				return "would be unenrolled (dry run)", nil
			}
			if err := enroll.Withdraw(ctx, c, set, owner); err != nil {
				return "", asking(err)
			}
			did = "unenrolled"
		}
		return did, nil
	})
}

// labelNamespace writes the label by which Rollcall enrolls the CloneSets of the namespace, or takes it back. The hooks are the manager's
// to give, so none has to lead.
func (c *cluster) labelNamespace(ctx context.Context, undo bool) error {
	var namespace corev1.Namespace
	if err := c.Get(ctx, client.ObjectKey{Name: c.namespace}, &namespace); err != nil {
		return reading("namespace "+c.namespace, err)
	}
	do := c.label
	if undo {
		do = c.unlabel
	}
	did, err := do(ctx, &namespace)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "namespace/%s %s\n", c.namespace, did)
	return nil
}

func (c *cluster) label(ctx context.Context, namespace *corev1.Namespace) (did string, err error) {
	parsed, err := c.config(ctx, config.Limits{})
	if err != nil {
		return "", err
	}
	if !parsed.Watches(namespace.Name, namespace.Labels) {
		return "", notWatched(parsed, namespace.Name)
	}
	if !parsed.Enroll {
		return "", fmt.Errorf("enrollment by namespace is off: set enroll: true in ConfigMap %s/%s, with the component enroll, and restart the "+
			"managers", c.installation, configMapName)
	}
	return "labelled: Rollcall enrolls its CloneSets", asking(enroll.LabelNamespace(ctx, c, namespace, enroll.PluginOwner))
}

func (c *cluster) unlabel(ctx context.Context, namespace *corev1.Namespace) (did string, err error) {
	switch {
	case !enroll.Owned(namespace, enroll.PluginOwner):
		return "unchanged: this command did not label it", nil
	case c.dry:
		return "would no longer be labelled by this command (dry run)", nil
	}
	return "no longer labelled by this command", asking(enroll.UnlabelNamespace(ctx, c, namespace, enroll.PluginOwner))
}

// labelsAfter looks the labels of a namespace up in the cluster, after the input has been asked. They are nil if they can't be read.
func (c *cluster) labelsAfter(ctx context.Context, ofInput func(string) labels.Set) func(string) labels.Set {
	return func(namespace string) labels.Set {
		if of := ofInput(namespace); of != nil || namespace == "" {
			return of
		}
		read := clusterstate.NamespaceMetadata()
		if c.Get(ctx, client.ObjectKey{Name: namespace}, read) != nil {
			return nil
		}
		if read.Labels == nil {
			return labels.Set{} // which are known
		}
		return read.Labels
	}
}

// labelsOf returns those of a namespace if there is a policy of names, which alone needs them.
func (c *cluster) labelsOf(ctx context.Context, name string, policy service.Policy) (labels.Set, error) {
	if policy == nil {
		return nil, nil
	}
	var namespace corev1.Namespace
	if err := c.Get(ctx, client.ObjectKey{Name: name}, &namespace); apierrors.IsForbidden(err) {
		return nil, nil // not known, as those of a file
	} else if err != nil {
		return nil, reading("namespace "+name, err)
	}
	return namespace.Labels, nil
}
