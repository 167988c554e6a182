package nacos_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/nacos"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
)

// fake answers as the documents say that Nacos does, and writes down what it was asked. The real servers are in
// test/registries/nacos; here is the trouble that those don't make on demand.
type fake struct {
	*httptest.Server
	version string

	mu sync.Mutex
	// posted is what POST registered, by ip and port, and put what PUT set; the latter beats the former.
	posted, put map[string]url.Values
	services    map[string]bool
	unprobed    bool
	asked       []string
	// members are the servers of its cluster; one by default.
	members []string
	// first sees a request before all else, and answers it itself if it returns true. It holds mu.
	first func(w http.ResponseWriter, path string, form url.Values) bool
}

func newFake(t *testing.T, version string) *fake {
	t.Helper()
	f := &fake{version: version, posted: map[string]url.Values{}, put: map[string]url.Values{}, services: map[string]bool{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_ = r.ParseForm()
	path := r.Method + " " + strings.TrimPrefix(r.URL.Path, "/nacos")
	if strings.HasSuffix(path, "/core/cluster/nodes") || strings.HasSuffix(path, "/core/cluster/node/list") {
		f.listMembers(w)
		return
	}
	f.asked = append(f.asked, path+" "+shown(r.Form))
	if f.first != nil && f.first(w, path, r.Form) {
		return
	}
	if path == "GET /v3/admin/core/state" {
		if f.version != "v3" {
			f.page(w, http.StatusNotFound, "No message available")
			return
		}
		f.answer(w, map[string]string{"version": "3.1.0"})
		return
	}
	f.serve(w, path, r.Form)
}

// shown is a request's parameters.
func shown(form url.Values) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(form)) {
		all = append(all, key+"="+form.Get(key))
	}
	return strings.Join(all, " ")
}

func (f *fake) serve(w http.ResponseWriter, path string, form url.Values) {
	key := form.Get("ip") + " " + form.Get("port")
	switch method, rest, _ := strings.Cut(path, " "); {
	case strings.HasSuffix(rest, "/login"):
		f.bare(w, map[string]any{"accessToken": "a-token", "tokenTtl": 18000})
	case strings.HasSuffix(rest, "/beat"):
		f.beat(w, key)
	case rest == "/v3/client/ns/instance" && form.Get("heartBeat") == "true":
		if f.posted[key] == nil {
			f.problem(w, http.StatusOK, 21003, "instance not found")
			return
		}
		f.ok(w)
	case method == http.MethodPatch, strings.HasSuffix(rest, "/ns/instance/partial"):
		if f.put[key] == nil {
			f.put[key] = f.posted[key]
		}
		f.put[key] = maps.Clone(f.put[key])
		maps.Copy(f.put[key], url.Values{"enabled": form["enabled"], "weight": form["weight"]})
		f.ok(w)
	case rest == "/v3/admin/ns/instance/list":
		f.answer(w, append([]any{}, f.hosts()[form.Get("clusterName")]...))
	case strings.HasSuffix(rest, "/catalog/instances"):
		f.bare(w, map[string]any{"list": f.hosts()[form.Get("clusterName")]})
	case strings.HasSuffix(rest, "/ns/instance/list"):
		f.answer(w, map[string]any{"hosts": f.given()})
	case strings.HasSuffix(rest, "/ns/instance"):
		f.instance(w, method, key, form)
	case strings.HasSuffix(rest, "/ns/service"):
		f.service(w, method, form.Get("serviceName"))
	case strings.HasSuffix(rest, "/ns/cluster"):
		f.unprobed = true
		f.ok(w)
	case strings.HasSuffix(rest, "/catalog/services"), strings.HasSuffix(rest, "/service/list"):
		f.list(w)
	default:
		f.page(w, http.StatusNotFound, "No endpoint")
	}
}

func (f *fake) instance(w http.ResponseWriter, method, key string, form url.Values) {
	switch method {
	case http.MethodPost:
		f.posted[key] = form
		f.services[form.Get("serviceName")] = true
		f.ok(w)
	case http.MethodPut:
		f.put[key] = form
		f.ok(w)
	case http.MethodDelete:
		delete(f.posted, key)
		f.ok(w)
	default:
		if f.posted[key] == nil || f.posted[key].Get("clusterName") != form.Get("clusterName") {
			f.problem(w, http.StatusNotFound, 20004, "no ips found for cluster DEFAULT in service DEFAULT_GROUP@@web")
			return
		}
		f.answer(w, f.entry(key))
	}
}

// laidOver is what PUT has set for an entry: in another Nacos cluster it is for another one.
func (f *fake) laidOver(key string) url.Values {
	if put := f.put[key]; put != nil && put.Get("clusterName") == f.posted[key].Get("clusterName") {
		return put
	}
	return nil
}

func (f *fake) entry(key string) map[string]any {
	form := f.posted[key]
	if put := f.laidOver(key); put != nil {
		form = put
	}
	var meta map[string]string
	_ = json.Unmarshal([]byte(form.Get("metadata")), &meta)
	var port int
	_, _ = fmt.Sscan(form.Get("port"), &port)
	var weight float64
	_, _ = fmt.Sscan(form.Get("weight"), &weight)
	e := map[string]any{
		"weight": weight, "ip": form.Get("ip"), "port": port, "healthy": f.posted[key].Get("healthy") == "true", "metadata": meta,
		"clusterName": form.Get("clusterName"),
	}
	if f.version == "v3" {
		e["enabled"] = form.Get("enabled") == "true"
	}
	return e
}

