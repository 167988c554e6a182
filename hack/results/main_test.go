package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// written is a file of results of two packages: one with a test that fails and one that is skipped, and one more.
func written(t *testing.T, other ...string) string {
	t.Helper()
	const a = `"Package":"github.com/rollcall-dev/rollcall/internal/a"`
	path := filepath.Join(t.TempDir(), "unit.json")
	lines := append([]string{
		`{"Action":"start",` + a + `}`,
		`{"Action":"output",` + a + `,"Output":"-test.shuffle 42\n"}`,
		`{"Action":"run",` + a + `,"Test":"TestTable"}`,
		`{"Action":"run",` + a + `,"Test":"TestTable/good"}`,
		`{"Action":"run",` + a + `,"Test":"TestTable/bad"}`,
		`{"Action":"output",` + a + `,"Test":"TestTable/bad","Output":"=== RUN   TestTable/bad\n"}`,
		`{"Action":"output",` + a + `,"Test":"TestTable/bad","Output":"    a_test.go:9: got 1, want 2\n"}`,
		`{"Action":"pass",` + a + `,"Test":"TestTable/good"}`,
		`{"Action":"fail",` + a + `,"Test":"TestTable/bad"}`,
		`{"Action":"fail",` + a + `,"Test":"TestTable"}`,
		`{"Action":"run",` + a + `,"Test":"TestServer"}`,
		`{"Action":"output",` + a + `,"Test":"TestServer","Output":"    a_test.go:7: no Java\n"}`,
		`{"Action":"skip",` + a + `,"Test":"TestServer"}`,
		`{"Action":"fail",` + a + `}`,
		"go: downloading something",
	}, other...)
	expect.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600))
	return path
}

func TestFailed(t *testing.T) {
	t.Parallel()
	const b = `"Package":"github.com/rollcall-dev/rollcall/test/b"`
	type row struct {
		reason string
		other  []string
		want   []string
	}
	expect.Each(t, map[string]row{
		"a test": {reason: "the parent failed with its subtest, which is enough to name"},
		"no test": {
			reason: "TestMain found a data race in the log of a manager, say",
			other: []string{
				`{"Action":"run",` + b + `,"Test":"TestX"}`, `{"Action":"pass",` + b + `,"Test":"TestX"}`, `{"Action":"fail",` + b + `}`,
			},
			want: []string{"./test/b: no test failed, yet the run did"},
		},
		"cut off": {
			reason: "the machine ended the run",
			other:  []string{`{"Action":"run",` + b + `,"Test":"TestX"}`},
			want:   []string{"./test/b TestX"},
		},
		"not built": {
			reason: "there are no tests to name",
			other:  []string{`{"Action":"fail",` + b + `}`},
			want:   []string{"./test/b: it does not build, or ended before its first test"},
		},
	}, func(t *testing.T, tc row) {
		var out strings.Builder
		expect.NoError(t, run(&out, []string{"failed", written(t, tc.other...)}))
		want := append([]string{"./internal/a TestTable/bad (SHUFFLE=42)", "    a_test.go:9: got 1, want 2"}, tc.want...)
		expect.Equal(t, strings.Join(want, "\n")+"\n", out.String(), "%s", tc.reason)
	})
}

func TestSum(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	file := written(t)
	expect.NoError(t, run(&out, []string{"sum", file + "=1"}))
	const want = "unit                 1 passed, 1 failed, 1 skipped\n    1 skipped: no Java\n1 1\n"
	expect.Equal(t, want, out.String(), "what there is")
	expect.Error(t, "there are fewer than the floor", run(&out, []string{"sum", file + "=2"}), "unit: 1 tests passed")
	expect.Error(t, "the tests never ran", run(&out, []string{"sum", file + ".missing=1"}), "0 tests passed")
	expect.Error(t, "there is no floor", run(&out, []string{"sum", file}), "unit.json=100")
}
