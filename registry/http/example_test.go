package httpregistry_test

import (
	"bufio"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestTheDocumentedServer runs the Python server of docs/drivers/http.md as a reader would, and the suite on it.
func TestTheDocumentedServer(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skipf("the example in docs/drivers/http.md is not run: %v", err)
	}
	script := drivertest.File(t, codeBlock(t, "../../docs/drivers/http.md", "python"))
	example := &exampleServer{python: python, script: script}
	example.start(t)
	t.Cleanup(func() {
		example.stop()
		if strings.Contains(example.log.String(), "Traceback") {
			t.Errorf("the server reported an error:\n%s", &example.log)
		}
	})
	front := httptest.NewServer(watch(t, example.proxy()))
	t.Cleanup(front.Close)
	h := harness(
		registry.Config{Endpoint: front.URL, Auth: registry.Auth{TokenFile: drivertest.File(t, goodToken)}},
		registry.Auth{TokenFile: drivertest.File(t, wrongToken)},
		func(t testing.TB) {
			example.stop()
			example.start(t)
		},
	)
	h.Lacks = map[registrytest.Capability]string{registrytest.Durable: "the example keeps its entries in memory"}
	registrytest.Run(t, h)
}

// exampleServer is the process of the documented server, at another port after each start.
type exampleServer struct {
	python, script string
	command        *exec.Cmd
	log            strings.Builder // read after the process has ended

	mu     sync.Mutex
	target *url.URL
}

func (e *exampleServer) start(t testing.TB) {
	t.Helper()
	e.command = exec.Command(e.python, e.script)
	e.command.Env = append(os.Environ(), "PORT=0", "REGISTRY_TOKEN="+goodToken)
	e.command.Stderr = &e.log
	stdout, err := e.command.StdoutPipe()
	expect.NoError(t, err)
	expect.NoError(t, e.command.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	expect.NoError(t, err) // else the server has not said where it is
	target, err := url.Parse(strings.TrimSpace(strings.TrimPrefix(line, "serving on ")))
	expect.NoError(t, err)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.target = target
}

func (e *exampleServer) stop() {
	_ = e.command.Process.Kill()
	_ = e.command.Wait()
}

// proxy stands where the server is. While there is none it answers as a load balancer would.
func (e *exampleServer) proxy() http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			e.mu.Lock()
			defer e.mu.Unlock()
			r.SetURL(e.target)
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, `{"error":"no server"}`)
		},
		ErrorLog: log.New(io.Discard, "", 0),
	}
}

// codeBlock returns the file's one fenced block in the language.
func codeBlock(t *testing.T, path, language string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	expect.NoError(t, err)
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
