package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
)

// TestReport reads what go test -json says of four packages. Events are action, package, test, and the rest as JSON has it.
func TestReport(t *testing.T) {
	t.Parallel()
	skipped := func(pkg, test, output string) [][4]string {
		return [][4]string{{"run", pkg, test}, {"output", pkg, test, fmt.Sprintf(`,"Output":%q`, "    x_test.go:3: "+output+"\n")}, {"skip", pkg, test}}
	}
	events := [][4]string{
		{"attr", "etcd", "TestA", `,"Key":"registry-server","Value":"etcd v4"`},
		{"attr", "etcd", "TestB", `,"Key":"registry-server","Value":"etcd v3"`},
		{"attr", "etcd", "TestB", `,"Key":"registry-server","Value":"etcd v3"`},
		{"attr", "etcd", "TestB", `,"Key":"other","Value":"x"`},
		{"run", "etcd", "TestA"}, {"run", "etcd", "TestA/one"}, {"pass", "etcd", "TestA/one"}, {"pass", "etcd", "TestA"},
		{"attr", "nacos", "TestA", `,"Key":"registry-missing","Value":"no Java"`},
		{"run", "consul", "TestA"}, {"fail", "consul", "TestA"}, {"run", "consul", "TestB"}, {"fail", "consul", ""},
		{"fail", "eureka", ""}, // it did not compile
		{"run", "cmd/registries", "TestReport"}, {"pass", "cmd/registries", "TestReport"}, {"pass", "cmd/registries", ""},
	}
	events = append(events, skipped("etcd", "TestA/Probes", "Probes skipped: lacks Probing: none")...)
	events = append(events, skipped("etcd", "TestA/Beats", "Beats skipped: lacks Probing: none")...)
	events = append(events, skipped("nacos", "TestA", "no server on this machine: no Java")...)
	events = append(events, [4]string{"pass", "etcd", ""}, [4]string{"pass", "nacos", ""})
	log := "not JSON\n"
	for _, e := range events {
		log += fmt.Sprintf(`{"Action":%q,"Package":"github.com/rollcall-dev/rollcall/test/registries/%s","Test":%q%s}`+"\n", e[0], e[1], e[2], e[3])
	}
	path := filepath.Join(t.TempDir(), "results.json")
	expect.NoError(t, os.WriteFile(path, []byte(log), 0o600))
	var out strings.Builder
	expect.NoError(t, report(&out, path))
	const want = `
DRIVER  SERVER             TESTS
consul                     0 passed, 2 FAILED
etcd    etcd v3, etcd v4   1 passed, 2 skipped: lacks Probing: none (2)
eureka                     0 passed, 1 FAILED
nacos   !!! NONE: no Java  0 passed, 1 skipped: no server on this machine: no Java (1)
`
	expect.Equal(t, want, out.String(), "what there is")
}

// TestGet: what this machine can't run is told, and what can't be built is an error, also where nothing is required.
func TestGet(t *testing.T) { //nolint:paralleltest // it sets the environment
	for _, tc := range []struct {
		reason, required, lacks string
		err                     error
		fails                   bool
	}{
		{"a server that is here", "", "", nil, false},
		{"a server that this machine can't run", "", "no server of x: no Java\n", registries.Missing(errors.New("no Java")), false},
		{"the same where it is required", "1", "", registries.Missing(errors.New("no Java")), true},
		{"a server that can't be built", "", "", errors.New("the disk is full"), true},
	} {
		t.Setenv("CI", "")
		t.Setenv("ROLLCALL_REGISTRIES_REQUIRED", tc.required)
		var lacks strings.Builder
		err := get(t.Context(), &lacks, io.Discard, []driver{{"x", func(context.Context, io.Writer) error { return tc.err }}})
		if lacks.String() != tc.lacks || (err != nil) != tc.fails {
			t.Errorf("%s: got %q and error %v", tc.reason, &lacks, err)
		}
	}
}