// given are the entries that clients get, without those out of service.
func (f *fake) given() []any {
	hosts := []any{}
	for key := range f.posted {
		if put := f.laidOver(key); put == nil || put.Get("enabled") == "true" {
			hosts = append(hosts, f.entry(key))
		}
	}
	return hosts
}

// hosts are the entries by their Nacos cluster.
func (f *fake) hosts() map[string][]any {
	hosts := map[string][]any{}
	for key, form := range f.posted {
		e, within := f.entry(key), form.Get("clusterName")
		put := f.laidOver(key)
		e["enabled"] = put == nil || put.Get("enabled") == "true"
		hosts[within] = append(hosts[within], e)
	}
	return hosts
}

// listMembers answers as the servers of a cluster, without an envelope of v2's.
func (f *fake) listMembers(w http.ResponseWriter) {
	members := f.members
	if members == nil {
		members = []string{strings.TrimPrefix(f.URL, "http://")}
	}
	if len(members) == 0 { // it does not tell
		f.page(w, http.StatusForbidden, "authorization failed!")
		return
	}
	all := []any{}
	for _, address := range members {
		all = append(all, map[string]string{"address": address, "state": "UP"})
	}
	if f.version == "v3" {
		f.answer(w, all)
		return
	}
	f.bare(w, map[string]any{"code": 200, "message": nil, "data": all})
}

func (f *fake) list(w http.ResponseWriter) {
	clusters := map[string]any{}
	for within, of := range f.hosts() {
		clusters[within] = map[string]any{"hosts": of}
	}
	service := map[string]any{"serviceName": "web", "groupName": "DEFAULT_GROUP", "clusterMap": clusters}
	if f.version == "v3" {
		f.answer(w, map[string]any{"totalCount": 1, "pageItems": []any{service}})
		return
	}
	f.bare(w, []any{service})
}

func (f *fake) service(w http.ResponseWriter, method, name string) {
	switch {
	case method == http.MethodPost && f.services[name]:
		f.problem(w, http.StatusBadRequest, 21007, "specified service DEFAULT_GROUP@@web already exists!")
	case method == http.MethodPost:
		f.services[name] = true
		f.ok(w)
	case !f.services[name] && len(f.posted) == 0:
		f.problem(w, http.StatusBadRequest, 21008, "service not found, namespace: public, serviceName: DEFAULT_GROUP@@web")
	default:
		clusters, byName, checker := []any{}, map[string]any{}, "TCP"
		if f.unprobed {
			checker = "NONE"
		}
		for within := range f.hosts() {
			one := map[string]any{"name": within, "healthChecker": map[string]string{"type": checker}}
			clusters, byName[within] = append(clusters, one), one
		}
		f.answer(w, map[string]any{"clusters": clusters, "clusterMap": byName})
	}
}

func (f *fake) beat(w http.ResponseWriter, key string) {
	code := 10200
	if f.posted[key] == nil {
		code = 20404
	}
	f.bare(w, map[string]int{"code": code, "clientBeatInterval": 5000})
}

// answer, ok and problem are in the envelope from v2 on.
func (f *fake) answer(w http.ResponseWriter, content any) {
	if f.version == "v1" {
		f.bare(w, content)
		return
	}
	f.bare(w, map[string]any{"code": 0, "message": "success", "data": content})
}

func (f *fake) ok(w http.ResponseWriter) {
	if f.version == "v1" {
		_, _ = fmt.Fprint(w, "ok")
		return
	}
	f.answer(w, "ok")
}

func (f *fake) problem(w http.ResponseWriter, status, code int, said string) {
	w.WriteHeader(status)
	if f.version == "v1" {
		_, _ = fmt.Fprint(w, said)
		return
	}
	f.bare(w, map[string]any{"code": code, "message": "something", "data": said})
}

func (f *fake) bare(w http.ResponseWriter, content any) { _ = json.NewEncoder(w).Encode(content) }

// page is what the framework below Nacos makes of an error.
func (f *fake) page(w http.ResponseWriter, status int, said string) {
	w.WriteHeader(status)
	f.bare(w, map[string]any{"status": status, "error": http.StatusText(status), "message": said, "path": "/nacos"})
}

// requests returns what was asked since the last time.
func (f *fake) requests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked := f.asked
	f.asked = nil
	return asked
}

// meddle sets what sees requests first.
func (f *fake) meddle(first func(w http.ResponseWriter, path string, form url.Values) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.first = first
}

func open(t *testing.T, cfg registry.Config) *nacos.Registry {
	t.Helper()
	return drivertest.Open[*nacos.Registry](t, nacos.New, cfg)
}

func at(t *testing.T, endpoint, options string) *nacos.Registry {
	t.Helper()
	return open(t, registry.Config{Endpoint: endpoint, Options: []byte(options)})
}

// atVersion is a driver that speaks the version of the fake.
func atVersion(t *testing.T, f *fake, version string) *nacos.Registry {
	t.Helper()
	if version == "v2" { // the driver does not find it by itself
		return at(t, f.URL, `{"apiVersion":"v2"}`)
	}
	return at(t, f.URL, `{}`)
}
