package main

import (
	"context"
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
	if answer, err := app.Do(t.Context(), http.MethodGet, "/events?for=1ms", nil); string(answer) != "data: web-1\n\nevent: end\ndata: \n\n" {
		t.Errorf("got %q, %v, want events and the last one", answer, err)
	}
	starting := httptest.NewServer(handler("web-1", "v2", time.Hour))
	t.Cleanup(starting.Close)
	for _, request := range []string{"GET /ready", "POST /"} {
		method, path, _ := strings.Cut(request, " ")
		_, err := registries.NewClient(starting.URL).Do(t.Context(), method, path, nil)
		expect.Error(t, request+" while it starts", err, "503")
	}
}

// TestHandler_Idle: a stream is left until its client has gone, and what asks is not counted.
func TestHandler_Idle(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(handler("web-1", "v2", 0))
	t.Cleanup(server.Close)
	app := registries.NewClient(server.URL)
	idle := func() error {
		_, err := app.Do(t.Context(), http.MethodGet, "/idle", nil)
		return err
	}
	expect.NoError(t, idle())
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/events?for=1h", http.NoBody)
	expect.NoError(t, err)
	stream, err := http.DefaultClient.Do(request)
	expect.NoError(t, err)
	expect.Error(t, "one stream is left", idle(), "503")
	expect.NoError(t, stream.Body.Close())
	expect.Soon(t, "no stream to be left", idle)
}

// TestHandler_Hangs: neither the probe nor a client gets an answer.
func TestHandler_Hangs(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(handler("web-1", "v2", 0))
	t.Cleanup(server.Close)
	app := registries.NewClient(server.URL)
	_, err := app.Do(t.Context(), http.MethodPost, "/hang?for=1h", nil)
	expect.NoError(t, err)
	for _, request := range []string{"GET /ready", "POST /"} {
		method, path, _ := strings.Cut(request, " ")
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := app.Do(ctx, method, path, nil)
		cancel()
		expect.Error(t, request, err, context.DeadlineExceeded.Error())
	}
}

func TestRunSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	err := run(t.Context(), func(string) string { return "soon" })
	expect.Error(t, "it names the variable", err, "START_DELAY: write a duration such as 1s")
}
