package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
)

func TestHandler(t *testing.T) {
	t.Parallel()
	started := httptest.NewServer(handler("web-1", "v2", 0))
	t.Cleanup(started.Close)
	app := registries.NewClient(started.URL)
	expect.Soon(t, "it to be ready", func() error {
		_, err := app.Do(t.Context(), http.MethodGet, "/ready", nil)
		return err
	})
	if answer, err := app.Do(t.Context(), http.MethodPost, "/?for=1ms", nil); string(answer) != `{"pod":"web-1","image":"v2"}` {
		t.Errorf("got %q, %v, want the pod and the version", answer, err)
	}
	starting := httptest.NewServer(handler("web-1", "v2", time.Hour))
	t.Cleanup(starting.Close)
	for _, request := range []string{"GET /ready", "POST /"} {
		method, path, _ := strings.Cut(request, " ")
		_, err := registries.NewClient(starting.URL).Do(t.Context(), method, path, nil)
		expect.Error(t, request+" while it starts", err, "503")
	}
}

func TestRunSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	err := run(t.Context(), func(string) string { return "soon" })
	expect.Error(t, "it names the variable", err, "START_DELAY: write a duration such as 1s")
}
