package eureka_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/eureka"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
)

func web(n int) registry.Instance {
	in := drivertest.Pod(n)
	in.Service = "Shop web"
	return in
}

// entryOf is what Eureka answers of an instance.
func entryOf(in registry.Instance, status string) string {
	raw, err := json.Marshal(map[string]any{
		"instanceId": in.Endpoint() + ":" + in.Service, "app": "SHOP WEB", "ipAddr": in.Address, "vipAddress": in.Service,
		"status": status, "port": map[string]any{"$": in.Port, "@enabled": "true"}, "metadata": in.Meta(),
		"lastDirtyTimestamp": "1700000000000",
	})
	if err != nil {
		panic(err)
	}
	return string(raw)
}

func open(t *testing.T, cfg registry.Config) *eureka.Registry {
	t.Helper()
	return drivertest.Open[*eureka.Registry](t, eureka.New, cfg)
}

// withPassword makes a driver that has one.
func withPassword(t *testing.T, endpoint string) *eureka.Registry {
	t.Helper()
	return open(t, registry.Config{
		Endpoint: endpoint, Auth: registry.Auth{Username: "me", PasswordFile: drivertest.File(t, "hunter2-pässword\n")},
	})
}

// answering makes a driver whose server gives one answer to everything.
func answering(t *testing.T, status int, body string) *eureka.Registry {
	t.Helper()
	return withPassword(t, drivertest.Answering(t, status, nil, body))
}

// fake is a Eureka of which a test says what it answers. It notes what it was asked.
type fake struct {
	URL string

	mu     sync.Mutex
	answer func(r *http.Request) (status int, body string)
	asked  []string
	bodies []string
	// replicas are its peers by its status: with comma and space between them, and "-" if it does not tell.
	replicas string
}

func newFake(t *testing.T, answer func(r *http.Request) (status int, body string)) *fake {
	t.Helper()
	f := &fake{answer: answer}
	f.URL = drivertest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/status") {
			f.status(w, r.Header.Get("Accept"))
			return
		}
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		f.mu.Lock()
		f.asked = append(f.asked, r.Method+" "+r.URL.String())
		f.bodies = append(f.bodies, string(body))
		answer := f.answer
		f.mu.Unlock()
		status, text := answer(r)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	})
	return f
}

// status answers as a server of Eureka 2, which can't write its status as JSON.
func (f *fake) status(w http.ResponseWriter, form string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.replicas == "-" || form != "application/xml" {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	_, _ = fmt.Fprintf(w, "<com.netflix.eureka.util.StatusInfo><generalStats><num-of-cpus>2</num-of-cpus></generalStats><applicationStats>"+
		"<registered-replicas>%s</registered-replicas><available-replicas></available-replicas></applicationStats>"+
		"</com.netflix.eureka.util.StatusInfo>", f.replicas)
}

// requests returns what it was asked since the last time.
func (f *fake) requests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked := f.asked
	f.asked = nil
	return asked
}

// healthy answers as a Eureka that has the instance in service.
func healthy(in registry.Instance) func(r *http.Request) (int, string) {
	return func(r *http.Request) (int, string) {
		switch {
		case r.Method == http.MethodPost:
			return http.StatusNoContent, ""
		case r.Method == http.MethodGet && r.URL.Path == "/apps":
			return http.StatusOK, `{"applications":{"application":[{"instance":[` + entryOf(in, "UP") + `]}]}}`
		case r.Method == http.MethodGet:
			return http.StatusOK, `{"instance":` + entryOf(in, "UP") + `}`
		}
		return http.StatusOK, ""
	}
}

func status(status int) func(r *http.Request) (int, string) {
	return func(*http.Request) (int, string) { return status, "" }
}
