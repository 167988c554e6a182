package httpregistry_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

const documentPath = "../../docs/http-registry.openapi.yaml"

// document is the protocol as it is documented, for holding traffic against it.
type document struct {
	spec *openapi3.T
}

func loadDocument(t *testing.T) document {
	t.Helper()
	spec, err := openapi3.NewLoader().LoadFromFile(documentPath)
	expect.NoError(t, err)
	expect.NoError(t, spec.Validate(t.Context()))
	return document{spec: spec}
}

// FindRoute implements [routers.Router]; no path of the protocol has parameters.
func (d document) FindRoute(r *http.Request) (*routers.Route, map[string]string, error) {
	path := d.spec.Paths.Value(r.URL.Path)
	if path == nil {
		return nil, nil, fmt.Errorf("path %s is not in the document", r.URL.Path)
	}
	op := path.GetOperation(r.Method)
	if op == nil {
		return nil, nil, fmt.Errorf("%s %s is not in the document", r.Method, r.URL.Path)
	}
	return &routers.Route{Spec: d.spec, Path: r.URL.Path, PathItem: path, Method: r.Method, Operation: op}, nil, nil
}

// watch stands before a server, and says in what an exchange differs from the document.
func (d document) watch(next http.Handler, differs func(r *http.Request, err error)) http.Handler {
	options := openapi3filter.ValidationOptions(openapi3filter.Options{
		MultiError: true, IncludeResponseStatus: true, RejectWhenRequestBodyNotSpecified: true,
		AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, // who may do what is not the document's matter
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client has gone
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		log := openapi3filter.OnLog(func(_ context.Context, what string, err error) { differs(r, fmt.Errorf("%s: %w", what, err)) })
		openapi3filter.NewValidator(d, options, log).Middleware(next).ServeHTTP(w, r)
	})
}

// TestTheDocumentCatches proves that watch can fail, and for the reason that is meant: each exchange differs in one thing from
// one that is right.
func TestTheDocumentCatches(t *testing.T) {
	t.Parallel()
	const instance = `{"service":"web","address":"10.0.0.1","port":80,"cluster":"c","namespace":"n","pod":"p","uid":"u"}`
	type request struct{ method, url, body string }
	register, list := request{"POST", "/v1/register", instance}, request{"GET", "/v1/instances?cluster=c", ""}
	registerWith := func(old, changed string) request {
		return request{register.method, register.url, strings.Replace(instance, old, changed, 1)}
	}
	entry := func(more string) string { return `{"instances":[` + strings.TrimSuffix(instance, "}") + more + `}]}` }
	const attributes = `{"weight":10000,"zone":"a","tags":["b","a"],"metadata":{"version":"","a b":"名"},`
	type row struct {
		reason string
		asked  request
		status int
		answer string
		want   string // "": nothing is wrong
	}
	expect.Each(t, map[string]row{
		"right change":     {"the plain case", register, 204, "", ""},
		"right list":       {"the plain case", list, 200, `{"instances":[]}`, ""},
		"right attributes": {"they may be there", registerWith("{", attributes), 204, "", ""},

		"port out of range":   {"the request's body is checked", registerWith("80", "0"), 204, "", "number must be at least 1"},
		"no uid":              {"what it must have is checked", registerWith(`"uid"`, `"id"`), 204, "", `property "uid" is missing`},
		"weight out of range": {"attributes are checked", registerWith("{", `{"weight":0,`), 204, "", "number must be at least 1"},
		"metadata of numbers": {"attributes are checked", registerWith("{", `{"metadata":{"n":1},`), 204, "", "value must be a string"},
		"tags of numbers":     {"attributes are checked", registerWith("{", `{"tags":[1],`), 204, "", "value must be a string"},
		"zone that is empty":  {"it is to be left out", registerWith("{", `{"zone":"",`), 204, "", "minimum string length is 1"},

		"no cluster":     {"the query is checked", request{"GET", "/v1/instances", ""}, 200, `{"instances":[]}`, "value is required but missing"},
		"unknown path":   {"what is not documented is not there", request{"POST", "/v2/register", instance}, 204, "", "not in the document"},
		"unknown method": {"what is not documented is not there", request{"PUT", "/v1/register", instance}, 204, "", "not in the document"},

		"weight of an entry":        {"the answer is checked", list, 200, entry(`,"state":"InService","weight":10001`), "number must be at most 10000"},
		"state of another registry": {"the answer is checked", list, 200, entry(`,"state":"UP"`), "value is not one of the allowed values"},
		"list that is none":         {"what it must have is checked", list, 200, `{"items":[]}`, `property "instances" is missing`},
		"list with no body":         {"a 204 tells nothing of the instances", list, 204, "", "status is not supported"},
		"error in another form":     {"its text must be found", register, 503, `{"message":"busy"}`, `property "error" is missing`},
		"redirect":                  {"it is not documented", register, 302, "", "status is not supported"},
	}, func(t *testing.T, tc row) {
		asked := httptest.NewRequestWithContext(t.Context(), tc.asked.method, tc.asked.url, strings.NewReader(tc.asked.body))
		if tc.asked.body != "" {
			asked.Header.Set("Content-Type", "application/json")
		}
		var err error
		loadDocument(t).watch(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(tc.status)
			_, _ = io.WriteString(w, tc.answer)
		}), func(_ *http.Request, differs error) { err = differs }).ServeHTTP(httptest.NewRecorder(), asked)
		expect.Error(t, tc.reason, err, tc.want)
	})
}
