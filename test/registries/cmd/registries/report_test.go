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

// log is what go test -json says of the tests of etcd.
type log []string

func (l log) event(action, test, rest string) log {
	if test != "" {
		test = fmt.Sprintf(`,"Test":%q`, test)
	}
	const etcd = `"Package":"github.com/rollcall-dev/rollcall/test/registries/etcd"`
	return append(l, fmt.Sprintf(`{"Action":%q,%s%s%s}`, action, etcd, test, rest))
}

func (l log) attr(test, key, value string) log {
	return l.event("attr", test, fmt.Sprintf(`,"Key":%q,"Value":%q`, key, value))
}

func (l log) on(server string) log { return l.attr("TestA", "registry-server", server) }

func (l log) missing(test, why string) log {
	return l.attr(test, "registry-missing", why).skipped(test, "no server on this machine: "+why)
}

func (l log) ran(became string, tests ...string) log {
	for _, test := range tests {
		l = l.event("run", test, "").event(became, test, "")
	}
	return l
}

func (l log) skipped(test, reason string) log {
	l = l.event("run", test, "")
	for _, output := range []string{
		"=== RUN   x\n", "    x_test.go:3: noise\n", "    suite.go:49: " + reason + "\n", "--- SKIP: x (0.00s)\n",
	} {
		l = l.event("output", test, fmt.Sprintf(`,"Output":%q`, output))
	}
	return l.event("skip", test, "")
}

func (l log) ended(as string) log { return l.event(as, "", "") }

func TestReport(t *testing.T) {
	t.Parallel()
	const noJava = "!!! NOT TESTED on a server that can't be had here: no Java; else "
	for name, tc := range map[string]struct {
		reason   string
		log      log
		want     string
		complete bool
	}{
		"all well": {
			"tests without subtests are counted, and skipped ones by their reason without the case's name",
			append(log{}.on("etcd v3").ran("pass", "TestA/one", "TestA/two", "TestA", "TestB").
				skipped("TestA/Probes", "Probes skipped: lacks Probing: none").
				skipped("TestA/Beats", "Beats skipped: lacks Probing: none"), "not JSON").ended("pass"),
			"etcd|etcd v3|3 passed, 2 skipped: lacks Probing: none (2)", true,
		},
		"two servers": {
			"each server is named once",
			log{}.on("etcd v4").on("etcd v3").on("etcd v3").attr("TestC", "other", "x").ran("pass", "TestA").ended("pass"),
			"etcd|etcd v3, etcd v4|1 passed", true,
		},
		"failed": {
			"failures are told, those that did not end too",
			log{}.on("etcd v3").ran("fail", "TestA").event("run", "TestB", "").ended("fail"),
			"etcd|etcd v3|0 passed, 2 FAILED", true,
		},
		"failed without a test": {
			"a data race outside of every test, say", log{}.on("etcd v3").ran("pass", "TestA").ended("fail"),
			"etcd|etcd v3|1 passed, and THE RUN FAILED", true,
		},
		"missing": {
			"a server that can't be had is named loudly, with the reason", log{}.missing("TestA", "no Java").ended("pass"),
			"etcd|-|" + noJava + "0 passed, 1 skipped: no server on this machine: no Java (1)", false,
		},
		"one of two missing": {
			"what was tested does not hide what was not",
			log{}.on("etcd v3").ran("pass", "TestA").missing("TestB", "no Java").ended("pass"),
			"etcd|etcd v3|" + noJava + "1 passed, 1 skipped: no server on this machine: no Java (1)", false,
		},
		"not built": {
			"a package that does not compile has no tests that ran",
			log{}.event("start", "", "").event("output", "", `,"Output":"FAIL\n"`).ended("fail"),
			"etcd|-|!!! NOT TESTED: its tests did not run", false,
		},
		"not there": {
			"so has one that was not run", log{strings.ReplaceAll(log{}.ran("pass", "TestA")[1], "etcd", "consul")},
			"etcd|-|!!! NOT TESTED: its tests did not run", false,
		},
		"no server named": {
			"tests that used no server prove nothing about one", log{}.ran("pass", "TestA").ended("pass"),
			"etcd|-|!!! NOT TESTED: no test named a server; 1 passed", false,
		},
		"cut off": {
			"a run that was killed is not a complete one", log{}.on("etcd v3").ran("pass", "TestA"),
			"etcd|etcd v3|1 passed, and THE RUN FAILED", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "results.json")
			expect.NoError(t, os.WriteFile(path, []byte(strings.Join(tc.log, "\n")+"\n"), 0o600))
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
