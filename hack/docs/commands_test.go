package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/guide"
)

// elsewhere says what runs the targets of the Makefile that .ci/jobs does not name.
var elsewhere = map[string]string{
	"build-plugin": "hack/release makes a release with it",
	"generate":     "hack/verify-generated.sh",
	"presubmit":    "its parts are those of make verify and make test",
	"kind-up":      "test/integration runs its script on a control plane; kind takes a container engine",
	"kind-down":    "kind takes a container engine",
	"bench":        "docs/performance/results.json is what it wrote",
}

// TestEveryCommandIsRunOrMarked: a command of a page is run by CI or TestCommandsOfTheGuides, or its fence
// says that it takes a cluster. What a marked command names of the repository exists all the same.
func TestEveryCommandIsRunOrMarked(t *testing.T) {
	t.Parallel()
	commands, err := guide.Commands("../..")
	expect.NoError(t, err)
	if len(commands) < 60 {
		t.Fatalf("found %d commands: the test looks for the wrong thing", len(commands))
	}
	for _, c := range commands {
		for _, mark := range c.Marks {
			if mark != guide.Cluster && mark != guide.Install {
				t.Errorf("%s\nits fence has the mark %q: write %q, %q or none", c, mark, guide.Cluster, guide.Install)
			}
		}
		if why := unrun(t, c); why != "" && !c.Has(guide.Cluster) && !c.Has(guide.Install) {
			t.Errorf("%s\n%s: have a test run it, or write its fence as ```sh %s", c, why, guide.Cluster)
		}
		expectToExist(t, c)
	}
	inline := regexp.MustCompile("`(kubectl rollcall [^`]*)`")
	for page, text := range pages(t, "../../*.md", "../../docs/*.md", "../../docs/*/*.md") {
		for _, match := range inline.FindAllStringSubmatch(text, -1) {
			expectToExist(t, guide.Command{Page: page, Text: strings.Join(strings.Fields(match[1]), " ")})
		}
	}
}

// unrun says why no test runs the command.
func unrun(t *testing.T, c guide.Command) string {
	t.Helper()
	words := strings.Fields(strings.TrimPrefix(c.Text, "sudo "))
	switch words[0] {
	case "kubectl": // TestCommandsOfTheGuides in test/integration
		return ""
	case "make":
		if slices.Contains(played(t), words[1]) {
			return ""
		}
		return "no job of .ci/jobs plays make " + words[1]
	default:
		return "no test runs " + words[0]
	}
}

// played are the targets that CI plays, and those of elsewhere.
func played(t *testing.T) []string {
	t.Helper()
	all := slices.Collect(maps.Keys(elsewhere))
	for _, row := range ciRows(t) {
		all = append(all, row.target)
	}
	return all
}

var (
	pluginCommand = regexp.MustCompile(`kubectl rollcall ([^|\n&]*)`)
	makeVariable  = regexp.MustCompile(`make .*?\b([A-Z0-9_]+)=`)
	ownPath       = regexp.MustCompile(`(?:^|[ /])((?:charts|config)/[a-z][a-z./_-]*[a-z])`)
)

// expectToExist looks up the plugin's commands and flags, the variables of the Makefile and the paths that a command names.
func expectToExist(t *testing.T, c guide.Command) {
	t.Helper()
	for _, match := range pluginCommand.FindAllStringSubmatch(c.Text, -1) {
		if status, out := helpOf(t, match[1]); status != 0 {
			t.Errorf("%s\nkubectl rollcall refuses it: %s", c, out)
		}
	}
	makefile, err := os.ReadFile("../../Makefile")
	expect.NoError(t, err)
	for _, match := range makeVariable.FindAllStringSubmatch(c.Text, -1) {
		if !bytes.Contains(makefile, []byte("$("+match[1]+")")) {
			t.Errorf("%s\nthe Makefile has no variable %s", c, match[1])
		}
	}
	for _, match := range ownPath.FindAllStringSubmatch(c.Text, -1) {
		if _, err := os.Stat(filepath.Join("../..", match[1])); err != nil {
			t.Errorf("%s\n%v", c, err)
		}
	}
}
