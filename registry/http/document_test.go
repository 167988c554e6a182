package httpregistry_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
)

const documentPath = "../../docs/http-registry.openapi.yaml"

// document is the protocol as it is documented, for holding traffic against it.
type document struct {
	spec *openapi3.T
}

func loadDocument(t *testing.T) document {
	t.Helper()
	spec, err := openapi3.NewLoader().LoadFromFile(documentPath)
	if err != nil {
		t.Fatalf("loading the document: %v", err)
	}
	if err := spec.Validate(t.Context()); err != nil {
		t.Fatalf("the document is not valid OpenAPI: %v", err)
	}
	return document{spec: spec}
}

// exchange is a request and its answer, as they went over the wire.
type exchange struct {
	request      *http.Request
	requestBody  []byte
	status       int
	header       http.Header
	responseBody []byte
}

// check says in what the exchange differs from the document.
func (d document) check(e exchange) error {
	route, err := d.route(e.request)
	if err != nil {
		return err
	}
	options := &openapi3filter.Options{
		MultiError: true, IncludeResponseStatus: true, RejectWhenRequestBodyNotSpecified: true,
		AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, // who may do what is not the document's matter
	}
	request := e.request.Clone(e.request.Context())
	request.Body = io.NopCloser(bytes.NewReader(e.requestBody))
	asked := &openapi3filter.RequestValidationInput{Request: request, Route: route, Options: options}
	answered := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: asked, Status: e.status, Header: e.header, Options: options,
		Body: io.NopCloser(bytes.NewReader(e.responseBody)),
	}
	return errors.Join(
		openapi3filter.ValidateRequest(request.Context(), asked),
		openapi3filter.ValidateResponse(request.Context(), answered),
	)
}

// route finds the operation; no path of the protocol has parameters.
func (d document) route(r *http.Request) (*routers.Route, error) {
	path := d.spec.Paths.Value(r.URL.Path)
	if path == nil {
		return nil, fmt.Errorf("path %s is not in the document", r.URL.Path)
	}
	op := path.GetOperation(r.Method)
	if op == nil {
		return nil, fmt.Errorf("%s %s is not in the document", r.Method, r.URL.Path)
	}
	return &routers.Route{Spec: d.spec, Path: r.URL.Path, PathItem: path, Method: r.Method, Operation: op}, nil
}

// watch stands before a server and reports every exchange that differs from the document.
func (d document) watch(t *testing.T, next http.Handler) *watched {
	t.Helper()
	return &watched{t: t, document: d, next: next}
}

type watched struct {
	t        *testing.T
	document document
	next     http.Handler
	count    atomic.Int64
}

func (w *watched) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	answer := httptest.NewRecorder()
	w.next.ServeHTTP(answer, r)
	e := exchange{
		request: r, requestBody: body,
		status: answer.Code, header: answer.Header(), responseBody: answer.Body.Bytes(),
	}
	w.count.Add(1)
	if err := w.document.check(e); err != nil && r.Context().Err() == nil {
		w.t.Errorf("%s %s -> %d %s differs from the document: %v", r.Method, r.URL, e.status, e.responseBody, err)
	}
	maps.Copy(rw.Header(), answer.Header())
	rw.WriteHeader(answer.Code)
	_, _ = rw.Write(answer.Body.Bytes())
}

