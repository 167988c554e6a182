package driverkit_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/pki"
)

// bound is generous: what is waited for comes at once.
const bound = 30 * time.Second

func newClient(t *testing.T, cfg registry.Config, options driverkit.HTTPOptions) *driverkit.HTTPClient {
	t.Helper()
	if options.Name == "" {
		options.Name = "the registry"
	}
	c, err := driverkit.NewHTTPClient(cfg, options)
	expect.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// within makes a request, and an error of an answer that acknowledges nothing, as drivers do.
func within(ctx context.Context, c *driverkit.HTTPClient, r driverkit.Request) (*driverkit.Answer, error) {
	if r.Method == "" {
		r.Method = http.MethodPost
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	a, err := c.Do(ctx, r)
	if err == nil && !a.OK() {
		err = a.Refusal(string(a.Body)).Classified()
	}
	if ctx.Err() != nil {
		err = driverkit.CallError(ctx, "asking for", registry.Instance{}, err)
	}
	return a, err
}

// TestRequestsCarryWhatIsOutgoing: each request has the headers of its trace, and who makes them is told which server it goes to.
func TestRequestsCarryWhatIsOutgoing(t *testing.T) {
	t.Parallel()
	var sent http.Header
	server := drivertest.Serve(t, func(_ http.ResponseWriter, r *http.Request) { sent = r.Header })
	type key struct{}
	told := ""
	c := newClient(t, registry.Config{
		Endpoint: server,
		Outgoing: func(ctx context.Context, to *url.URL) map[string]string {
			told = to.Scheme + "://" + to.Host
			return map[string]string{"traceparent": ctx.Value(key{}).(string)}
		},
	}, driverkit.HTTPOptions{})
	_, err := within(context.WithValue(t.Context(), key{}, "00-1-2-01"), c, driverkit.Request{Path: "a"})
	expect.NoError(t, err)
	if sent.Get("Traceparent") != "00-1-2-01" || told != server {
		t.Errorf("the request to %s has traceparent %q, and %q was told", server, sent.Get("Traceparent"), told)
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	type class struct {
		terminal bool
		after    time.Duration
		said     bool
	}
	terminal, retryable := class{terminal: true}, class{}
	type row struct {
		reason string
		status int
		header map[string]string
		body   string
		class  class
		text   string // "": an acknowledgement
	}
	expect.Each(t, map[string]row{
		"acknowledged":      {reason: "the plain case", status: 200},
		"without content":   {reason: "2xx is 2xx", status: 204},
		"a body of no use":  {reason: "the status suffices", status: 200, body: strings.Repeat("x", 100_000)},
		"refused":           {reason: "it stays so", status: 422, class: terminal, text: "the registry answered 422 Unprocessable Entity"},
		"words":             {reason: "they say what is wrong", status: 400, body: "a\r\nb\x1b[31m\tc", class: terminal, text: "the registry answered 400 Bad Request: a b [31m c"},
		"words in Latin-1":  {reason: "an event is UTF-8", status: 400, body: "\xff\xfe!", class: terminal, text: "the registry answered 400 Bad Request: ?!"},
		"a page":            {reason: "an event is short", status: 502, body: strings.Repeat("x", 2<<20), class: retryable, text: "the registry answered 502 Bad Gateway: " + strings.Repeat("x", 300) + "…"},
		"an unknown status": {reason: "it has no name", status: 599, class: retryable, text: "the registry answered 599"},
		"too many, seconds": {reason: "the usual form", status: 429, header: map[string]string{"Retry-After": "7"}, class: class{after: 7 * time.Second, said: true}, text: "the registry answered 429 Too Many Requests"},
		"terminal, in 7 s":  {reason: "trying again is of no use, whenever", status: 403, header: map[string]string{"Retry-After": "7"}, class: terminal, text: "the registry answered 403 Forbidden"},
		"moved":             {reason: "a redirect is not followed", status: 302, header: map[string]string{"Location": "http://elsewhere.invalid/"}, class: terminal, text: "the registry answered 302 Found, and redirects are not followed: set endpoint to where the registry is (Location: http://elsewhere.invalid/)"},
	}, func(t *testing.T, tc row) {
		c := newClient(t, registry.Config{Endpoint: drivertest.Answering(t, tc.status, tc.header, tc.body)}, driverkit.HTTPOptions{})
		_, err := within(t.Context(), c, driverkit.Request{})
		after, said := registry.RetryAfterOf(err)
		got := class{terminal: registry.CodeOf(err) == registry.CodeTerminal, after: after, said: said}
		if (err != nil) != (tc.text != "") || err != nil && err.Error() != tc.text || got != tc.class {
			t.Errorf("got error %.500v of class %+v\nwant %q, %+v\nreason: %s", err, got, tc.text, tc.class, tc.reason)
		}
		if driverkit.HasStatus(err, tc.status) != (err != nil) {
			t.Errorf("HasStatus of %v is %t", err, err == nil)
		}
	})
}

func TestEveryStatusHasAClass(t *testing.T) {
	t.Parallel()
	passes := []int{408, 409, 425, 429}
	for status := 100; status <= 999; status++ {
		want := status >= 300 && status <= 499 && !slices.Contains(passes, status)
		expect.Equal(t, want, driverkit.IsFinal(status), "IsFinal(%d)", status)
		a := &driverkit.Answer{Status: status}
		if err := a.Refusal("").Classified(); (registry.CodeOf(err) == registry.CodeTerminal) != want || !strings.Contains(err.Error(), strconv.Itoa(status)) {
			t.Errorf("the error of %d is terminal: %t, want %t: %v", status, !want, want, err)
		}
		if lands := drivertest.MayLand(a.Refusal("").Classified()); lands != slices.Contains([]int{502, 504, 524}, status) {
			t.Errorf("after %d a call may still land: %t", status, lands)
		}
	}
}

func TestBodies(t *testing.T) {
	t.Parallel()
	stalls := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}
	endless := func(w http.ResponseWriter, _ *http.Request) {
		blank := bytes.Repeat([]byte(" "), 64<<10)
		for {
			if _, err := w.Write(blank); err != nil {
				return
			}
		}
	}
	short := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "[]")
	}
	type row struct {
		reason string
		server http.HandlerFunc
		limit  int64
		says   string // "": no error
	}
	expect.Each(t, map[string]row{
		"within the limit":  {"the plain case", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "1234") }, 4, ""},
		"over it":           {"a part is not the whole", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "12345") }, 4, "more than 4 bytes"},
		"without end":       {"memory ends before it", endless, 1 << 20, "more than"},
		"cut short":         {"a part is not the whole", short, 1 << 20, "unexpected EOF"},
		"stalled":           {"the call has a deadline", stalls(200), 1, "deadline"},
		"a stalled refusal": {"half of an answer is no verdict", stalls(403), 0, "deadline"},
	}, func(t *testing.T, tc row) {
		ctx := t.Context()
		if tc.says == "deadline" {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
		}
		c := newClient(t, registry.Config{Endpoint: drivertest.Serve(t, tc.server)}, driverkit.HTTPOptions{})
		_, err := within(ctx, c, driverkit.Request{Limit: tc.limit})
		if (err != nil) != (tc.says != "") || err != nil && !strings.Contains(err.Error(), tc.says) || registry.CodeOf(err) == registry.CodeTerminal {
			t.Errorf("got error %v, want a retryable one with %q\nreason: %s", err, tc.says, tc.reason)
		}
		if tc.says == "deadline" && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got error %v, want the deadline's", err)
		}
	})
}

