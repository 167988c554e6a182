package consul_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/registries/consul"
)

// app is an application that has an agent register it, by Consul's own command.
type app struct {
	testing.TB
	agent *consul.Server
	at    registry.Instance

	renewals int
}

func newApp(t testing.TB, agent *consul.Server, at registry.Instance) *app {
	a := &app{TB: t, agent: agent, at: at}
	t.Cleanup(a.Deregister)
	return a
}

func (a *app) id() string { return fmt.Sprintf("%s-%s-%s", a.at.Service, a.at.Pod, a.at.Endpoint()) }

func (a *app) Register() {
	a.Helper()
	service := object{
		"ID": a.id(), "Name": a.at.Service, "Address": a.at.Address, "Port": a.at.Port, "Tags": []string{"v1"},
		"Meta":    map[string]string{"version": "v1", "renewals": strconv.Itoa(a.renewals)},
		"Weights": object{"Passing": 3, "Warning": 1},
	}
	raw, err := json.Marshal(object{"Service": service})
	expect.NoError(a, err)
	file := filepath.Join(a.TempDir(), "service.json")
	expect.NoError(a, os.WriteFile(file, raw, 0o600))
	expect.NoError(a, a.agent.Run(a.Context(), "services", "register", file))
	a.await(func(e *healthEntry) bool { return e != nil && e.Service.Meta["renewals"] == strconv.Itoa(a.renewals) })
}

func (a *app) Renew() {
	a.Helper()
	a.renewals++
	a.Register()
}

func (a *app) Deregister() {
	a.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.Context()), bound)
	defer cancel()
	if err := a.agent.Run(ctx, "services", "deregister", "-id="+a.id()); err != nil && a.Context().Err() == nil {
		a.Fatalf("the application: %v", err)
	}
	if a.Context().Err() == nil {
		a.await(func(e *healthEntry) bool { return e == nil })
	}
}

// Look leaves out of the entry what changes at each renewal.
func (a *app) Look() (given bool, entry string) {
	a.Helper()
	e, err := a.read()
	expect.NoError(a, err)
	if e == nil {
		return false, ""
	}
	given = true
	for _, c := range e.Checks {
		given = given && c.Status == "passing"
	}
	delete(e.Service.Meta, "renewals")
	return given, fmt.Sprintf("%+v %+v", e.Node, e.Service)
}

func (a *app) read() (*healthEntry, error) {
	entries, err := health(a.Context(), a.agent, a.at.Service, false)
	for _, e := range entries {
		if e.Service.ID == a.id() && e.Service.Port == a.at.Port && e.Service.Address == a.at.Address {
			return &e, err
		}
	}
	return nil, err
}

func (a *app) await(right func(*healthEntry) bool) {
	a.Helper()
	expect.Soon(a, "the entry of "+a.id()+" to be so", func() error {
		e, err := a.read()
		if err == nil && !right(e) {
			err = fmt.Errorf("it is %+v", e)
		}
		return err
	})
}

// agentsLike is the option for agents that are reached as the server is.
func agentsLike(server *consul.Server) string {
	return strings.Replace(server.URL, "127.0.0.1", "{nodeIP}", 1)
}
