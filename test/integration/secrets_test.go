package integration

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"slices"
	"strings"
	"testing"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	eventsv1 "k8s.io/api/events/v1"

	"github.com/rollcall-dev/rollcall/test/harness/manager"
	"github.com/rollcall-dev/rollcall/test/harness/mount"
)

// credential makes a token or password, which nothing that the run leaves behind may hold: see [environment.leaks].
func (e *environment) credential() string {
	raw := make([]byte, 12)
	_, _ = rand.Read(raw) // it never fails
	text := hex.EncodeToString(raw)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.credentials = append(e.credentials, text)
	return text
}

// leaks looks for every credential of the run in all that a manager can tell anybody: its log, where also stands why it
// refused to start, its Events, the pods and whatever else it wrote to the API server, and its metrics.
func (e *environment) leaks() error {
	outputs, err := e.outputs()
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return errors.Join(emptyIn(outputs), leaksIn(outputs, e.credentials))
}

func (e *environment) outputs() (map[string]string, error) {
	outputs := map[string]string{}
	for _, m := range e.all() {
		outputs["log of manager "+m.Name] = m.Log()
		var written strings.Builder
		for _, w := range m.proxy.Writes("") {
			written.WriteString(w.Body + "\n")
		}
		outputs["writes of manager "+m.Name] = written.String()
	}
	var events eventsv1.EventList
	if err := e.client.List(context.Background(), &events); err != nil {
		return nil, err
	}
	for name, what := range map[string]any{"Events": events.Items, "pods": e.history.All()} {
		text, err := json.Marshal(what)
		if err != nil {
			return nil, err
		}
		outputs[name] = string(text)
	}
	metrics, err := e.shared.Get(context.Background(), manager.MetricsServer, "/metrics")
	outputs["metrics of the shared manager"] = metrics
	return outputs, err
}

// emptyIn says which outputs have nothing in them, so that looking for something in them proves nothing. While scenarios
// run, a manager of theirs may just have started.
func emptyIn(outputs map[string]string) error {
	var all error
	for _, name := range slices.Sorted(maps.Keys(outputs)) {
		if outputs[name] == "" && !strings.HasPrefix(name, "writes of") {
			all = errors.Join(all, fmt.Errorf("%s: there is nothing to look at", name))
		}
	}
	return all
}

// leaksIn says which output holds which credential, in whatever form.
func leaksIn(outputs map[string]string, credentials []string) error {
	var all error
	for _, name := range slices.Sorted(maps.Keys(outputs)) {
		for i, c := range credentials {
			for _, form := range formsOf(c) {
				if at := strings.Index(outputs[name], form); at >= 0 {
					all = errors.Join(all, fmt.Errorf("%s: credential %d stands in it: …%s…", name, i,
						outputs[name][max(0, at-300):min(len(outputs[name]), at+len(form)+20)]))
				}
			}
		}
	}
	return all
}

// formsOf are those in which a text of letters and digits can show: as it is, in hexadecimal, and in base64 behind
// whatever it stands, such as a user's name. There the first and the last digits depend on the neighbours.
func formsOf(credential string) []string {
	forms := []string{credential, hex.EncodeToString([]byte(credential))}
	for before := range 3 {
		encoded := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", before) + credential))
		forms = append(forms, encoded[4:len(encoded)-4])
	}
	return forms
}

func TestLeaksAreFound(t *testing.T) {
	t.Parallel()
	const credential = "6b8a7f40c2d1e5936b8a7f40"
	for name, text := range map[string]string{
		"as it is":            "password=" + credential + ";",
		"in basic auth":       "Basic " + base64.StdEncoding.EncodeToString([]byte("rollcall:"+credential)),
		"in basic auth, odd":  "Basic " + base64.StdEncoding.EncodeToString([]byte("rollcal:"+credential)),
		"in basic auth, even": "Basic " + base64.URLEncoding.EncodeToString([]byte("rollca:"+credential+"!")),
		"in hexadecimal":      fmt.Sprintf("%x", credential),
	} {
		if leaksIn(map[string]string{"log": "before " + text + " after"}, []string{"another-credential", credential}) == nil {
			t.Errorf("%s it was not found: %s", name, text)
		}
	}
	clean := map[string]string{"log": "nothing", "writes of a": ""}
	if err := errors.Join(leaksIn(clean, []string{credential}), emptyIn(clean)); err != nil {
		t.Errorf("found where there is nothing: %v", err)
	}
	if emptyIn(map[string]string{"log": ""}) == nil {
		t.Error("when the run is over, an output that could not be looked at was taken for clean")
	}
}