// TestSecretsAreNeverShown has a server that echoes what it was sent: in its words, in a location, in what is no HTTP.
func TestSecretsAreNeverShown(t *testing.T) {
	t.Parallel()
	const token, password, session = "s3cret-t0ken", "s3cret: päss&w0rd", "s3cret-sess1on"
	basic := base64.StdEncoding.EncodeToString([]byte("me:" + password))
	all := []string{token, password, session, basic, url.QueryEscape(password)}
	echo := strings.Join(all, " ")
	credentials := driverkit.Credentials{Token: token, Username: "me", Password: password}
	for name, endpoint := range map[string]string{
		"words":    drivertest.Answering(t, 403, nil, echo),
		"location": drivertest.Answering(t, 302, map[string]string{"Location": "/login?from=" + echo}, ""),
		"no HTTP":  "http://" + drivertest.Saying(t, token+" "+basic+" "+session+"\r\n\r\n"),
	} {
		c := newClient(t, registry.Config{Endpoint: endpoint}, driverkit.HTTPOptions{Credentials: credentials})
		_, err := within(t.Context(), c, driverkit.Request{Secrets: []string{session}})
		if err == nil || !strings.Contains(err.Error(), "[password]") {
			t.Errorf("%s: got error %v, want one with [password] in it", name, err)
			continue
		}
		for _, secret := range all {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%s: the error shows %q: %v", name, secret, err)
			}
		}
	}
}

// TestRequests are of servers whose URLs have a path, which may hold what is not to be taken for a slash, as a request's may.
func TestRequests(t *testing.T) {
	t.Parallel()
	header := http.Header{"Authorization": {"Bearer t"}}
	for base, at := range map[string]string{"": "", "/": "", "/base": "/base", "/base/": "/base", "/a%2Fb": "/a%2Fb"} {
		var got string
		c := newClient(t, registry.Config{Endpoint: drivertest.Serve(t, func(_ http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			got = fmt.Sprint(r.Method, " ", r.URL, " ", r.Header.Get("Authorization"), " ", r.Header.Get("Content-Type"), " ", string(body))
		}) + base}, driverkit.HTTPOptions{})
		for want, r := range map[string]driverkit.Request{
			"POST " + at + "/v1/web%2F1 Bearer t application/json {}": {Path: "/v1/web%2F1", Header: header, Body: []byte("{}")},
			"GET " + at + "/v1?a=b%26c+d   ":                          {Method: http.MethodGet, Path: "/v1", Query: url.Values{"a": {"b&c d"}}},
		} {
			_, err := within(t.Context(), c, r)
			if expect.NoError(t, err); got != want {
				t.Errorf("a server at %q got %s, want %s", base, got, want)
			}
		}
	}
}

