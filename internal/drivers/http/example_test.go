package httpregistry_test

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
)

// TestTheDocumentedServer runs the Python server of docs/drivers/http.md as a reader would, and the suite on it.
func TestTheDocumentedServer(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skipf("the example in docs/drivers/http.md is not run: %v", err)
	}
	server := exec.CommandContext(t.Context(), python, writeFile(t, "server.py", codeBlock(t, "../../../docs/drivers/http.md", "python")))
	server.Env = append(os.Environ(), "PORT=0", "REGISTRY_TOKEN="+goodToken)
	log := &strings.Builder{}
	server.Stderr = log // read after the process has ended
	stdout, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
		if strings.Contains(log.String(), "Traceback") {
			t.Errorf("the server reported an error:\n%s", log)
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("waiting for the server to say where it is: %v", err)
	}
	target, err := url.Parse(strings.TrimSpace(strings.TrimPrefix(line, "serving on ")))
	if err != nil {
		t.Fatal(err)
	}
	runWatched(t, httputil.NewSingleHostReverseProxy(target), func(traffic http.Handler) registry.Config {
		front := httptest.NewServer(traffic)
		t.Cleanup(front.Close)
		return registry.Config{
			Endpoint: front.URL, Auth: registry.Auth{TokenFile: writeFile(t, "token", goodToken)},
		}
	})
}

// codeBlock returns the file's one fenced block in the language.
func codeBlock(t *testing.T, path, language string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "\n```"+language+"\n")
	if len(blocks) != 2 {
		t.Fatalf("%s has %d blocks of %s, want 1", path, len(blocks)-1, language)
	}
	code, _, closed := strings.Cut(blocks[1], "\n```\n")
	if !closed {
		t.Fatalf("%s: the block of %s is not closed", path, language)
	}
	return code
}
