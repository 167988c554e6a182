package service

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func allowance(t *testing.T, namespaces, selector, names string) Allowance {
	t.Helper()
	var a Allowance
	for text := range strings.FieldsSeq(namespaces) {
		a.Namespaces = append(a.Namespaces, NamespacePattern(text))
	}
	if selector != "" {
		var err error
		if a.Selector, err = labels.Parse(selector); err != nil {
			t.Fatal(err)
		}
	}
	for text := range strings.FieldsSeq(names) {
		a.Names = append(a.Names, NamePattern(text))
	}
	return a
}

func TestPolicyAllows(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason                     string
		namespaces, selector, give string
		namespace                  string
		labels                     labels.Set
		name                       string
		want                       bool
	}{
		"a name":                    {"it is written as it is", "shop", "", "web api", "shop", nil, "api", true},
		"another name":              {"what is not listed is refused", "shop", "", "web api", "shop", nil, "payments", false},
		"another namespace":         {"what is not listed is refused", "shop", "", "web", "staging", nil, "web", false},
		"other letters":             {"registries take both for one name", "shop", "", "Web", "shop", nil, "wEB", true},
		"clients take them for one": {"Eureka's write names in capitals, and that of ſ is S", "team-a", "", "payments", "team-a", nil, "paymentſ", true},
		"a glob of namespaces":      {"it matches to the end", "team-*", "", "web", "team-a", nil, "web", true},
		"not its glob":              {"it begins at the beginning", "team-*", "", "web", "a-team-a", nil, "web", false},
		"all namespaces":            {"* is any text", "*", "", "web", "shop", nil, "web", true},
		"a glob of names":           {"* is any text, none included", "shop", "", "pay*ments*", "shop", nil, "payments", true},
		"not the middle of a glob":  {"all of its text has to be there, in its order", "shop", "", "a*b*c", "shop", nil, "acb", false},
		"overlapping ends":          {"one letter can't be both beginning and end", "shop", "", "aba*aba", "shop", nil, "ababa", false},
		"the namespace":             {"it stands for the one that asks", "*", "", "{namespace}", "shop", nil, "shop", true},
		"not another's namespace":   {"it stands for the one that asks", "*", "", "{namespace}", "shop", nil, "staging", false},
		"the namespace in a glob":   {"both may stand in one name", "*", "", "{namespace}.*", "shop", nil, "shop.web", true},
		"a dot ends the namespace":  {"no namespace's name has a dot", "*", "", "{namespace}.*", "shop", nil, "shop-eu.web", false},
		"a label":                   {"the labels of the namespace count", "", "tier=pay", "web", "shop", labels.Set{"tier": "pay"}, "web", true},
		"without the label":         {"the labels of the namespace count", "", "tier=pay", "web", "shop", nil, "web", false},
		"a glob and a label":        {"both have to match", "team-*", "tier=pay", "web", "shop", labels.Set{"tier": "pay"}, "web", false},
		"both a glob and a label":   {"both match", "team-*", "tier=pay", "web", "team-a", labels.Set{"tier": "pay"}, "web", true},
		"nothing chooses no labels": {"the name alone chooses", "shop", "", "web", "shop", labels.Set{"tier": "pay"}, "web", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy := Policy{allowance(t, "another", "", "nothing"), allowance(t, tc.namespaces, tc.selector, tc.give)}
			expect.Equal(t, tc.want, policy.Allows(tc.namespace, tc.labels, Name(tc.name)), "allows %q to %s: %s", tc.name, tc.namespace, tc.reason)
		})
	}
}

func TestPolicyNilAllowsAll(t *testing.T) {
	t.Parallel()
	if !Policy(nil).Allows("shop", nil, "web") {
		t.Error("no policy refuses a name")
	}
	if (Policy{}).Allows("shop", nil, "web") {
		t.Error("a policy without an entry allows a name")
	}
}

func TestPolicyShares(t *testing.T) {
	t.Parallel()
	shared, another := allowance(t, "shop", "tier=pay", "web"), allowance(t, "*", "", "*")
	shared.Shared = true
	policy := Policy{shared, another}
	for name, tc := range map[string]struct {
		reason, namespace string
		labels            labels.Set
		name              string
		want              bool
	}{
		"shared":                {"the entry chooses the namespace and gives the name", "shop", labels.Set{"tier": "pay"}, "Web", true},
		"another name":          {"an entry that is not shared gives it", "shop", labels.Set{"tier": "pay"}, "api", false},
		"without the label":     {"an entry that is not shared chooses the namespace", "shop", nil, "web", false},
		"in another namespaces": {"an entry that is not shared chooses the namespace", "mall", labels.Set{"tier": "pay"}, "web", false},
	} {
		expect.Equal(t, tc.want, policy.Shares(tc.namespace, tc.labels, Name(tc.name)), "%s: shares: %s", name, tc.reason)
	}
	if !policy.SharesByLabel() || (Policy{another}).SharesByLabel() || Policy(nil).Shares("shop", nil, "web") {
		t.Error("labels decide only where an entry is shared, and no policy shares nothing")
	}
}

func TestParsePatternsRefuses(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"": `"team-*"`, "Team": `"team-*"`, "a.b": `"team-*"`, "{namespace}": `"team-*"`,
	} {
		_, err := ParseNamespacePattern(text)
		expect.Error(t, text, err, says)
	}
	for text, says := range map[string]string{
		"": `"{namespace}.*"`, "{label:app}": "{namespace}", "a}": "{namespace}", "a\nb": "can't be printed",
	} {
		_, err := ParseNamePattern(text)
		expect.Error(t, text, err, says)
	}
}

func TestDefaultsOf(t *testing.T) {
	t.Parallel()
	some := map[string]Allowance{"retail": allowance(t, "", "unit=retail", "x"), "shop": allowance(t, "shop shop-*", "", "x")}
	type row struct {
		reason, namespace string
		labels            labels.Set
		want              []string
	}
	expect.Each(t, map[string]row{
		"none chooses it":   {"it has those for all", "mall", nil, []string{"all"}},
		"one by its name":   {"those for all are for the others", "shop-eu", nil, []string{"shop"}},
		"one by its labels": {"the same", "mall", labels.Set{"unit": "retail"}, []string{"retail"}},
		"two":               {"it is in both", "shop", labels.Set{"unit": "retail"}, []string{"retail", "shop"}},
	}, func(t *testing.T, tc row) {
		got := DefaultsOf([]string{"all"}, some, tc.namespace, tc.labels)
		if slices.Sort(got); !slices.Equal(got, tc.want) {
			t.Errorf("got %q, want %q: %s", got, tc.want, tc.reason)
		}
	})
	if _, err := RegistriesOf(nil, DefaultsOf(nil, some, "mall", nil), nil); err == nil || !strings.Contains(err.Error(), "no registry is the default") {
		t.Errorf("got error %v, want that the pod is in none", err)
	}
}