func TestAuthorization(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		given  driverkit.Credentials
		want   string
		field  string
	}{
		"nothing":     {reason: "a registry may be open"},
		"token":       {reason: "RFC 6750", given: driverkit.Credentials{Token: "t"}, want: "Bearer t"},
		"password":    {reason: "RFC 7617", given: driverkit.Credentials{Username: "me", Password: "p:w"}, want: "Basic bWU6cDp3"},
		"colon":       {reason: "the password would begin there", given: driverkit.Credentials{Username: "m:e", Password: "p"}, field: "auth.username"},
		"line's end":  {reason: "it would be another header", given: driverkit.Credentials{Username: "m\ne", Password: "p"}, field: "auth.username"},
		"delete sign": {reason: "RFC 7617 allows none", given: driverkit.Credentials{Username: "m\x7fe", Password: "p"}, field: "auth.username"},
	} {
		got, err := tc.given.Authorization()
		if expectField(t, err, tc.field, "", name+": "+tc.reason); got.Get("Authorization") != tc.want {
			t.Errorf("%s: got %q, want %q\nreason: %s", name, got, tc.want, tc.reason)
		}
	}
}

// TestDoLeavesAServerThatFails makes one call after the other, each at the server that is in use then.
func TestDoLeavesAServerThatFails(t *testing.T) {
	t.Parallel()
	var status [3]atomic.Int64
	var reached []int
	var endpoints []string
	for i := range status {
		endpoints = append(endpoints, drivertest.Serve(t, func(w http.ResponseWriter, _ *http.Request) {
			reached = append(reached, i) // the calls are made one after the other
			w.WriteHeader(int(status[i].Load()))
		}))
		status[i].Store(http.StatusOK)
	}
	var logged bytes.Buffer
	c := newClient(t, registry.Config{
		Endpoint: strings.Join([]string{
			endpoints[0], "http://" + registrytest.UnusedAddress(t), "http://" + registrytest.SilentAddress(t), endpoints[1], endpoints[2],
		}, ","),
		Logger: slog.New(slog.NewTextHandler(&logged, nil)),
	}, driverkit.HTTPOptions{})
	const gone, short = "gone", "short"
	for _, step := range []struct {
		reason string
		caller string
		status map[int]int // set before the call
		ok     bool
		asked  []int
	}{
		{reason: "the first one works", ok: true, asked: []int{0}},
		{reason: "and is used on", ok: true, asked: []int{0}},
		{reason: "a refusal says nothing of the server", status: map[int]int{0: 422}, asked: []int{0}},
		{reason: "a call that a busy server refuses is not made again", status: map[int]int{0: 429}, asked: []int{0}},
		{reason: "the second does not listen"},
		{reason: "the third does not answer", caller: short},
		{reason: "the fourth works", ok: true, asked: []int{1}},
		{reason: "a caller that has gone says nothing of the server", caller: gone},
		{reason: "so it is used on", ok: true, asked: []int{1}},
		{reason: "a gateway without a server", status: map[int]int{1: 502}, asked: []int{1}},
		{reason: "the fifth fails, too", status: map[int]int{2: 500}, asked: []int{2}},
		{reason: "and the first comes round again", status: map[int]int{0: 200}, ok: true, asked: []int{0}},
	} {
		for i, s := range step.status {
			status[i].Store(int64(s))
		}
		ctx, cancel := context.WithCancel(t.Context())
		switch step.caller {
		case gone:
			cancel()
		case short:
			ctx, cancel = context.WithTimeout(ctx, 2*time.Second) // the request is on its way by then
		}
		reached = nil
		if _, err := within(ctx, c, driverkit.Request{}); (err == nil) != step.ok || !slices.Equal(reached, step.asked) {
			t.Errorf("got error %v at servers %v, want success: %t at %v\nreason: %s", err, reached, step.ok, step.asked, step.reason)
		}
		cancel()
	}
	if lines := strings.Count(logged.String(), "using another registry server"); lines != 5 {
		t.Errorf("logged %d times that another server is used, want 5:\n%s", lines, logged.String())
	}
}

