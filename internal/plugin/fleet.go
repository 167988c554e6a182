package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fleet is the cluster of each context that --context lists, such as "prod-a,prod-b": usually one.
type fleet []*cluster

func (o *options) fleet(cmd *cobra.Command) (fleet, error) {
	var all fleet
	for _, one := range o.contexts(cmd) {
		c, err := one.cluster()
		if err != nil {
			return nil, one.of(err)
		}
		c.warnOfSkew(cmd.Context())
		all = append(all, c)
	}
	return all, nil
}

// contexts returns the options for each context. A name with a comma is one context, if the kubeconfig has it.
func (o *options) contexts(cmd *cobra.Command) (all []*options) {
	raw, err := o.flags.ToRawKubeConfigLoader().RawConfig()
	_, one := raw.Contexts[*o.flags.Context]
	names := strings.Split(*o.flags.Context, ",")
	if err != nil || one || len(names) == 1 {
		return []*options{o}
	}
	for _, name := range names {
		all = append(all, o.in(cmd, name))
	}
	return all
}

// in returns the options of the command line for one of its contexts.
func (o *options) in(cmd *cobra.Command, name string) *options {
	own, set, several := *o, pflag.NewFlagSet("", pflag.ContinueOnError), *o.flags.Context
	own.flags = genericclioptions.NewConfigFlags(true)
	own.flags.AddFlags(set)
	set.VisitAll(func(f *pflag.Flag) {
		for _, value := range givenTo(cmd, f.Name) {
			_ = f.Value.Set(value) // as it was set before
		}
	})
	*own.flags.Context, own.context, own.warned = name, name, nil
	own.kubectlFlags = slices.Clone(o.kubectlFlags)
	for i, flag := range own.kubectlFlags {
		own.kubectlFlags[i] = strings.Replace(flag, "--context="+several, "--context="+name, 1)
	}
	for _, text := range []*string{&own.kubectl, &own.given} {
		*text = strings.Replace(*text, "--context="+shell(several), "--context="+shell(name), 1)
	}
	return &own
}

// prefix tells which of several contexts a line is about.
func prefix(context string) string {
	if context == "" {
		return ""
	}
	return "context " + context + ": "
}

// of tells which of several contexts an error is about.
func (o *options) of(err error) error {
	if o.context == "" || err == nil {
		return err
	}
	return fmt.Errorf("%s%w", prefix(o.context), err)
}

// status asks each cluster. If some of several can't be asked, the others are shown.
func (f fleet) status(ctx context.Context, everywhere bool, matching client.ListOption) (*status, error) {
	var all []*status
	var failed []error
	for _, c := range f {
		namespace := c.namespace
		if everywhere {
			namespace = ""
		}
		s, err := c.status(ctx, namespace, matching)
		if err != nil {
			failed = append(failed, c.of(err))
			continue
		}
		s.belongTo(c)
		all = append(all, s)
	}
	if len(all) == 0 {
		return nil, errors.Join(failed...)
	}
	s := together(all)
	s.failed = errors.Join(failed...)
	return s, nil
}

// belongTo marks what is shown as of one of several contexts.
func (s *status) belongTo(c *cluster) {
	for i := range s.pods {
		s.pods[i].Context, s.pods[i].facts.unasked = c.context, s.unknown != nil
	}
	if s.unknown = c.of(s.unknown); s.leaderless != "" {
		s.leaderless = prefix(c.context) + s.leaderless
	}
}

func together(all []*status) *status {
	s, namespaces := all[0], []string{all[0].namespace}
	for _, other := range all[1:] {
		namespaces = append(namespaces, other.namespace)
		s.pods = append(s.pods, other.pods...)
		s.unknown = errors.Join(s.unknown, other.unknown)
		s.leaderless = strings.TrimPrefix(s.leaderless+"\n"+other.leaderless, "\n")
	}
	s.leaderless = strings.TrimSuffix(s.leaderless, "\n")
	slices.Sort(namespaces)
	s.namespace = strings.Join(slices.Compact(namespaces), " or ")
	sortPods(s.pods)
	return s
}
