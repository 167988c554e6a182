package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// written writes what go test -json says of a few packages.
func written(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "results.json")
	expect.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	return path
}

const module = "github.com/rollcall-dev/rollcall/test/registries/"

func line(driver, action, test, rest string) string {
	if test != "" {
		test = fmt.Sprintf(`,"Test":%q`, test)
	}
	return fmt.Sprintf(`{"Action":%q,"Package":"%s%s"%s%s}`, action, module, driver, test, rest)
}

func ran(driver, test, became string) []string {
	return []string{line(driver, "run", test, ""), line(driver, became, test, "")}
}

func attr(driver, test, key, value string) string {
	return line(driver, "attr", test, fmt.Sprintf(`,"Key":%q,"Value":%q`, key, value))
}

func skipped(driver, test, reason string) []string {
	return []string{
		line(driver, "run", test, ""),
		line(driver, "output", test, `,"Output":"=== RUN   x\n"`),
		line(driver, "output", test, `,"Output":"    x_test.go:3: noise\n"`),
		line(driver, "output", test, fmt.Sprintf(`,"Output":%q`, "    suite.go:49: "+reason+"\n")),
		line(driver, "output", test, `,"Output":"--- SKIP: x (0.00s)\n"`),
		line(driver, "skip", test, ""),
	}
}

func concat(parts ...any) []string {
	var all []string
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			all = append(all, p)
		case []string:
			all = append(all, p...)
		}
	}
	return all
}

func TestReport(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason   string
		lines    []string
		want     string
		complete bool
	}{
		"all well": {
			reason: "tests without subtests are counted, and skipped ones by their reason without the case's name",
			lines: concat(
				line("etcd", "start", "", ""), attr("etcd", "TestA", "registry-server", "etcd v3"),
				ran("etcd", "TestA/one", "pass"), ran("etcd", "TestA/two", "pass"), ran("etcd", "TestA", "pass"),
				skipped("etcd", "TestA/Probes", "Probes skipped: lacks Probing: none"),
				skipped("etcd", "TestA/Beats", "Beats skipped: lacks Probing: none"),
				ran("etcd", "TestB", "pass"), "not JSON", line("etcd", "pass", "", ""),
			),
			want: "etcd|etcd v3|3 passed, 2 skipped: lacks Probing: none (2)", complete: true,
		},
		"two servers": {
			reason: "each server is named once",
			lines: concat(
				attr("etcd", "TestA", "registry-server", "etcd v4"), attr("etcd", "TestB", "registry-server", "etcd v3"),
				attr("etcd", "TestC", "registry-server", "etcd v3"), attr("etcd", "TestC", "other", "x"),
				ran("etcd", "TestA", "pass"), line("etcd", "pass", "", ""),
			),
			want: "etcd|etcd v3, etcd v4|1 passed", complete: true,
		},
		"failed": {
			reason: "failures are told, those that did not end too",
			lines: concat(
				attr("etcd", "TestA", "registry-server", "etcd v3"), ran("etcd", "TestA", "fail"),
				line("etcd", "run", "TestB", ""), line("etcd", "fail", "", ""),
			),
			want: "etcd|etcd v3|0 passed, 2 FAILED", complete: true,
		},
		"failed without a test": {
			reason: "a data race outside of every test, say",
			lines: concat(
				attr("etcd", "TestA", "registry-server", "etcd v3"), ran("etcd", "TestA", "pass"), line("etcd", "fail", "", ""),
			),
			want: "etcd|etcd v3|1 passed, and THE RUN FAILED", complete: true,
		},
		"missing": {
			reason: "a server that can't be had is named loudly, with the reason",
			lines: concat(
				attr("etcd", "TestA", "registry-missing", "no Java"), skipped("etcd", "TestA", "no server on this machine: no Java"),
				line("etcd", "pass", "", ""),
			),
			want: "etcd|-|!!! NOT TESTED on a server that can't be had here: no Java; else 0 passed, " +
				"1 skipped: no server on this machine: no Java (1)",
		},
		"one of two missing": {
			reason: "what was tested does not hide what was not",
			lines: concat(
				attr("etcd", "TestA", "registry-server", "etcd v3"), ran("etcd", "TestA", "pass"),
				attr("etcd", "TestB", "registry-missing", "no v4"), skipped("etcd", "TestB", "no v4"), line("etcd", "pass", "", ""),
			),
			want: "etcd|etcd v3|!!! NOT TESTED on a server that can't be had here: no v4; else 1 passed, 1 skipped: no v4 (1)",
		},
		"not built": {
			reason: "a package that does not compile has no tests that ran",
			lines:  concat(line("etcd", "start", "", ""), line("etcd", "output", "", `,"Output":"FAIL\n"`), line("etcd", "fail", "", "")),
			want:   "etcd|-|!!! NOT TESTED: its tests did not run",
		},
		"not there": {
			reason: "so has one that was not run",
			lines:  ran("consul", "TestA", "pass"),
			want:   "etcd|-|!!! NOT TESTED: its tests did not run",
		},
		"no server named": {
			reason: "tests that used no server prove nothing about one",
			lines:  concat(ran("etcd", "TestA", "pass"), line("etcd", "pass", "", "")),
			want:   "etcd|-|!!! NOT TESTED: no test named a server; 1 passed",
		},
		"cut off": {
			reason: "a run that was killed is not a complete one",
			lines:  concat(attr("etcd", "TestA", "registry-server", "etcd v3"), ran("etcd", "TestA", "pass")),
			want:   "etcd|etcd v3|1 passed, and THE RUN FAILED",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := written(t, tc.lines...)
			var out strings.Builder
			expect.NoError(t, report(&out, path, []string{"etcd"}, false))
			rows := strings.Split(strings.TrimSpace(out.String()), "\n")
			got := strings.Join(cells(rows[len(rows)-1]), "|")
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			err := report(&out, path, []string{"etcd"}, true)
			if (err == nil) != tc.complete || err != nil && !strings.Contains(err.Error(), "etcd") {
				t.Errorf("%s: where servers are required the error is %v, want none: %t", tc.reason, err, tc.complete)
			}
		})
	}
}

// cells splits a line of the table.
func cells(row string) []string {
	parts := strings.SplitN(row, "  ", 2)
	driver, rest := parts[0], strings.TrimSpace(parts[1])
	server, tests, _ := strings.Cut(rest, "  ")
	return []string{driver, server, strings.TrimSpace(tests)}
}

func TestChoose(t *testing.T) {
	t.Parallel()
	all, err := choose(nil)
	if err != nil || len(all) == 0 {
		t.Errorf("nothing named is all: got %v, %v", all, err)
	}
	some, err := choose([]string{"etcd"})
	if err != nil || len(some) != 1 || some[0].name != "etcd" {
		t.Errorf("etcd: got %v, %v", names(some), err)
	}
	if _, err := choose([]string{"etcd", "edct"}); err == nil || !strings.Contains(err.Error(), "edct") {
		t.Errorf("a slip of the pen: got %v", err)
	}
}

func TestRows(t *testing.T) {
	t.Parallel()
	all, err := rows(nil)
	if err != nil || all[len(all)-1] != migration {
		t.Errorf("a table of all ends with the move from one to another: got %v, %v", all, err)
	}
	some, err := rows([]string{"etcd"})
	if err != nil || len(some) != 1 || some[0] != "etcd" {
		t.Errorf("etcd: got %v, %v", some, err)
	}
	if _, err := rows([]string{"edct"}); err == nil {
		t.Error("a slip of the pen is taken for a driver")
	}
}