// TestCheck: a server that has answered, and not as the registry does, is left.
func TestCheck(t *testing.T) {
	t.Parallel()
	first, second := drivertest.Answering(t, 200, nil, "<html>"), drivertest.Answering(t, 200, nil, "[]")
	wrong := errors.New("no JSON")
	at, err := url.Parse(first)
	expect.NoError(t, err)
	busy, refusing := drivertest.Answering(t, 429, nil, "<html>"), drivertest.Answering(t, 404, nil, "<html>")
	type row struct {
		reason  string
		servers []string
		request driverkit.Request
		fails   bool
		next    string
	}
	expect.Each(t, map[string]row{
		"without one":     {"the status suffices", []string{first, second}, driverkit.Request{}, false, "<html>"},
		"passed":          {"it is the registry's", []string{second, first}, driverkit.Request{Check: isJSON(wrong)}, false, "[]"},
		"failed":          {"a proxy has answered", []string{first, second}, driverkit.Request{Check: isJSON(wrong)}, true, "[]"},
		"at another":      {"an agent is not the registry", []string{first, second}, driverkit.Request{Check: isJSON(wrong), At: at}, true, "<html>"},
		"of a refusal":    {"it is judged by its status", []string{refusing, second}, driverkit.Request{Check: isJSON(wrong)}, false, "<html>"},
		"of a busy one's": {"it is judged by its status", []string{busy, second}, driverkit.Request{Check: isJSON(wrong)}, false, "[]"},
	}, func(t *testing.T, tc row) {
		c := newClient(t, registry.Config{Endpoint: strings.Join(tc.servers, ",")}, driverkit.HTTPOptions{})
		tc.request.Limit = 10
		_, err := c.Do(t.Context(), tc.request)
		if errors.Is(err, wrong) != tc.fails || tc.fails && err.Error() != first+": no JSON" {
			t.Errorf("got error %v, want one that has the server: %t\nreason: %s", err, tc.fails, tc.reason)
		}
		if a, err := c.Do(t.Context(), driverkit.Request{Limit: 10}); err != nil || string(a.Body) != tc.next {
			t.Errorf("the next call got %q and error %v, want %q\nreason: %s", a.Body, err, tc.next, tc.reason)
		}
	})
}

func isJSON(wrong error) func(*driverkit.Answer) error {
	return func(a *driverkit.Answer) error {
		if string(a.Body) != "[]" {
			return wrong
		}
		return nil
	}
}

// begins returns the server that calls begin at.
func begins(t *testing.T, c *driverkit.HTTPClient) (at driverkit.Server) {
	t.Helper()
	expect.NoError(t, c.Try(t.Context(), driverkit.Policy{}, func(_ context.Context, s driverkit.Server) error {
		at = s
		return nil
	}))
	return at
}

// TestTryOthers has calls begin at b, which lacks what one server has, or none.
func TestTryOthers(t *testing.T) {
	t.Parallel()
	const because = "it lacks the entry"
	type row struct {
		reason  string
		has     string
		because string
		looked  []string
		begins  string
	}
	expect.Each(t, map[string]row{
		"the next one has it":    {"the last one need not be asked", "http://c", because, []string{"http://c 4"}, "http://c"},
		"the first one has it":   {"the servers are a ring, and what follows needs time, too", "http://a", because, []string{"http://c 4", "http://a 3"}, "http://a"},
		"none has it":            {"the server is as good as the others", "", because, []string{"http://c 4", "http://a 3"}, "http://b"},
		"it has it for now only": {"it may be the one that lags behind", "http://c", "", []string{"http://c 4"}, "http://b"},
	}, func(t *testing.T, tc row) {
		c := newClient(t, registry.Config{Endpoint: "http://a,http://b,http://c"}, driverkit.HTTPOptions{})
		take := func(context.Context, driverkit.Server) error { return nil }
		expect.NoError(t, c.Try(t.Context(), driverkit.Policy{After: begins(t, c), Because: "it is of no use"}, take))
		hour, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var looked []string
		err := c.Try(hour, driverkit.Policy{After: begins(t, c), Because: tc.because}, func(ctx context.Context, s driverkit.Server) error {
			deadline, _ := ctx.Deadline()
			looked = append(looked, fmt.Sprintf("%s %.0f", s, time.Hour.Seconds()/time.Until(deadline).Seconds()))
			if s.String() != tc.has {
				return errors.New("it lacks the entry, too")
			}
			return nil
		})
		if !slices.Equal(looked, tc.looked) || (err == nil) != (tc.has != "") {
			t.Errorf("looked at %q and got error %v, want %q\nreason: %s", looked, err, tc.looked, tc.reason)
		}
		expect.Equal(t, tc.begins, begins(t, c).String(), "calls begin at: %s", tc.reason)
	})
	alone := newClient(t, registry.Config{Endpoint: "http://a"}, driverkit.HTTPOptions{})
	expect.Error(t, "there is nothing to try", alone.Try(t.Context(), driverkit.Policy{After: begins(t, alone)},
		func(context.Context, driverkit.Server) error { return nil }), "no other server")
}

