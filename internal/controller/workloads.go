package controller

import (
	"context"
	"fmt"
	"strings"
	"sync"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
)

// workloads answers what only all workloads together can say: which namespace a service name belongs to, and how many
// workloads have hooks of which none is ours. It is worked out anew, from the cache, after a workload changed.
type workloads struct {
	client client.Reader

	mu        sync.Mutex
	current   bool
	settings  *Settings
	claims    map[string]*kruisev1alpha1.CloneSet
	unmatched map[types.UID]bool
}

func newWorkloads(c client.Reader) *workloads { return &workloads{client: c} }

// changed has everything worked out anew when it is next asked for.
func (w *workloads) changed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.current = false
}

// claimant returns the namespace that a service name belongs to: that of the oldest workload which uses the name. It is
// empty where no workload does.
func (w *workloads) claimant(name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if holder := w.claims[claimKey(name)]; holder != nil {
		return holder.Namespace
	}
	return ""
}

func (w *workloads) unmatchedCount() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.unmatched)
}

// refresh works everything out anew where a workload or the settings changed.
func (w *workloads) refresh(ctx context.Context, settings *Settings) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current && w.settings == settings {
		return nil
	}
	var list kruisev1alpha1.CloneSetList
	if err := w.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing CloneSets: %w", err)
	}
	claims, unmatched := map[string]*kruisev1alpha1.CloneSet{}, map[types.UID]bool{}
	for i := range list.Items {
		workload := &list.Items[i]
		hooks := lifecycle.HooksOf(asLifecycle(workload), settings.Ownership)
		if hooks.Foreign {
			unmatched[workload.UID] = true
			w.warnUnmatched(ctx, workload, settings)
		}
		if hooks.Any() {
			claim(claims, workload, settings.Services)
		}
	}
	w.claims, w.unmatched, w.settings, w.current = claims, unmatched, settings, true
	return nil
}

// warnUnmatched says once that a workload's hooks are nobody's that we know, which is how a typo in owned shows.
func (w *workloads) warnUnmatched(ctx context.Context, workload *kruisev1alpha1.CloneSet, settings *Settings) {
	if w.unmatched[workload.UID] {
		return
	}
	log.FromContext(ctx).Info("A CloneSet has lifecycle hooks and no handler in them matches hooks.owned: its pods are left alone",
		"cloneset", client.ObjectKeyFromObject(workload), "owned", settings.Ownership.Owned)
}

func claim(claims map[string]*kruisev1alpha1.CloneSet, workload *kruisev1alpha1.CloneSet, rules service.Rules) {
	template := &workload.Spec.Template
	endpoints, err := rules.EndpointsOf(service.Subject{
		Namespace: workload.Namespace, Workload: workload.Name,
		Labels: template.Labels, Annotations: template.Annotations, Spec: &template.Spec,
	})
	if err != nil {
		return // the pods get the warning
	}
	for _, e := range endpoints {
		if holder := claims[claimKey(e.Service)]; holder == nil || older(workload, holder) {
			claims[claimKey(e.Service)] = workload
		}
	}
}

// claimKey is what a name claims: all that differ from it in case only, too, since Eureka's clients and Consul's DNS take
// them for one.
func claimKey(name string) string { return strings.ToLower(name) }

// older orders workloads by what no tenant can write, so that the answer is the same after a restart.
func older(a, b *kruisev1alpha1.CloneSet) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Namespace < b.Namespace
}
