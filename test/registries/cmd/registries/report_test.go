package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
)

// TestReport reads what go test -json says of some packages.
func TestReport(t *testing.T) {
	t.Parallel()
	const log = `not JSON
{"Action":"attr","Package":"x/test/registries/etcd","Test":"TestA","Key":"registry-server","Value":"etcd v4"}
{"Action":"attr","Package":"x/test/registries/etcd","Test":"TestB","Key":"registry-server","Value":"etcd v3"}
{"Action":"attr","Package":"x/test/registries/etcd","Test":"TestB","Key":"registry-server","Value":"etcd v3"}
{"Action":"attr","Package":"x/test/registries/etcd","Test":"TestB","Key":"other","Value":"x"}
{"Action":"fail","Package":"x/test/registries/etcd","Test":"TestB"}
{"Action":"pass","Package":"x/test/registries/etcd"}
{"Action":"attr","Package":"x/test/registries/nacos","Test":"TestA","Key":"registry-missing","Value":"no Java"}
{"Action":"skip","Package":"x/test/registries/nacos"}
{"Action":"run","Package":"x/test/registries/consul","Test":"TestA"}
{"Action":"fail","Package":"x/test/registries/eureka"}
{"Action":"pass","Package":"x/test/registries/cmd/registries"}
`
	path := filepath.Join(t.TempDir(), "results.json")
	expect.NoError(t, os.WriteFile(path, []byte(log), 0o600))
	var out strings.Builder
	expect.NoError(t, report(&out, path))
	const want = `
DRIVER  TESTS    SERVER
consul  CUT OFF  
etcd    pass     etcd v3, etcd v4
eureka  FAILED   
nacos   skip     !!! NONE: no Java
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