// TestRepeatable has a first server that is silent: a request that changes nothing leaves time for the second.
func TestRepeatable(t *testing.T) {
	t.Parallel()
	servers := []string{"http://" + registrytest.SilentAddress(t), drivertest.Answering(t, 200, nil, "")}
	c := newClient(t, registry.Config{Endpoint: strings.Join(servers, ",")}, driverkit.HTTPOptions{})
	ctx := drivertest.Within(t, 8*time.Second) // the silent server has a part of it, and the other the rest
	asked := 0
	expect.NoError(t, c.Try(ctx, driverkit.Policy{}, func(ctx context.Context, s driverkit.Server) error {
		asked++
		_, err := s.Do(ctx, driverkit.Request{Method: http.MethodPost, Repeatable: true})
		return err
	}))
	expect.Equal(t, 2, asked, "servers that were asked")
}

// cutting is a server that reads a request whole and closes its connection.
func cutting(t *testing.T) string {
	t.Helper()
	return drivertest.Serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler)
	})
}

// TestTry has a first server that fails in one way, and a second one that is well.
func TestTry(t *testing.T) {
	t.Parallel()
	const here, there = "first", "second"
	cut := strings.TrimPrefix(cutting(t), "http://")
	breaking := drivertest.Saying(t, "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n[{}")
	type row struct {
		reason string
		first  string // its address; else answer is what it says
		answer int
		method string // default: POST
		fails  bool
		next   string // where the next call begins
	}
	expect.Each(t, map[string]row{
		"refuses connections": {reason: "nothing was sent", first: registrytest.UnusedAddress(t), next: there},
		"does not resolve":    {reason: "nothing was sent", first: "registry.invalid", next: there},
		"says nonsense":       {reason: "it is no HTTP server", first: drivertest.Saying(t, "hello\r\n\r\n"), next: there},
		"500":                 {reason: "it has failed, and said so", answer: 500, next: there},
		"503":                 {reason: "it is starting, or over its limit", answer: 503, next: there},
		"cut":                 {reason: "it may still be at it", first: cut, fails: true, next: there},
		"cut, an overwrite":   {reason: "it may still be at it", first: cut, method: http.MethodPut, fails: true, next: there},
		"cut, a removal":      {reason: "it may still be at it", first: cut, method: http.MethodDelete, fails: true, next: there},
		"cut, a read":         {reason: "nothing is changed late", first: cut, method: http.MethodGet, next: there},
		"cut, a look":         {reason: "nothing is changed late", first: cut, method: http.MethodHead, next: there},
		"breaks off":          {reason: "it has acknowledged it", first: breaking, fails: true, next: here},
		"breaks off, a read":  {reason: "another one may say all of it", first: breaking, method: http.MethodGet, next: there},
		"502":                 {reason: "the call may still be under way behind a proxy", answer: 502, fails: true, next: there},
		"502, a read":         {reason: "nothing is changed late", answer: 502, method: http.MethodGet, next: there},
		"504":                 {reason: "the call may still be under way behind a proxy", answer: 504, fails: true, next: there},
		"504, a read":         {reason: "nothing is changed late", answer: 504, method: http.MethodGet, next: there},
		"524":                 {reason: "it is the 504 of another gateway", answer: 524, fails: true, next: there},
		"401":                 {reason: "another would say the same", answer: 401, fails: true, next: here},
		"429":                 {reason: "all of them are for all; it is to wait", answer: 429, fails: true, next: here},
	}, func(t *testing.T, tc row) {
		first := "http://" + tc.first
		if tc.first == "" {
			first = drivertest.Answering(t, tc.answer, nil, "")
		}
		second := drivertest.Answering(t, 200, nil, "")
		c := newClient(t, registry.Config{Endpoint: first + "," + second, Timeout: bound}, driverkit.HTTPOptions{})
		var asked []string
		call := func(ctx context.Context, s driverkit.Server) error {
			asked = append(asked, map[string]string{first: here, second: there}[s.String()])
			a, err := s.Do(ctx, driverkit.Request{Method: cmp.Or(tc.method, http.MethodPost), Limit: 100})
			if err != nil || a.OK() {
				return err
			}
			return a.Refusal("").Classified()
		}
		err := c.Try(t.Context(), driverkit.Policy{}, call)
		lands := drivertest.MayLand(err)
		if (err != nil) != tc.fails || lands != (tc.fails && tc.next == there) {
			t.Errorf("got error %v, which says that the call may still land: %t, want one: %t\nreason: %s", err, lands, tc.fails, tc.reason)
		}
		want := []string{here, there}
		if tc.fails {
			want = want[:1]
		}
		if !slices.Equal(asked, want) {
			t.Errorf("asked %v, want %v\nreason: %s", asked, want, tc.reason)
		}
		asked = nil
		if _ = c.Try(t.Context(), driverkit.Policy{}, call); asked[0] != tc.next {
			t.Errorf("the next call begins at the %s, want the %s\nreason: %s", asked[0], tc.next, tc.reason)
		}
	})
}

func TestShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hour, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		for left, want := range map[int]time.Duration{4: time.Hour / 4, 1: time.Hour} { // the last has all that is left
			part, end := driverkit.Share(hour, left)
			if deadline, _ := part.Deadline(); time.Until(deadline) != want {
				t.Errorf("one of %d that are left has %s, want %s", left, time.Until(deadline), want)
			}
			end()
		}
		part, end := driverkit.Share(t.Context(), 4)
		defer end()
		if deadline, is := part.Deadline(); is {
			t.Errorf("a share of what has no end ends at %s", deadline)
		}
	})
}

// TestSeveralServers: what one of them says of itself does not hold for all.
func TestSeveralServers(t *testing.T) {
	t.Parallel()
	_, authority := newPair(t)
	_, stranger := newPair(t)
	serve := func(of *pki.Authority) string {
		pair, err := of.Issue("server", pkix.Name{CommonName: "server"}, "127.0.0.1")
		expect.NoError(t, err)
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		server.TLS, err = of.TLSConfig(pair)
		expect.NoError(t, err)
		server.Config.ErrorLog = log.New(io.Discard, "", 0) // it reports every handshake that fails
		server.StartTLS()
		t.Cleanup(server.Close)
		return server.URL
	}
	trusted, untrusted, gone := serve(authority), serve(stranger), "https://"+registrytest.UnusedAddress(t)
	busy := func(seconds string) string {
		return drivertest.Serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", seconds)
			w.WriteHeader(http.StatusServiceUnavailable)
		})
	}
	well, away := drivertest.Serve(t, func(http.ResponseWriter, *http.Request) {}), "http://"+registrytest.UnusedAddress(t)
	classified := func(answer *driverkit.Answer, err error) error {
		if err == nil && !answer.OK() {
			err = answer.Refusal("").Classified()
		}
		return err
	}
	get := driverkit.Request{Method: http.MethodGet}
	do := func(c *driverkit.HTTPClient) error { return classified(c.Do(t.Context(), get)) }
	try := func(c *driverkit.HTTPClient) error {
		return c.Try(t.Context(), driverkit.Policy{}, func(ctx context.Context, s driverkit.Server) error { return classified(s.Do(ctx, get)) })
	}
	for name, tc := range map[string]struct {
		reason          string
		call            func(*driverkit.HTTPClient) error
		servers         []string
		fails, terminal bool
		after           time.Duration
	}{
		"a bad certificate":        {"nothing was sent, and another server may take it", do, []string{untrusted, trusted}, false, false, 0},
		"only bad certificates":    {"a person has to act", do, []string{untrusted, untrusted + "/b"}, true, true, 0},
		"bad, and away":            {"the other comes back", do, []string{untrusted, gone}, true, false, 0},
		"tried, a single bad one":  {"a person has to act", try, []string{untrusted}, true, true, 0},
		"tried, only bad ones":     {"a person has to act", try, []string{untrusted, untrusted + "/b"}, true, true, 0},
		"tried, bad, and away":     {"the other comes back", try, []string{untrusted, gone}, true, false, 0},
		"tried, away, and bad":     {"the other comes back", try, []string{gone, untrusted}, true, false, 0},
		"one that is busy":         {"there is no other to go to", do, []string{busy("60")}, true, false, time.Minute},
		"busy, and well":           {"the next call goes to the other", do, []string{busy("60"), well}, true, false, 0},
		"all are tried, one away":  {"it may be back sooner", try, []string{busy("60"), away}, true, false, 0},
		"all are tried, both busy": {"the first that is ready suffices", try, []string{busy("3600"), busy("60")}, true, false, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := registry.Config{Endpoint: strings.Join(tc.servers, ",")}
			if strings.HasPrefix(config.Endpoint, "https://") {
				config.TLS.CAFile = authority.CertFile
			}
			err := tc.call(newClient(t, config, driverkit.HTTPOptions{}))
			after, _ := registry.RetryAfterOf(err)
			if (err != nil) != tc.fails || (registry.CodeOf(err) == registry.CodeTerminal) != tc.terminal || after != tc.after {
				t.Errorf("got error %v, terminal: %t, after %s, want one: %t, terminal: %t, after %s\nreason: %s",
					err, registry.CodeOf(err) == registry.CodeTerminal, after, tc.fails, tc.terminal, tc.after, tc.reason)
			}
			field, _ := registry.FieldOf(err)
			if (field == "tls.caFile") != tc.terminal || strings.Contains(fmt.Sprint(err), "\n") {
				t.Errorf("got error %v of field %q, want one line\nreason: %s", err, field, tc.reason)
			}
			for _, server := range tc.servers {
				if strings.HasPrefix(name, "tried") && !strings.Contains(err.Error(), "no answer from "+server+": ") {
					t.Errorf("the error does not tell of %s: %v", server, err)
				}
			}
		})
	}
}

