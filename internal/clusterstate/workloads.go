package clusterstate

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
)

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch

// Workloads reads which service names the workloads use, which is for the [Claims], and which workloads have hooks of which
// none is Rollcall's. It reads the cache anew after a workload, a namespace or the rules changed.
type Workloads struct {
	cache  client.Reader
	claims *Claims

	mu          sync.Mutex
	current     bool
	readRecords bool
	rules       *Rules
	unmatched   map[types.UID]bool
}

// Changed has the cache read anew at the next [Workloads.Refresh].
func (w *Workloads) Changed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.current = false
}

// Unmatched returns how many workloads have hooks of which none is Rollcall's.
func (w *Workloads) Unmatched() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.unmatched)
}

// Refresh reads the cache where something changed. The registries are the names of those in use, and of the applications' entries in
// them.
func (w *Workloads) Refresh(ctx context.Context, rules *Rules, registries []string, now time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current && w.rules == rules {
		return nil
	}
	known := rules.configured(registries)
	if w.rules != rules {
		w.claims.reconfigured(known, now)
	}
	if !w.readRecords && !w.claims.haveListed(registries) {
		if err := w.refreshRecords(ctx, known, now); err != nil {
			return err
		}
	}
	namespaces, err := w.readNamespaces(ctx)
	if err != nil {
		return err
	}
	users, unmatched := map[string]map[string]bool{}, map[types.UID]bool{}
	err = EachWorkload(ctx, w.cache, func(workload *Workload) {
		hooks := lifecycle.HooksOf(workload.ForDecision(), rules.Ownership)
		if hooks.Foreign {
			unmatched[workload.GetUID()] = true
			w.warnUnmatched(ctx, workload, rules)
		}
		if hooks.Any() {
			addUser(users, workload, rules.Services)
		}
	}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return err
	}
	w.claims.observed(namespaces, users, now)
	w.unmatched, w.rules, w.current = unmatched, rules, true
	return nil
}

// refreshRecords reads, once, what the leaders before this one have left in registries that have yet to list it.
func (w *Workloads) refreshRecords(ctx context.Context, known configured, now time.Time) error {
	var pods corev1.PodList
	if err := w.cache.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	w.claims.recorded(pods.Items, known, now)
	w.readRecords = true
	return nil
}

func (w *Workloads) readNamespaces(ctx context.Context) (map[string]namespaceFacts, error) {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := w.cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing namespaces: %w", err)
	}
	namespaces := make(map[string]namespaceFacts, len(list.Items))
	for i := range list.Items {
		one := &list.Items[i]
		namespaces[one.Name] = namespaceFacts{created: one.CreationTimestamp.Time, labels: one.Labels}
	}
	return namespaces, nil
}

// warnUnmatched logs once that hooks.owned matches no handler of a workload's hooks, which is how a typo in it shows.
func (w *Workloads) warnUnmatched(ctx context.Context, workload *Workload, rules *Rules) {
	if w.unmatched[workload.GetUID()] {
		return
	}
	log.FromContext(ctx).Info("A workload has lifecycle hooks and no handler in them matches hooks.owned: its pods are left alone",
		"kind", workload.Kind, "workload", client.ObjectKeyFromObject(workload), "owned", rules.Ownership.Owned)
}

func addUser(users map[string]map[string]bool, workload *Workload, rules service.Rules) {
	endpoints, err := rules.EndpointsOf(workload.Subject())
	if err != nil {
		return // the pods get the warning
	}
	for _, e := range endpoints {
		name := claimKey(e.Service)
		if users[name] == nil {
			users[name] = map[string]bool{}
		}
		users[name][workload.GetNamespace()] = true
	}
}

// Behind reports whether one resource version of an object is older than another. An empty one is older than none.
func Behind(version, other string) bool {
	if other == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(version, other)
	return err == nil && order < 0
}
