package httpserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/http/httpserver"
	"github.com/rollcall-dev/rollcall/registry/memory"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

const instance = `{"service":"web","address":"10.0.0.1","port":80,"cluster":"test","namespace":"shop","pod":"a","uid":"u"}`

func newFake(t *testing.T) *fakeregistry.Registry {
	t.Helper()
	r, err := memory.New(t.Context(), registry.Config{})
	expect.NoError(t, err)
	return fakeregistry.New(r.(fakeregistry.Backend))
}

func ask(ctx context.Context, h http.Handler, method, url, body string, header http.Header) *httptest.ResponseRecorder {
	request := httptest.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	for name := range header {
		request.Header.Set(name, header.Get(name))
	}
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, request)
	return answer
}

// TestAnswers has what no driver asks for, and what a registry can't do. What drivers do ask for is the suite's.
func TestAnswers(t *testing.T) {
	t.Parallel()
	with := func(field string) string { return strings.Replace(instance, "{", "{"+field+",", 1) }
	terminal, busy := registry.Terminal(errors.New("service web is frozen")), registry.RetryAfter(errors.New("busy"), 1500*time.Millisecond)
	const list = "/v1/instances"
	for name, tc := range map[string]struct {
		reason      string
		method, url string // by default it registers
		body        string
		fault       error
		status      int
		says        string
		retryAfter  string
	}{
		"more fields":       {reason: "later versions may send more", body: with(`"color":"red"`), status: 204},
		"weight too large":  {reason: "it would get all there is", body: with(`"weight":10001`), status: 400, says: "weight must be"},
		"weight below zero": {reason: "it is no share", body: with(`"weight":-1`), status: 400, says: "weight must be"},
		"metadata of numbers": {
			reason: "a client would not get it back as it was", body: with(`"metadata":{"n":1}`), status: 400, says: "metadata",
		},
		"no uid":    {reason: "nothing could ever remove it", body: strings.Replace(instance, `"u"`, `""`, 1), status: 400, says: "no uid"},
		"no port":   {reason: "no client could connect", body: strings.Replace(instance, `80`, `0`, 1), status: 400, says: "port 0"},
		"no JSON":   {reason: "it can't be read", body: "web", status: 400, says: "JSON"},
		"nothing":   {reason: "it can't be read", status: 400, says: "JSON"},
		"too large": {reason: "an instance is small", body: with(`"zone":"` + strings.Repeat("x", 70_000) + `"`), status: 413, says: "too large"},

		"list of what":     {reason: "the filter is no option", method: "GET", url: list, status: 400, says: "cluster"},
		"GET of a change":  {reason: "a look must not change", method: "GET", status: 405},
		"POST of the list": {reason: "there is nothing to change", url: list, status: 405},
		"another path":     {reason: "there is no more", method: "GET", url: "/v1/services", status: 404},

		"refused":     {reason: "terminal is the client's error", body: instance, fault: terminal, status: 422, says: "frozen"},
		"failed":      {reason: "anything else is the server's", body: instance, fault: errors.New("disk full"), status: 503, says: "disk full"},
		"for a while": {reason: "the header's seconds round up", body: instance, fault: busy, status: 503, says: "busy", retryAfter: "2"},
		"list failed": {
			reason: "an error is not an empty list", method: "GET", url: list + "?cluster=test",
			fault: errors.New("disk full"), status: 503, says: "disk full",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := newFake(t)
			if tc.fault != nil {
				fake.FailNext(fakeregistry.Match{}, tc.fault)
			}
			if tc.method == "" {
				tc.method = http.MethodPost
			}
			if tc.url == "" {
				tc.url = "/v1/register"
			}
			answer := ask(t.Context(), httpserver.New(fake, httpserver.Options{}), tc.method, tc.url, tc.body, nil)
			if answer.Code != tc.status || !strings.Contains(answer.Body.String(), tc.says) ||
				answer.Header().Get("Retry-After") != tc.retryAfter {
				t.Errorf("got %d, Retry-After %q, %s; want %d, %q, %q\nreason: %s", answer.Code,
					answer.Header().Get("Retry-After"), answer.Body, tc.status, tc.retryAfter, tc.says, tc.reason)
			}
		})
	}
}

