package nacos_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	driver "github.com/rollcall-dev/rollcall/registry/nacos"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/registries/nacos"
)

// app is an application that registers itself over gRPC by Nacos' own client.
type app struct {
	testing.TB
	server *nacos.Server
	at     registry.Instance

	running *nacos.App
}

func newApp(t testing.TB, server *nacos.Server, at registry.Instance) *app {
	return &app{TB: t, server: server, at: at}
}

func (a *app) Register() {
	a.Helper()
	var err error
	a.running, err = a.server.RegisterItself(a.Context(), a.at)
	expect.NoError(a, err)
}

func (a *app) Renew() {
	a.Helper()
	expect.NoError(a, a.running.Renew(a.Context()))
}

func (a *app) Deregister() {
	a.Helper()
	if a.Context().Err() == nil { // else it has ended with the test
		expect.NoError(a, a.running.Leave(a.Context()))
	}
}

// Look leaves out of the entry what says whether clients are given it, and what changes at each renewal.
func (a *app) Look() (given bool, entry string) {
	a.Helper()
	got, listed, err := a.server.Entry(a.Context(), a.at)
	expect.NoError(a, err)
	if got == nil {
		return false, ""
	}
	got.Enabled = false
	delete(got.Metadata, "renewals")
	return len(listed) > 0, fmt.Sprintf("%+v", *got)
}

// TestAppEntryKeepsWhatAPersonSet has metadata and a weight that were set in the console, which Nacos keeps where it keeps
// enabled.
func TestAppEntryKeepsWhatAPersonSet(t *testing.T) {
	t.Parallel()
	onEach(t, driver.Options{}, func(s *scenario) {
		a := newApp(s, s.server, s.pod(1))
		a.Register()
		s.ask(http.MethodPut, "/v3/admin/ns/instance", url.Values{
			"serviceName": {s.service}, "ip": {a.at.Address}, "port": {strconv.Itoa(a.at.Port)}, "clusterName": {"DEFAULT"},
			"ephemeral": {"true"}, "enabled": {"true"}, "weight": {"7"}, "metadata": {`{"canary":"true"}`},
		})
		before := ""
		s.eventually(func() error {
			if _, before = a.Look(); !strings.Contains(before, "canary") {
				return fmt.Errorf("the server does not show it yet: %s", before)
			}
			return nil
		})
		for _, change := range []call{s.driver.AppEntries().FailOver, s.driver.AppEntries().Register} {
			expect.NoError(s, change(s.Context(), a.at))
			if _, after := a.Look(); after != before {
				s.Errorf("the entry is\n%s\nit was\n%s", after, before)
			}
		}
	})
}
