package service

import (
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestPlaceOf(t *testing.T) {
	t.Parallel()
	s := Subject{Namespace: "shop", Labels: map[string]string{"team": "a"}, NamespaceLabels: map[string]string{"example.com/tier": "gold"}}
	type row struct {
		reason   string
		template string
		want     string
		err      string
	}
	expect.Each(t, map[string]row{
		"no places":             {"most registries have none", "", "", ""},
		"by namespace":          {"it needs no label", "rc-{namespace}", "rc-shop", ""},
		"by labels":             {"both are there", "{nsLabel:example.com/tier}/{label:team}", "gold/a", ""},
		"no label":              {"the pod's author can set it", "{label:app}", "", "the pod has no label app"},
		"no label of namespace": {"an administrator can set it", "{nsLabel:team}/{namespace}", "", "namespace shop has no label team"},
	}, func(t *testing.T, tc row) {
		got, err := PlaceOf(tc.template, s)
		if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("got %q and error %v, want %q and %q: %s", got, err, tc.want, tc.err, tc.reason)
		}
	})
}