// blabber is a registry that refuses everything, and repeats all that it was told: it is as bad as a server can be.
func blabber(t *testing.T, status int) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		dump, err := httputil.DumpRequest(r, true)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Location", "/elsewhere?"+r.URL.RawQuery+"&token="+r.Header.Get("Authorization")+password)
		w.Header().Set("X-Told", r.Header.Get("Authorization"))
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, "password %s is not right:\n%s", password, dump)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// TestNoSecretIsTold: whatever registries answer and however wrong the configuration is, no token and no password gets into
// anything that people read. What the manager tells is looked through when the whole run is over.
func TestNoSecretIsTold(t *testing.T) {
	t.Parallel()
	token, password := env.credential(), env.credential()
	mounted := mount.New(t, map[string]string{
		"token": token, "password": `p@ss:/"` + password, "two": password + " " + token, "lines": password + "\n" + token,
	})
	withToken := map[string]any{"tokenFile": mounted.Path("token")}
	withPassword := map[string]any{"username": "rollcall", "passwordFile": mounted.Path("password")}
	var sections []map[string]any
	for _, status := range []int{http.StatusFound, http.StatusBadRequest, http.StatusUnauthorized, http.StatusInternalServerError} {
		url, other := blabber(t, status), blabber(t, status)
		for _, of := range []struct {
			name, driver, endpoint string
			auth                   any
		}{
			{"http", "http", url, withToken}, {"basic", "http", other, withPassword}, {"consul", "consul", url, withToken},
			{"nacos", "nacos", url, withPassword}, {"eureka", "eureka", url, withPassword},
		} {
			sections = append(sections, map[string]any{
				"name": fmt.Sprintf("%s-%d", of.name, status), "driver": of.driver, "endpoint": of.endpoint, "auth": of.auth,
			})
		}
	}
	for driver, endpoint := range map[string]string{ // which do not speak HTTP/1
		"etcd": blabber(t, http.StatusBadRequest), "zookeeper": strings.TrimPrefix(blabber(t, http.StatusBadRequest), "http://"),
	} {
		sections = append(sections, map[string]any{"name": driver, "driver": driver, "endpoint": endpoint, "auth": withPassword})
	}
	sections[0]["default"] = true
	var names []string
	for _, section := range sections {
		names = append(names, section["name"].(string))
	}
	config := defaultConfiguration("", "secrets")
	delete(config, "registry")
	config["registries"] = sections
	m := startManager(t, "secrets", config, "--zap-log-level=10")
	s := newScenario(t, m, env.registry, labels, "secrets")

	for _, name := range names {
		s.Create(replicas(1), annotated("rollcall.dev/registries", name), func(set *kruisev1alpha1.CloneSet) {
			set.Name = name
			set.Spec.Selector.MatchLabels["app"], set.Spec.Template.Labels["app"] = name, name
		})
	}
	for _, name := range names {
		s.await("a Warning of registry "+name, func() error {
			if !slices.ContainsFunc(s.Events(), func(e eventsv1.Event) bool { return strings.Contains(e.Note, fmt.Sprintf("in registry %q", name)) }) {
				return errors.New("there is none")
			}
			return nil
		})
	}

	s.refuseSecrets(config, mounted, password)

	outputs, err := env.outputs()
	s.must(err)
	outputs["metrics of manager secrets"], err = m.Get(t.Context(), manager.MetricsServer, "/metrics")
	s.must(err)
	for output, known := range map[string]string{ // so they are looked into
		"log of manager secrets": "auth.tokenFile", "Events": `in registry \"http-401\"`,
		"metrics of manager secrets": `registry="http-401"`, "writes of manager secrets": "registering nacos-500 at",
	} {
		s.Expect(strings.Contains(outputs[output], known), "the %s lack %s", output, known)
	}
	if err := leaksIn(outputs, []string{token, password}); err != nil {
		t.Error(err)
	}
	for _, name := range names {
		s.key.Name = name
		s.DeleteCloneSet("Background")
	}
}

// refuseSecrets gives the manager one wrong configuration after the other, each with a credential where it must not stand.
func (s *scenario) refuseSecrets(config configuration, mounted *mount.Folder, password string) {
	s.Helper()
	for i, wrong := range []struct {
		section map[string]any
		field   string
	}{
		{map[string]any{"endpoint": "http://rollcall:" + password + "@127.0.0.1:http%zz"}, "endpoint"},
		{map[string]any{"endpoint": "http://127.0.0.1/?token=" + password}, "endpoint"},
		{map[string]any{"auth": map[string]any{"token": password}}, "auth.token"},
		{map[string]any{"auth": password}, "auth"},
		{map[string]any{"auth": map[string]any{"tokenFile": mounted.Path("two")}}, "auth.tokenFile"},
		{map[string]any{"driver": "nacos", "auth": map[string]any{"username": "a", "passwordFile": mounted.Path("lines")}},
			"auth.passwordFile"},
		{map[string]any{"endpoint": "https://127.0.0.1", "tls": map[string]any{"caFile": mounted.Path("token")}}, "tls.caFile"},
		{map[string]any{"driver": "consul", "options": map[string]any{"datacenter": []string{password}}}, "options"},
	} {
		section := map[string]any{"name": fmt.Sprintf("wrong-%d", i), "driver": "http", "endpoint": "http://127.0.0.1:1"}
		maps.Copy(section, wrong.section)
		changed := maps.Clone(config)
		changed["registries"] = []any{section}
		s.must(s.manager.Configure(changed))
		s.ExpectLogged("failed to apply the configuration", fmt.Sprintf("registries[wrong-%d].%s", i, wrong.field))
	}
	s.must(s.manager.Manager.Configure("registry: {driver: http, auth: {tokenFile: \"" + password))
	s.ExpectLogged("failed to apply the configuration", "use valid YAML")
}
