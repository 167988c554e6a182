package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fleet is the cluster of each context that --context lists, such as "prod-a,prod-b": usually one.
type fleet struct {
	clusters []*cluster
	// failed is about contexts that the kubeconfig does not have, or can't be used.
	failed []error
	// within bounds how long one of several clusters may take.
	within time.Duration
}

// clusterWithin is how long all requests to one of several clusters may take together, until the others are shown without it. A large one
// has some hundred pages of pods.
const clusterWithin = time.Minute

func (o *options) fleet(cmd *cobra.Command) (fleet, error) {
	f := fleet{within: clusterWithin}
	for _, one := range o.contexts(cmd) {
		if c, err := one.cluster(); err != nil {
			f.failed = append(f.failed, one.of(err))
		} else {
			f.clusters = append(f.clusters, c)
		}
	}
	if len(f.clusters) == 0 {
		return f, errors.Join(f.failed...)
	}
	f.each(cmd.Context(), func(ctx context.Context, _ int, c *cluster) { c.warnOfSkew(ctx) })
	return f, nil
}

// each asks the clusters at the same time. One of several has a bound.
func (f fleet) each(ctx context.Context, ask func(ctx context.Context, at int, c *cluster)) {
	if len(f.clusters) == 1 && len(f.failed) == 0 {
		ask(ctx, 0, f.clusters[0])
		return
	}
	var asked sync.WaitGroup
	for at, c := range f.clusters {
		asked.Go(func() {
			limited, cancel := context.WithTimeout(ctx, f.within)
			defer cancel()
			ask(limited, at, c)
		})
	}
	asked.Wait()
}

// atOnce lets several clusters warn on one stream.
type atOnce struct {
	mu sync.Mutex
	to io.Writer
}

func (a *atOnce) Write(text []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.to.Write(text)
}

// contexts returns the options for each context. A name with a comma is one context, if the kubeconfig has it.
func (o *options) contexts(cmd *cobra.Command) (all []*options) {
	raw, err := o.flags.ToRawKubeConfigLoader().RawConfig()
	_, one := raw.Contexts[*o.flags.Context]
	names := strings.Split(*o.flags.Context, ",")
	if err != nil || one || len(names) == 1 {
		return []*options{o}
	}
	warnings := &atOnce{to: o.ErrOut}
	for _, name := range names {
		own := o.in(cmd, name)
		own.ErrOut = warnings
		all = append(all, own)
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
	answers, errs := make([]*status, len(f.clusters)), make([]error, len(f.clusters))
	f.each(ctx, func(ctx context.Context, at int, c *cluster) {
		namespace := c.namespace
		if everywhere {
			namespace = ""
		}
		answers[at], errs[at] = c.status(ctx, namespace, matching)
	})
	var all []*status
	failed := slices.Clone(f.failed)
	for at, c := range f.clusters {
		if err := errs[at]; err != nil {
			failed = append(failed, c.of(err))
			continue
		}
		answers[at].belongTo(c)
		all = append(all, answers[at])
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