// TestTryKeepsATimeOut has a server that is silent: the call may still be made there, so it is made nowhere else.
func TestTryKeepsATimeOut(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]struct {
		with func(context.Context) (context.Context, context.CancelFunc)
		next int
	}{
		"time-out": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 2*time.Second) // the request is on its way by then
		}, 1},
		"cancelled": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(50*time.Millisecond, cancel)
			return ctx, cancel
		}, 0},
	} {
		servers := []string{"http://" + registrytest.SilentAddress(t), drivertest.Answering(t, 200, nil, "")}
		c := newClient(t, registry.Config{Endpoint: strings.Join(servers, ",")}, driverkit.HTTPOptions{})
		ctx, cancel := end.with(t.Context())
		var asked []string
		err := c.Try(ctx, driverkit.Policy{}, func(ctx context.Context, s driverkit.Server) error {
			asked = append(asked, s.String())
			_, err := s.Do(ctx, driverkit.Request{Method: http.MethodPost})
			return err
		})
		cancel()
		if !errors.Is(err, ctx.Err()) || !slices.Equal(asked, servers[:1]) {
			t.Errorf("%s: got error %v at %v, want the context's, and nothing sent elsewhere", name, err, asked)
		}
		if next := begins(t, c).String(); next != servers[end.next] {
			t.Errorf("%s: the next call begins at server %s, want %s", name, next, servers[end.next])
		}
	}
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	clientPair, authority := newPair(t)
	strangerPair, stranger := newPair(t)
	serverPair, err := authority.Issue("server", pkix.Name{CommonName: "server"}, "localhost", "127.0.0.1")
	expect.NoError(t, err)
	with := func(pair pki.KeyPair) registry.TLS {
		return registry.TLS{CAFile: authority.CertFile, CertFile: pair.CertFile, KeyFile: pair.KeyFile}
	}
	type row struct {
		reason     string
		tls        registry.TLS
		serverName string
		oldest     uint16
		field      string // of the terminal error; "": success
	}
	expect.Each(t, map[string]row{
		"right":            {reason: "the plain case", tls: with(clientPair)},
		"TLS 1.2":          {reason: "older servers have it", tls: with(clientPair), oldest: tls.VersionTLS12},
		"right name":       {reason: "the certificate has it", tls: with(clientPair), serverName: "localhost"},
		"another name":     {reason: "another server may answer there", tls: with(clientPair), serverName: "other", field: "endpoint"},
		"no certificate":   {reason: "the server asks for one", tls: registry.TLS{CAFile: authority.CertFile}, field: "tls.certFile"},
		"of a stranger":    {reason: "the server does not know the authority", tls: with(strangerPair), field: "tls.certFile"},
		"untrusted server": {reason: "another server may answer there", tls: registry.TLS{CAFile: stranger.CertFile}, field: "tls.caFile"},
	}, func(t *testing.T, tc row) {
		config, err := authority.TLSConfig(serverPair)
		expect.NoError(t, err)
		config.ClientAuth, config.ClientCAs, config.MaxVersion = tls.RequireAndVerifyClientCert, config.RootCAs, tc.oldest
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		server.TLS, server.EnableHTTP2 = config, true
		server.Config.ErrorLog = log.New(io.Discard, "", 0) // it reports every handshake that fails
		server.StartTLS()
		t.Cleanup(server.Close)
		c := newClient(t, registry.Config{Endpoint: server.URL, TLS: tc.tls}, driverkit.HTTPOptions{ServerName: tc.serverName})
		// With TLS 1.3 a server refuses a certificate when the request is on its way, and what it says of it can be lost.
		for deadline := time.Now().Add(bound); ; {
			_, err = within(t.Context(), c, driverkit.Request{})
			if err == nil || registry.CodeOf(err) == registry.CodeTerminal || time.Now().After(deadline) {
				break
			}
		}
		field, _ := registry.FieldOf(err)
		if (err == nil) != (tc.field == "") || err != nil && registry.CodeOf(err) != registry.CodeTerminal || field != tc.field {
			t.Errorf("got error %v of field %q, want a terminal one of %q\nreason: %s", err, field, tc.field, tc.reason)
		}
	})
}

