package controller

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
)

// workloads reads what only all workloads and namespaces together can say: who uses which service name, which is for the
// claims, and how many workloads have hooks of which none is ours. It is worked out anew, from the cache, after one of them
// changed.
type workloads struct {
	client client.Reader
	claims *claims

	mu        sync.Mutex
	current   bool
	began     bool
	settings  *Settings
	unmatched map[types.UID]bool
}

func newWorkloads(c client.Reader, claims *claims) *workloads {
	return &workloads{client: c, claims: claims}
}

// changed has everything worked out anew when it is next asked for.
func (w *workloads) changed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.current = false
}

func (w *workloads) unmatchedCount() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.unmatched)
}

// refresh works everything out anew where a workload, a namespace or the settings changed.
func (w *workloads) refresh(ctx context.Context, settings *Settings, now time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current && w.settings == settings {
		return nil
	}
	if err := w.readRecords(ctx, settings); err != nil {
		return err
	}
	namespaces, err := readNamespaces(ctx, w.client)
	if err != nil {
		return err
	}
	var list kruisev1alpha1.CloneSetList
	if err := w.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing CloneSets: %w", err)
	}
	users, unmatched := map[string]map[string]bool{}, map[types.UID]bool{}
	for i := range list.Items {
		workload := &list.Items[i]
		hooks := lifecycle.HooksOf(asLifecycle(workload), settings.Ownership)
		if hooks.Foreign {
			unmatched[workload.UID] = true
			w.warnUnmatched(ctx, workload, settings)
		}
		if hooks.Any() {
			addUser(users, workload, settings.Services)
		}
	}
	w.claims.observed(namespaces, users, now)
	w.unmatched, w.settings, w.current = unmatched, settings, true
	return nil
}

// readRecords reads, once, what the leaders before this one have left in registries that can't say it.
func (w *workloads) readRecords(ctx context.Context, settings *Settings) error {
	if w.began || !slices.ContainsFunc(settings.names(), func(name string) bool { return !w.claims.hasListed(name) }) {
		return nil
	}
	var pods corev1.PodList
	if err := w.client.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	for i := range pods.Items {
		w.claims.recorded(pods.Items[i].UID, pods.Items[i].Namespace, lifecycle.RecordOf(&pods.Items[i]))
	}
	w.began = true
	return nil
}

// warnUnmatched says once that no handler in a workload's hooks is one that we know, which is how a typo in owned shows.
func (w *workloads) warnUnmatched(ctx context.Context, workload *kruisev1alpha1.CloneSet, settings *Settings) {
	if w.unmatched[workload.UID] {
		return
	}
	log.FromContext(ctx).Info("A CloneSet has lifecycle hooks and no handler in them matches hooks.owned: its pods are left alone",
		"cloneset", client.ObjectKeyFromObject(workload), "owned", settings.Ownership.Owned)
}

func addUser(users map[string]map[string]bool, workload *kruisev1alpha1.CloneSet, rules service.Rules) {
	template := &workload.Spec.Template
	endpoints, err := rules.EndpointsOf(service.Subject{
		Namespace: workload.Namespace, Workload: workload.Name,
		Labels: template.Labels, Annotations: template.Annotations, Spec: &template.Spec,
	})
	if err != nil {
		return // the pods get the warning
	}
	for _, e := range endpoints {
		name := claimKey(e.Service)
		if users[name] == nil {
			users[name] = map[string]bool{}
		}
		users[name][workload.Namespace] = true
	}
}
