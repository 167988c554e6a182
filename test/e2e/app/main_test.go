package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestHandler(t *testing.T) {
	t.Parallel()
	started := httptest.NewServer(handler("web-1", "v2", 0))
	t.Cleanup(started.Close)
	waitReady(t, started.URL)
	if status, body := send(t, http.MethodPost, started.URL+"/?for=1ms"); status != http.StatusOK || body != `{"pod":"web-1","image":"v2"}` {
		t.Errorf("got %d %q, want the pod and the version", status, body)
	}
	starting := httptest.NewServer(handler("web-1", "v2", time.Hour))
	t.Cleanup(starting.Close)
	for _, request := range []string{"GET /ready", "POST /"} {
		method, path, _ := strings.Cut(request, " ")
		if status, _ := send(t, method, starting.URL+path); status != http.StatusServiceUnavailable {
			t.Errorf("%s while it starts: got %d, want 503", request, status)
		}
	}
}

func TestRunSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	err := run(t.Context(), func(string) string { return "soon" })
	expect.Error(t, "it names the variable", err, "START_DELAY: write a duration such as 1s")
}

func waitReady(t *testing.T, url string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if status, _ := send(t, http.MethodGet, url+"/ready"); status == http.StatusOK {
			return
		}
	}
	t.Fatal("it is never ready")
}

func send(t *testing.T, method, url string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	expect.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	expect.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	expect.NoError(t, err)
	return response.StatusCode, string(text)
}