// TestConnectionsAreUsedAgain has 64 workers make calls at once, as the controller does.
func TestConnectionsAreUsedAgain(t *testing.T) {
	t.Parallel()
	const workers, callsEach = 64, 10
	type row struct {
		reason string
		status int
		body   string
	}
	expect.Each(t, map[string]row{
		"with no body":    {"the usual acknowledgement", 204, ""},
		"with a body":     {"what is not read of it would cost the connection", 200, strings.Repeat("x", 20_000)},
		"with an error":   {"a registry in trouble has no use for new connections", 503, "busy"},
		"with a 503 page": {"a registry in trouble has no use for new connections", 503, strings.Repeat("x", 20_000)},
	}, func(t *testing.T, answer row) {
		var opened atomic.Int64
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(answer.status)
			_, _ = io.WriteString(w, answer.body)
		}))
		server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				opened.Add(1)
			}
		}
		server.Start()
		t.Cleanup(server.Close)
		c := newClient(t, registry.Config{Endpoint: server.URL}, driverkit.HTTPOptions{})
		var all sync.WaitGroup
		for worker := range workers {
			all.Go(func() {
				for range callsEach {
					if _, err := within(t.Context(), c, driverkit.Request{}); (err == nil) != (answer.status <= 299) {
						t.Errorf("worker %d: got error %v of status %d", worker, err, answer.status)
					}
				}
			})
		}
		all.Wait()
		// On a busy machine the transport gives one up now and then: its own writer was not heard of in time.
		if n := opened.Load(); n > 2*workers {
			t.Errorf("%d calls of %d workers opened %d connections, want about %d\nreason: %s",
				workers*callsEach, workers, n, workers, answer.reason)
		}
	})
}

func TestCheckInstance(t *testing.T) {
	t.Parallel()
	for says, spoil := range map[string]func(*registry.Instance){
		"":              func(*registry.Instance) {},
		"no service":    func(in *registry.Instance) { in.Service = "" },
		"no address":    func(in *registry.Instance) { in.Address = "" },
		"no cluster":    func(in *registry.Instance) { in.Cluster = "" },
		"no namespace":  func(in *registry.Instance) { in.Namespace = "" },
		"no pod":        func(in *registry.Instance) { in.Pod = "" },
		"no uid":        func(in *registry.Instance) { in.UID = "" },
		"port 0":        func(in *registry.Instance) { in.Port = 0 },
		"port 65536":    func(in *registry.Instance) { in.Port = 65536 },
		`"pod.local"`:   func(in *registry.Instance) { in.Address = "pod.local" },
		`"::"`:          func(in *registry.Instance) { in.Address = "::" },
		`"fe80::1%lo0"`: func(in *registry.Instance) { in.Address = "fe80::1%lo0" },
	} {
		in := registry.Instance{Service: "web", Address: "fd00::1", Port: 80, Cluster: "a", Namespace: "b", Pod: "c", UID: "d"}
		spoil(&in)
		err := driverkit.CheckInstance(in)
		if (err != nil) != (says != "") || (registry.CodeOf(err) == registry.CodeTerminal) != (says != "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("got error %v, want a terminal one with %q", err, says)
		}
	}
}

func TestErrorsSayWhatWasBeingDone(t *testing.T) {
	t.Parallel()
	in := registry.Instance{Service: "web", Address: "10.0.0.1", Port: 80}
	refused := registry.Terminal(errors.New("refused"))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	list := func(context.Context, string) ([]registry.Entry, error) { return nil, refused }
	_, listed := driverkit.List(t.Context(), "prod", list)
	_, unnamed := driverkit.List(t.Context(), "", list)
	var changes []registry.Change
	for _, state := range []registry.State{registry.InService, registry.OutOfService, registry.Absent} {
		changes = append(changes, registry.Change{Instance: in, State: state})
	}
	changed := driverkit.Batch(t.Context(), changes, func(c registry.Change) (registry.Change, error) { return c, refused }, nil)
	there := in
	there.Place = "shop"
	for want, err := range map[string]error{
		"registering web at 10.0.0.1:80: refused":   changed[0],
		"taking out web at 10.0.0.1:80: refused":    changed[1],
		"deregistering web at 10.0.0.1:80: refused": changed[2],
		"renewing web at 10.0.0.1:80: refused":      driverkit.CallError(t.Context(), "renewing", in, refused),
		"renewing shop/web at 10.0.0.1:80: refused": driverkit.CallError(t.Context(), "renewing", there, refused),
		`listing cluster "prod": refused`:           listed,
		"listing a cluster: it has no name":         unnamed,
	} {
		if err == nil || err.Error() != want || registry.CodeOf(err) != registry.CodeTerminal {
			t.Errorf("got error %v, want a terminal one: %s", err, want)
		}
	}
	late := driverkit.CallError(ended, "renewing", in, refused)
	if want := "renewing web at 10.0.0.1:80: context canceled: refused"; fmt.Sprint(late) != want || registry.CodeOf(late) == registry.CodeTerminal {
		t.Errorf("got error %v, want %s, and no class of its own", late, want)
	}
	if err := driverkit.CallError(ended, "renewing", in, nil); err != nil {
		t.Errorf("got error %v of a call that was acknowledged", err)
	}
}