// TestTheDocumentCatches proves that check can fail, and for the reason that is meant.
func TestTheDocumentCatches(t *testing.T) {
	t.Parallel()
	const instance = `{"service":"web","address":"10.0.0.1","port":80,"cluster":"c","namespace":"n","pod":"p","uid":"u"}`
	for name, tc := range map[string]struct {
		reason       string
		method, url  string
		body, answer string
		status       int
		want         string // "": nothing is wrong
	}{
		"right change": {
			reason: "the table's other rows differ from this one in one thing",
			method: "POST", url: "/v1/register", body: instance, status: 204,
		},
		"right list": {
			reason: "the table's other rows differ from this one in one thing",
			method: "GET", url: "/v1/instances?cluster=c", status: 200, answer: `{"instances":[]}`,
		},
		"port out of range": {
			reason: "the request's body is checked",
			method: "POST", url: "/v1/register", body: strings.Replace(instance, "80", "0", 1), status: 204,
			want: "number must be at least 1",
		},
		"right attributes": {
			reason: "they may be there",
			method: "POST", url: "/v1/register", status: 204,
			body: strings.Replace(instance, "{", `{"weight":10000,"zone":"a","metadata":{"version":"","a b":"名"},`, 1),
		},
		"weight out of range": {
			reason: "the attributes are checked",
			method: "POST", url: "/v1/register", body: strings.Replace(instance, "{", `{"weight":0,`, 1), status: 204,
			want: "number must be at least 1",
		},
		"metadata that is no text": {
			reason: "the attributes are checked",
			method: "POST", url: "/v1/register", body: strings.Replace(instance, "{", `{"metadata":{"n":1},`, 1), status: 204,
			want: "value must be a string",
		},
		"zone that is empty": {
			reason: "nothing is said by leaving it out",
			method: "POST", url: "/v1/register", body: strings.Replace(instance, "{", `{"zone":"",`, 1), status: 204,
			want: "minimum string length is 1",
		},
		"attributes of an entry": {
			reason: "the answer's attributes are checked",
			method: "GET", url: "/v1/instances?cluster=c", status: 200,
			answer: `{"instances":[` + strings.TrimSuffix(instance, "}") + `,"state":"InService","weight":10001}]}`,
			want:   "number must be at most 10000",
		},
		"no uid": {
			reason: "what the request must have is checked",
			method: "POST", url: "/v1/deregister", body: strings.Replace(instance, `"uid"`, `"id"`, 1), status: 204,
			want: `property "uid" is missing`,
		},
		"no cluster": {
			reason: "the query is checked",
			method: "GET", url: "/v1/instances", status: 200, answer: `{"instances":[]}`,
			want: "value is required but missing",
		},
		"unknown path": {
			reason: "what is not documented is not there",
			method: "POST", url: "/v2/register", body: instance, status: 204, want: "not in the document",
		},
		"unknown method": {
			reason: "what is not documented is not there",
			method: "PUT", url: "/v1/register", body: instance, status: 204, want: "not in the document",
		},
		"state of another registry": {
			reason: "the answer's body is checked",
			method: "GET", url: "/v1/instances?cluster=c", status: 200,
			answer: `{"instances":[` + strings.TrimSuffix(instance, "}") + `,"state":"UP"}]}`,
			want:   "value is not one of the allowed values",
		},
		"list that is none": {
			reason: "what the answer must have is checked",
			method: "GET", url: "/v1/instances?cluster=c", status: 200, answer: `{"items":[]}`,
			want: `property "instances" is missing`,
		},
		"list with no body": {
			reason: "a 204 tells nothing of the instances",
			method: "GET", url: "/v1/instances?cluster=c", status: 204, want: "status is not supported",
		},
		"error in another form": {
			reason: "the text of an error must be found",
			method: "POST", url: "/v1/register", body: instance, status: 503, answer: `{"message":"busy"}`,
			want: `property "error" is missing`,
		},
		"redirect": {
			reason: "a status that is not documented is caught",
			method: "POST", url: "/v1/register", body: instance, status: 302, want: "status is not supported",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			request := httptest.NewRequestWithContext(t.Context(), tc.method, tc.url, nil)
			if tc.body != "" {
				request.Header.Set("Content-Type", "application/json")
			}
			err := loadDocument(t).check(exchange{
				request: request, requestBody: []byte(tc.body),
				status: tc.status, header: http.Header{"Content-Type": {"application/json"}}, responseBody: []byte(tc.answer),
			})
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("got %v, want nothing wrong\nreason: %s", err, tc.reason)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got %v, want an error with %q\nreason: %s", err, tc.want, tc.reason)
			}
		})
	}
}
