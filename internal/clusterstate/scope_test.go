package clusterstate

import (
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestScope: what is not known of a namespace neither takes it in nor leaves it alone.
func TestScope(t *testing.T) {
	t.Parallel()
	byLabel := service.Namespaces{Selector: labels.SelectorFromSet(labels.Set{"team": "shop"})}
	none := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, nil)
	store := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, nil)
	for name, team := range map[string]string{"shop": "shop", "pay": "pay"} {
		namespace := NamespaceMetadata()
		namespace.Name, namespace.Labels = name, map[string]string{"team": team}
		expect.NoError(t, store.Add(namespace))
	}
	listed := service.Namespaces{Names: []string{"gone", "shop"}}
	type row struct {
		reason            string
		scope             *Scope
		cached            toolscache.Indexer
		namespace         string
		watches, excludes bool
	}
	expect.Each(t, map[string]row{
		"none":                  {"tests and tools have all", nil, nil, "pay", true, false},
		"all":                   {"nothing is chosen", NewScope(service.Namespaces{}, nil), none, "pay", true, false},
		"listed":                {"the cache has it", NewScope(listed, []string{"shop"}), none, "shop", true, false},
		"listed, not watched":   {"its entries count, and there are no pods", NewScope(listed, []string{"shop"}), none, "gone", false, false},
		"not listed":            {"another manager may have it", NewScope(listed, []string{"shop"}), none, "pay", false, true},
		"matches":               {"its label says so", NewScope(byLabel, nil), store, "shop", true, false},
		"does not match":        {"its label says so", NewScope(byLabel, nil), store, "pay", false, true},
		"not there, or not yet": {"nothing is known of its labels", NewScope(byLabel, nil), store, "gone", false, false},
		"not watched yet":       {"nothing is known of any", NewScope(byLabel, nil), nil, "shop", false, false},
	}, func(t *testing.T, tc row) {
		if tc.cached != nil {
			tc.scope.Follow(tc.cached)
		}
		if watches, excludes := tc.scope.Watches(tc.namespace), tc.scope.Excludes(tc.namespace); watches != tc.watches || excludes != tc.excludes {
			t.Errorf("watches %t and excludes %t, want %t and %t: %s", watches, excludes, tc.watches, tc.excludes, tc.reason)
		}
	})
}

// TestScope_Selects: an event shows what a namespace was, whatever it is by now.
func TestScope_Selects(t *testing.T) {
	t.Parallel()
	scope := NewScope(service.Namespaces{Selector: labels.SelectorFromSet(labels.Set{"team": "shop"})}, nil)
	was, is := NamespaceMetadata(), NamespaceMetadata()
	was.Labels = map[string]string{"team": "shop"}
	if !scope.Selects(was) || scope.Selects(is) || scope.Selects(nil) {
		t.Error("it does not go by the labels of what it is given")
	}
}
