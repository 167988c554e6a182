package cache

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// releases serves what a project publishes: a binary with its checksum, and an archive with its own.
func releases(t *testing.T) (url string, files map[string][]byte) {
	t.Helper()
	files = map[string][]byte{}
	for _, arch := range []string{"amd64", "arm64"} {
		script := []byte("#!/bin/sh\necho published for " + arch + "\n")
		var archive bytes.Buffer
		zipped := gzip.NewWriter(&archive)
		w := tar.NewWriter(zipped)
		expect.NoError(t, w.WriteHeader(&tar.Header{Name: "README.md"}))
		expect.NoError(t, w.WriteHeader(&tar.Header{Name: "d-" + arch + "/packed", Mode: 0o755, Size: int64(len(script))}))
		_, err := w.Write(script)
		expect.NoError(t, err)
		expect.NoError(t, w.Close())
		expect.NoError(t, zipped.Close())
		files["/v1.2.3/"+arch+"/plain"], files["/v1.2.3/d-"+arch+".tar.gz"] = script, archive.Bytes()
		files["/v1.2.3/"+arch+"/plain.sha256"] = fmt.Appendf(nil, "%x", sha256.Sum256(script))
		files["/v1.2.3/SHA256SUMS"] = fmt.Appendf(files["/v1.2.3/SHA256SUMS"], "%x  d-%s.tar.gz\n", sha256.Sum256(archive.Bytes()), arch)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if content, found := files[r.URL.Path]; found {
			_, _ = w.Write(content)
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL, files
}

// TestPublished is not parallel: it sets where the cache is.
func TestPublished(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only what runs on Linux is downloaded")
	}
	url, files := releases(t)
	source := t.TempDir()
	writeFile(t, filepath.Join(source, "go.mod"), "module example.com/m\n\ngo 1.26\n\nrequire example.com/server v1.2.3\n\nreplace example.com/server => ./server\n")
	writeFile(t, filepath.Join(source, "go.sum"), "")
	writeFile(t, filepath.Join(source, "server", "go.mod"), "module example.com/server\n\ngo 1.26\n")
	writeFile(t, filepath.Join(source, "server", "main.go"), "package main\n\nfunc main() { println(\"built\") }\n")
	module := Module{Name: "server", Dir: source, Requires: "example.com/server", Binaries: []Binary{
		{Name: "plain", Package: "example.com/server", Published: func(version, arch string) Published {
			at := url + "/" + version + "/" + arch + "/plain"
			return Published{URL: at, Sums: at + ".sha256"}
		}},
		{Name: "packed", Package: "example.com/server", Published: func(version, arch string) Published {
			return Published{URL: url + "/" + version + "/d-" + arch + ".tar.gz", Member: "d-" + arch + "/packed", Sums: url + "/" + version + "/SHA256SUMS"}
		}},
		{Name: "source", Package: "example.com/server"},
	}}
	pins := filepath.Join(source, PublishedSums)
	var log strings.Builder
	progress := NewProgress(&log, "test")
	// say is what each binary says, by a cache that is empty before.
	say := func(reason string, want ...string) {
		t.Helper()
		t.Setenv("XDG_CACHE_HOME", t.TempDir())
		for range 2 { // the second time nothing is to be had
			built, err := Build(t.Context(), progress, module)
			expect.NoError(t, err)
			for i, bin := range module.Binaries {
				said, err := exec.CommandContext(t.Context(), built.Paths[bin.Name]).CombinedOutput()
				if got := strings.TrimSpace(string(said)); err != nil || got != want[i] {
					t.Errorf("%s: %s says %q, %v, want %q", reason, bin.Name, got, err, want[i])
				}
			}
			plan, err := NewPlan(t.Context(), module)
			expect.NoError(t, err)
			if plan.String() != "" || len(plan.Downloads) > 0 {
				t.Errorf("%s: the cache lacks %v and %v", reason, plan, plan.Downloads)
			}
		}
	}
	say("nothing is pinned", "built", "built", "built")

	expect.NoError(t, Pin(t.Context(), progress, module))
	published := "published for " + runtime.GOARCH
	say("what is pinned is downloaded", published, published, "built")
	t.Setenv(envBuild, "1")
	say("who wants it builds all", "built", "built", "built")
	t.Setenv(envBuild, "")

	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	plan, err := NewPlan(t.Context(), module)
	expect.NoError(t, err)
	if got := strings.Join(plan.Downloads, ", "); got != "plain v1.2.3, packed v1.2.3" || !strings.HasPrefix(plan.String(), "source v1.2.3: ") {
		t.Errorf("the plan downloads %q, and builds %s", got, plan)
	}

	text, err := os.ReadFile(pins)
	expect.NoError(t, err)
	files["/v1.2.3/"+runtime.GOARCH+"/plain"] = []byte("#!/bin/sh\necho another\n")
	say("another file is not run", "built", published, "built")
	if !strings.Contains(log.String(), "plain v1.2.3 is built instead: downloading plain") || !strings.Contains(log.String(), "is pinned") {
		t.Errorf("the progress does not tell why it builds:\n%s", &log)
	}
	expect.Error(t, "what a project serves must be what it says", Pin(t.Context(), progress, module), "does not have")
	if again, err := os.ReadFile(pins); err != nil || !bytes.Equal(again, text) {
		t.Errorf("a pin that failed left %q, %v", again, err)
	}
	delete(files, "/v1.2.3/d-"+runtime.GOARCH+".tar.gz")
	say("what is not there is built", "built", "built", "built")
	writeFile(t, filepath.Join(source, "go.mod"), "module example.com/m\n\ngo 1.26\n\nrequire example.com/server v1.2.4\n\nreplace example.com/server => ./server\n")
	log.Reset()
	say("the pins of another version are none", "built", "built", "built")
	if strings.Contains(log.String(), "instead") {
		t.Errorf("it tried what is not pinned:\n%s", &log)
	}
}