func TestWhoMayComeIn(t *testing.T) {
	t.Parallel()
	token := func(token string) bool { return token == "good" }
	login := func(username, password string) bool { return username == "me" && password == "good:pass" }
	const basic = `Basic realm="registry", charset="UTF-8"`
	for name, tc := range map[string]struct {
		reason    string
		opts      httpserver.Options
		header    string
		status    int
		challenge []string
	}{
		"an open server":   {"it asks for nothing", httpserver.Options{}, "", 200, nil},
		"right token":      {"the plain case", httpserver.Options{Authorize: token}, "Bearer good", 200, nil},
		"scheme in lower":  {"RFC 9110 has it in any case", httpserver.Options{Authorize: token}, "bearer good", 200, nil},
		"wrong token":      {"it says what it takes", httpserver.Options{Authorize: token}, "Bearer bad", 401, []string{"Bearer"}},
		"empty token":      {"nothing is nothing", httpserver.Options{Authorize: token}, "Bearer ", 401, []string{"Bearer"}},
		"no scheme":        {"it may be anything", httpserver.Options{Authorize: token}, "good", 401, []string{"Bearer"}},
		"another scheme":   {"it is no token", httpserver.Options{Authorize: token}, "Basic good", 401, []string{"Bearer"}},
		"no token":         {"nothing is nothing", httpserver.Options{Authorize: token}, "", 401, []string{"Bearer"}},
		"right password":   {"the plain case", httpserver.Options{Login: login}, basicAuth("me", "good:pass"), 200, nil},
		"wrong password":   {"it says what it takes", httpserver.Options{Login: login}, basicAuth("me", "good"), 401, []string{basic}},
		"another user":     {"both count", httpserver.Options{Login: login}, basicAuth("you", "good:pass"), 401, []string{basic}},
		"no password":      {"nothing is nothing", httpserver.Options{Login: login}, "", 401, []string{basic}},
		"a token for it":   {"a token is no password", httpserver.Options{Login: login}, "Bearer good", 401, []string{basic}},
		"either, token":    {"one is enough", httpserver.Options{Authorize: token, Login: login}, "Bearer good", 200, nil},
		"either, password": {"one is enough", httpserver.Options{Authorize: token, Login: login}, basicAuth("me", "good:pass"), 200, nil},
		"neither": {
			"both are named", httpserver.Options{Authorize: token, Login: login}, "Bearer bad", 401, []string{"Bearer", basic},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			header := http.Header{}
			if tc.header != "" {
				header.Set("Authorization", tc.header)
			}
			answer := ask(t.Context(), httpserver.New(newFake(t), tc.opts), "GET", "/v1/instances?cluster=test", "", header)
			if diff := cmp.Diff(tc.challenge, answer.Header().Values("WWW-Authenticate")); answer.Code != tc.status || diff != "" {
				t.Errorf("got %d, want %d; challenges, -want +got:\n%s\nreason: %s", answer.Code, tc.status, diff, tc.reason)
			}
		})
	}
}

func basicAuth(username, password string) string {
	r := http.Request{Header: http.Header{}}
	r.SetBasicAuth(username, password)
	return r.Header.Get("Authorization")
}

func TestOnAnswerSeesEveryAnswer(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var answers []httpserver.Answer
	fake := newFake(t)
	fake.FailNext(fakeregistry.Match{Op: fakeregistry.OpFailOver}, errors.New("busy"))
	server := httptest.NewServer(httpserver.New(fake, httpserver.Options{OnAnswer: func(a httpserver.Answer) {
		mu.Lock()
		defer mu.Unlock()
		answers = append(answers, a)
	}}))
	t.Cleanup(server.Close)

	var wanted registry.Instance
	expect.NoError(t, json.Unmarshal([]byte(instance), &wanted))
	for _, step := range []struct {
		path, body string
		want       httpserver.Answer
	}{
		{"/v1/register", instance, httpserver.Answer{Instance: wanted, Status: 204}},
		{"/v1/fail-over", instance, httpserver.Answer{Instance: wanted, Status: 503}},
		{"/v1/deregister", "{", httpserver.Answer{Status: 400}},
	} {
		before := time.Now()
		response, err := http.Post(server.URL+step.path, "application/json", strings.NewReader(step.body))
		expect.NoError(t, err)
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		after := time.Now()

		mu.Lock()
		got := answers[len(answers)-1] // told before it was sent, so it is here
		mu.Unlock()
		if got.Received.Before(before) || got.Sent.Before(got.Received) || after.Before(got.Sent) {
			t.Errorf("%s: received %s, sent %s; want both in order within %s to %s", step.path, got.Received, got.Sent, before, after)
		}
		got.Received, got.Sent = time.Time{}, time.Time{}
		step.want.Method, step.want.Path = "POST", step.path
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s, -want +got:\n%s", step.path, diff)
		}
	}
}

// bare is a backend whose empty list is nil.
type bare struct{ httpserver.Backend }

func (bare) List(context.Context, string) ([]registry.Entry, error) { return nil, nil }

func TestAnEmptyListIsAList(t *testing.T) {
	t.Parallel()
	answer := ask(t.Context(), httpserver.New(bare{newFake(t)}, httpserver.Options{}), "GET", "/v1/instances?cluster=test", "", nil)
	if got := strings.TrimSpace(answer.Body.String()); got != `{"instances":[]}` {
		t.Errorf("got %s, want a list: null is none", got)
	}
}
