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
	"github.com/rollcall-dev/rollcall/registry/memory"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
	"github.com/rollcall-dev/rollcall/test/harness/httpserver"
)

const instance = `{"service":"web","address":"10.0.0.1","port":80,"cluster":"test","namespace":"shop","pod":"a","uid":"u"}`

func newFake(t *testing.T) *fakeregistry.Registry {
	t.Helper()
	r, err := memory.New(t.Context(), registry.Config{})
	expect.NoError(t, err)
	return fakeregistry.New(r.(fakeregistry.Backend))
}

func ask(ctx context.Context, h http.Handler, method, url, body string) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, method, url, strings.NewReader(body)))
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
			answer := ask(t.Context(), httpserver.New(fake, httpserver.Options{}), tc.method, tc.url, tc.body)
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
	login := func(username, password string) bool { return username == "me" && password == "good:pass" }
	const list, basic = "/v1/instances?cluster=test", `Basic realm="registry", charset="UTF-8"`
	h := httpserver.New(newFake(t), httpserver.Options{Login: login})
	for name, tc := range map[string]struct {
		reason string
		url    string // with user and password
		status int
	}{
		"right password": {"the plain case", "http://me:good%3Apass@registry" + list, 200},
		"wrong password": {"it says what it takes", "http://me:good@registry" + list, 401},
		"another user":   {"both count", "http://you:good%3Apass@registry" + list, 401},
		"no password":    {"nothing is nothing", list, 401},
	} {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, tc.url, nil)
		if password, given := request.URL.User.Password(); given {
			request.SetBasicAuth(request.URL.User.Username(), password)
		}
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, request)
		if challenge := answer.Header().Get("WWW-Authenticate"); answer.Code != tc.status || (challenge == basic) != (tc.status == 401) {
			t.Errorf("%s: got %d and challenge %q, want %d\nreason: %s", name, answer.Code, challenge, tc.status, tc.reason)
		}
	}
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
	answer := ask(t.Context(), httpserver.New(bare{newFake(t)}, httpserver.Options{}), "GET", "/v1/instances?cluster=test", "")
	if got := strings.TrimSpace(answer.Body.String()); got != `{"instances":[]}` {
		t.Errorf("got %s, want a list: null is none", got)
	}
}
