// Package preview shows what Rollcall would do with CloneSets once enrolled. It reads the cluster once, decides by the rules of the
// manager, asks the registries, and writes nothing.
package preview

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/enroll"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/lint"
	"github.com/rollcall-dev/rollcall/internal/memory"
	"github.com/rollcall-dev/rollcall/internal/observe"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/settings"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
)

// Request is what to check.
type Request struct {
	Config *config.Config
	// Drivers are by name. A registry of any other is not asked.
	Drivers map[string]registry.Constructor
	// Namespace is empty for all.
	Namespace string
	// Chosen reports whether a CloneSet is to be enrolled, by its labels and those of its namespace.
	Chosen func(set *kruisev1alpha1.CloneSet, namespace labels.Set) bool
}

// Preview is what would be done.
type Preview struct {
	CloneSets []CloneSet
	// Unasked is why a registry can't be asked from here, by its name.
	Unasked map[string]error
}

// CloneSet is one that was chosen.
type CloneSet struct {
	Namespace string
	Name      string
	// Managed: it has hooks of Rollcall's already.
	Managed bool
	// Hooks are those that it would get. There are none if it is refused, or managed.
	Hooks []lifecycle.Named
	// Refused is why it can't be enrolled, with what to do.
	Refused []string
	// Notes are for a person to check, and hold nothing up.
	Notes []string
	// Pods are none if it is refused.
	Pods []Pod
}

// Pod is one of a CloneSet.
type Pod struct {
	Name  string
	Ready bool
	// Reason and Message are why the pod would wait, or what else a person should check.
	Reason  reason.Reason
	Message string
	// Entries are those that the pod would have.
	Entries []Entry
}

// Entry is one that a pod would have in a registry.
type Entry struct {
	Service  string
	Endpoint string
	Registry string
	// Writer is empty for Rollcall, or "app" for the pod's application.
	Writer lifecycle.Writer
	// Now is what the registry has there. It is empty if that is not known: the registry's Unasked explains why.
	Now registry.State
}

// Of reads the cluster with the person's rights.
func Of(ctx context.Context, from client.Reader, r Request) (*Preview, error) {
	snap, err := readSnapshot(ctx, from, r.Namespace)
	if err != nil {
		return nil, err
	}
	opened := open(ctx, r.Config, r.Drivers)
	defer opened.close()
	p := newPreviewer(ctx, from, snap, r, opened)
	sets := snap.cloneSets(r.Namespace)
	slices.SortFunc(sets, func(a, b *kruisev1alpha1.CloneSet) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	all := &Preview{}
	for _, set := range sets {
		if !r.Chosen(set, snap.labelsOf(set.Namespace)) {
			continue
		}
		one, err := p.cloneSet(ctx, set)
		if err != nil {
			return nil, err
		}
		all.CloneSets = append(all.CloneSets, one)
	}
	opened.ask(ctx, p.asks(all))
	all.Unasked = opened.unasked
	return all, nil
}

// previewer observes pods as a manager does that has just begun to lead.
type previewer struct {
	Request

	snap     *snapshot
	settings *observe.Settings
	observer *observe.Observer
	// targets are those of each pod's entries, in their order.
	targets map[client.ObjectKey][]tracker.Target
}

func newPreviewer(ctx context.Context, from client.Reader, snap *snapshot, r Request, opened *registries) *previewer {
	cached := &enroll.Supposed{Reader: snap, Config: func() *config.Config { return r.Config }, Such: r.Chosen}
	identity := clusterstate.NewIdentity(from, logr.Discard())
	identity.Learn(ctx)
	pods := clusterstate.PodsOf(snap.pods)
	s := settings.Of(r.Config, opened.clients)
	return &previewer{
		Request: r, snap: snap, settings: s.Completed(), targets: map[client.ObjectKey][]tracker.Target{},
		observer: &observe.Observer{
			Client: cached, Pods: pods, APIReader: cached, Tracker: tracker.New(), State: clusterstate.New(cached, pods, nil),
			Memory: memory.New(), Identity: identity, Clock: clock.RealClock{},
		},
	}
}

func (p *previewer) cloneSet(ctx context.Context, set *kruisev1alpha1.CloneSet) (CloneSet, error) {
	one := CloneSet{Namespace: set.Namespace, Name: set.Name, Managed: enroll.Managed(set, p.Config)}
	with := set
	if !one.Managed {
		refused, err := p.refused(ctx, set)
		if err != nil || len(refused) > 0 {
			one.Refused = refused
			return one, err
		}
		with = enroll.With(set)
		one.Hooks = lifecycle.HandlersOf(with.Spec.Lifecycle)
	}
	one.Notes = append(lint.Annotations(clusterstate.AsWorkload(with)), lint.Notes(clusterstate.AsWorkload(with), p.Config)...)
	pods, err := p.observer.Pods.List(ctx, clusterstate.OwnedBy(set.UID))
	if err != nil {
		return one, err
	}
	slices.SortFunc(pods, func(a, b *lifecycle.Pod) int { return cmp.Compare(a.Name, b.Name) })
	for _, pod := range pods {
		seen, err := p.pod(ctx, pod)
		if err != nil {
			return one, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		one.Pods = append(one.Pods, seen)
	}
	return one, nil
}

// refused is why the manager would not enroll it, and why no person should: no manager would see its pods.
func (p *previewer) refused(ctx context.Context, set *kruisev1alpha1.CloneSet) ([]string, error) {
	of := p.snap.labelsOf(set.Namespace)
	if !p.Config.Watches(set.Namespace, of) {
		return []string{fmt.Sprintf("namespace %s is not among the namespaces in the configuration: add it", set.Namespace)}, nil
	}
	if obstacles := enroll.Obstacles(set, p.Config, of); len(obstacles) > 0 {
		return obstacles, nil
	}
	refusal, err := p.observer.State.NameRefused(
		ctx, &p.settings.Rules, p.settings.Everywhere(), p.settings.SourcesOf, clusterstate.AsWorkload(set), time.Now())
	if err != nil || refusal == nil || refusal.Calm {
		return nil, err
	}
	return []string{refusal.Message}, nil
}

func (p *previewer) pod(ctx context.Context, pod *lifecycle.Pod) (Pod, error) {
	seen := Pod{Name: pod.Name, Ready: lifecycle.IsReady(pod)}
	look, err := p.observer.Look(ctx, lifecycle.PodIDOf(pod), p.settings)
	if err != nil || look.Facts == nil {
		return seen, err
	}
	why := cmp.Or(look.Facts.Problem, look.Facts.Warning)
	seen.Reason, seen.Message = why.Reason, why.Message
	for _, t := range look.Facts.Targets {
		in := t.Key()
		seen.Entries = append(seen.Entries, Entry{
			Service: string(in.Service), Endpoint: t.Instance.Endpoint(), Registry: in.Registry, Writer: in.Writer,
		})
	}
	p.targets[client.ObjectKeyFromObject(pod)] = look.Facts.Targets
	return seen, nil
}

// asks are the entries of all pods.
func (p *previewer) asks(all *Preview) (asks []asked) {
	for i := range all.CloneSets {
		set := &all.CloneSets[i]
		for j := range set.Pods {
			pod := &set.Pods[j]
			for k, t := range p.targets[client.ObjectKey{Namespace: set.Namespace, Name: pod.Name}] {
				asks = append(asks, asked{t, &pod.Entries[k]})
			}
		}
	}
	return asks
}
