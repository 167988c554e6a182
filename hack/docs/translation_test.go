package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestTranslationsAreTheSame: a translation has the headings, commands and links of the page, in their order.
func TestTranslationsAreTheSame(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"../../README", "../../docs/quickstart"} {
		want, got := skeletonOf(t, page+".md"), skeletonOf(t, page+".zh-CN.md")
		expect.Equal(t, strings.Join(want, "\n"), strings.Join(got, "\n"), "headings, commands and links of %s.zh-CN.md", page)
		if len(want) < 40 {
			t.Errorf("%s has %d of them: the test looks for the wrong thing", page, len(want))
		}
	}
}

var (
	comment = regexp.MustCompile(`\s+# .*$`)
	link    = regexp.MustCompile(`\]\(([^)]+)\)`)
	chinese = strings.NewReplacer("openkruise.io/zh/", "openkruise.io/", ".zh-CN.md", ".md")
)

// skeletonOf is what of a page is in no language, without the links between the languages.
func skeletonOf(t *testing.T, page string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	expect.NoError(t, err)
	fenced := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		hashes, _, _ := strings.Cut(line, " ")
		switch {
		case strings.HasPrefix(line, "```"):
			fenced = !fenced
			all = append(all, line)
		case fenced:
			all = append(all, comment.ReplaceAllString(line, ""))
		case hashes != "" && strings.Trim(hashes, "#") == "":
			all = append(all, hashes)
		default:
			for _, match := range link.FindAllStringSubmatch(line, -1) {
				if !strings.HasPrefix(match[1], "README") && !strings.Contains(match[1], "quickstart") {
					all = append(all, chinese.Replace(match[1]))
				}
			}
		}
	}
	return all
}
