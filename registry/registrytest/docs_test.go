package registrytest

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// Cases are skipped for what a harness has not, so who writes a driver has to know all there is to have.
func TestAllOfAHarnessStandsInTheGuide(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../docs/writing-a-driver.md")
	expect.NoError(t, err)
	_, guide, _ := strings.Cut(string(raw), "## The suite")
	names := []string{}
	for _, c := range capabilities() {
		names = append(names, string(c))
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Harness]()) {
		if field.IsExported() {
			names = append(names, field.Name)
		}
	}
	for _, name := range names {
		if !strings.Contains(guide, "`"+name+"`") {
			t.Errorf("docs/writing-a-driver.md does not say what %s is", name)
		}
	}
}

func TestCasesAreWellFormed(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, c := range cases() {
		if seen[c.name] {
			t.Errorf("two cases are called %s", c.name)
		}
		seen[c.name] = true
		if c.name == "" || strings.ContainsAny(c.name, " /#") || c.why == "" {
			t.Errorf("case %q: want a name that is a subtest's as it stands, and a Why; got Why %q", c.name, c.why)
		}
	}
}
