package statuspage

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/orders"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/internal/resync"
	"github.com/rollcall-dev/rollcall/internal/statuspage/entries"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/test/harness/bubble"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// served is a page whose facts a test changes.
type served struct {
	*Page
	*http.ServeMux

	mu    sync.Mutex
	facts Facts
	asked int
	// withheld is why pods of a namespace, or of all if it is empty, are not shown.
	withheld map[string]string
}

func serve(facts Facts) *served {
	s := &served{ServeMux: http.NewServeMux(), facts: facts}
	s.Page = New(func() Facts {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asked++
		return s.facts
	}, func(_ *http.Request, namespace string) string { return s.withheld[namespace] })
	s.Register(s.ServeMux)
	return s
}

func (s *served) set(change func(f *Facts)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.facts)
}

// built is how often the facts were asked for.
func (s *served) built() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func (s *served) get(t *testing.T, path string) *httptest.ResponseRecorder {
	t.Helper()
	answer := httptest.NewRecorder()
	s.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	if answer.Code != http.StatusOK {
		t.Fatalf("GET %s: %d %s", path, answer.Code, answer.Body)
	}
	return answer
}

// firstEvent follows the page no longer than that.
func (s *served) firstEvent(t *testing.T, query string) *httptest.ResponseRecorder {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	answer := httptest.NewRecorder()
	s.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, "/status/events"+query, nil))
	return answer
}

func TestPage(t *testing.T) {
	t.Parallel()
	rollout := leading()
	rollout.Drivers = map[string]string{"default": "consul"}
	rollout.Version = "v1.2.3"
	rollout.Approve = "kubectl rollcall resync --approve --rollcall-namespace=two"
	rollout.Clients = map[string]registryclient.Status{"default": {Slots: 96, InUse: 3, Breaker: "open"}}
	rollout.Resyncs = map[string]resync.Status{"default": {Lists: true, Succeeded: time.Now(), Failure: "connection refused", RemovalsBlocked: true}}
	rollout.Waits = []metrics.Wait{wait("web-1", "RegistryUnavailable", time.Minute)}
	rollout.Instances = []tracker.Seen{seen("web-1", "storefront", lifecycle.OutOfService, false)}
	many := thousands(501)
	standby := Facts{Manager: Manager{Name: "rollcall-2", Leader: "rollcall-1"}}
	type row struct {
		reason string
		facts  Facts
		query  string
		shown  []string
		hidden []string
	}
	expect.Each(t, map[string]row{
		"a rollout that waits": {
			"who waits for what, since when, and how the registry does", rollout, "",
			[]string{
				"web-1", "preDelete", "blob/v1.2.3/docs/reference/reasons.md#registryunavailable", "why web-1 waits", `datetime="2026-01-02T03:03:05Z"`,
				"storefront", "10.0.0.1:80", "unacknowledged", `class="state open"`, "of 96", "The last run failed: connection refused",
				`Removals are blocked: <a href="status.json">`, "500 entries", "kubectl rollcall resync --approve --rollcall-namespace=two approves",
			},
			[]string{"does not lead", "No pod waits", "more: filter"},
		},
		"a filter that hides it": {
			"what was asked for stays in the form", rollout, "?q=other&namespace=bank",
			[]string{`value="other"`, `value="bank"`, "No pod waits", "consul"}, []string{"web-1", "storefront"},
		},
		"more than fit": {
			"what is left out is counted", many, "", []string{"1 more: filter", "501</span>"}, []string{"why web-0000 waits"},
		},
		"a manager that waits for the lease": {
			"it knows nothing and says where to look", standby, "",
			[]string{"manager rollcall-2 does", "does not lead", "<strong>rollcall-1</strong> leads"}, []string{"<table>", "No pod waits"},
		},
		"a lease that is free": {
			"there is no place to look", Facts{}, "", []string{"does not lead", "None is known to lead"}, []string{"<strong>"},
		},
	}, func(t *testing.T, tc row) {
		page := serve(tc.facts).get(t, "/status"+tc.query).Body.String()
		for _, text := range tc.shown {
			if !strings.Contains(page, text) {
				t.Errorf("the page has no %q\nreason: %s\n%s", text, tc.reason, page)
			}
		}
		for _, text := range tc.hidden {
			if strings.Contains(page, text) {
				t.Errorf("the page has %q\nreason: %s\n%s", text, tc.reason, page)
			}
		}
	})
}

// TestEntries: the kubectl plugin learns what the registries say of each pod, and of no manager but the one that leads.
func TestEntries(t *testing.T) {
	t.Parallel()
	facts := leading()
	facts.Instances = []tracker.Seen{
		seen("web-1", "web", lifecycle.InService, true), seen("web-2", "web", lifecycle.OutOfService, true),
		seen("web-2", "admin", lifecycle.InService, false),
	}
	one := func(service string, state entries.State) entries.Entry {
		return entries.Entry{Registry: "default", Service: service, Endpoint: "10.0.0.1:80", State: state}
	}
	facts.Waits = []metrics.Wait{wait("web-2", "RegistryUnavailable", time.Minute), wait("web-3", "Draining", time.Second)}
	all := entries.Answer{
		Leads: true, Pods: map[types.UID][]entries.Entry{
			"uid-of-web-1": {one("web", entries.In)}, "uid-of-web-2": {one("admin", entries.Unacknowledged), one("web", entries.Out)},
		},
		Waits: map[types.UID]entries.Wait{
			"uid-of-web-2": {Hook: "preDelete", Reason: "RegistryUnavailable", Message: "why web-2 waits", Warning: true},
			"uid-of-web-3": {Hook: "preDelete", Reason: "Draining", Message: "why web-3 waits"},
		},
		Circumstances: map[types.UID]lifecycle.Circumstances{"uid-of-web-2": {NodeLost: true}},
	}
	facts.Circumstances = map[lifecycle.PodID]lifecycle.Circumstances{seen("web-2", "web", lifecycle.InService, true).Pod: {NodeLost: true}}
	none := entries.Answer{
		Pods: map[types.UID][]entries.Entry{}, Waits: map[types.UID]entries.Wait{}, Circumstances: map[types.UID]lifecycle.Circumstances{},
	}
	others := none
	others.Leads = true
	standby := facts
	standby.Leads = false
	type row struct {
		reason string
		facts  Facts
		query  string
		want   entries.Answer
	}
	expect.Each(t, map[string]row{
		"all namespaces": {"a person asks with -A", facts, "", all},
		"one namespace":  {"its pods are asked for", facts, "?namespace=shop", all},
		"another":        {"its people need no more", facts, "?namespace=other", others},
		"one that waits": {"what it once knew says nothing", standby, "", none},
	}, func(t *testing.T, tc row) {
		var got entries.Answer
		expect.NoError(t, json.Unmarshal(serve(tc.facts).get(t, entries.Path+tc.query).Body.Bytes(), &got))
		expect.Equal(t, tc.want, got, "%s", tc.reason)
	})
}

// TestReadersSeeWhatTheyMay: who may list the pods of one namespace sees these, and of the others how many wait.
func TestReadersSeeWhatTheyMay(t *testing.T) {
	t.Parallel()
	facts := leading()
	facts.Drivers = map[string]string{"default": "consul"}
	facts.Resyncs = map[string]resync.Status{"default": {
		Lists: true, Failure: "dial tcp 10.0.8.4", RemovalsBlocked: true, Held: &orders.Held{Entries: []string{"ledger of pod bank/ledger-1"}},
	}}
	bank := wait("ledger-1", "Draining", time.Minute)
	bank.Namespace = "bank"
	facts.Waits = []metrics.Wait{wait("web-1", "Draining", time.Minute), bank}
	ledger := seen("ledger-1", "ledger", lifecycle.InService, true)
	ledger.Pod.Namespace = "bank"
	facts.Instances = []tracker.Seen{seen("web-1", "storefront", lifecycle.InService, true), ledger}
	facts.Circumstances = map[lifecycle.PodID]lifecycle.Circumstances{ledger.Pod: {NodeLost: true}}
	const noneOfAll, noneOfBank = "may not list pods in all namespaces", "may not list pods in bank"
	type row struct {
		reason        string
		withheld      map[string]string
		query         string
		shown, hidden []string
	}
	of, ofBank, texts := []string{"web-1", "storefront"}, []string{"ledger-1", "ledger"}, []string{"10.0.8.4", "bank/ledger-1"}
	tenant := map[string]string{"": noneOfAll, "bank": noneOfBank}
	expect.Each(t, map[string]row{
		"all":           {"an operator may list all pods", nil, "", slices.Concat(of, ofBank, texts[:1]), []string{"may not"}},
		"one namespace": {"a tenant sees its own", tenant, "?namespace=shop", append(of, "consul"), append(slices.Concat(ofBank, texts), "may not")},
		"another's":     {"a tenant reads another's namespace", tenant, "?namespace=bank", []string{noneOfBank, "consul"}, slices.Concat(of, ofBank, texts)},
		"none given":    {"a tenant reads without a filter", tenant, "", []string{noneOfAll, "consul"}, slices.Concat(of, ofBank, texts)},
		"a search":      {"a search can't tell what a tenant may not see", tenant, "?q=ledger", []string{noneOfAll}, slices.Concat(of, ofBank[:1], texts)},
	}, func(t *testing.T, tc row) {
		s := serve(facts)
		s.withheld = tc.withheld
		answers := map[string]string{
			"/status": s.get(t, "/status"+tc.query).Body.String(), "/status.json": s.get(t, "/status.json"+tc.query).Body.String(),
			"/status/events": s.firstEvent(t, tc.query).Body.String(),
		}
		for path, text := range answers {
			for _, word := range tc.shown {
				if !strings.Contains(text, word) {
					t.Errorf("%s has no %q: %s\n%s", path, word, tc.reason, text)
				}
			}
			for _, word := range tc.hidden {
				if strings.Contains(strings.ReplaceAll(text, `value="ledger"`, ""), word) {
					t.Errorf("%s has %q: %s\n%s", path, word, tc.reason, text)
				}
			}
		}
		var answer entries.Answer
		expect.NoError(t, json.Unmarshal(s.get(t, entries.Path+tc.query).Body.Bytes(), &answer))
		withheld := slices.Contains(tc.shown, answer.Withheld)
		_, shop := answer.Pods["uid-of-web-1"]
		_, other := answer.Pods["uid-of-ledger-1"]
		if shop == withheld || other != (tc.withheld == nil) || (len(answer.Circumstances) > 0) != other || (len(answer.Waits) > 0) == withheld {
			t.Errorf("the plugin is answered %+v: %s", answer, tc.reason)
		}
	})
}

// TestHostileText: registries and people who write pods say what the page shows, and none of it becomes part of the page.
func TestHostileText(t *testing.T) {
	t.Parallel()
	const hostile = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'`\r\n\r\nevent: forged\rdata: javascript:alert(1)"
	facts := leading()
	facts.NotReady = hostile
	facts.Drivers = map[string]string{hostile: hostile}
	facts.Resyncs = map[string]resync.Status{hostile: {Lists: true, Failure: hostile}}
	facts.Waits = []metrics.Wait{{Namespace: hostile, Pod: hostile, UID: "uid-of-" + hostile, Hook: hostile, Reason: hostile, Message: hostile}}
	facts.Instances = []tracker.Seen{seen(hostile, hostile, lifecycle.InService, true)}
	s := serve(facts)

	query := "?q=" + url.QueryEscape("<script>alert(1)</script>")
	for path, type_ := range map[string]string{"/status": "text/html; charset=utf-8", "/status" + query: "text/html; charset=utf-8", "/status.json": "application/json"} {
		answer := s.get(t, path)
		expect.Equal(t, type_, answer.Header().Get("Content-Type"), "GET %s", path)
		if path != "/status.json" {
			expectHarmless(t, path, answer.Body.String())
		} else {
			var back Snapshot
			if err := json.Unmarshal(answer.Body.Bytes(), &back); err != nil || back.Pods[0].Message != hostile {
				t.Errorf("the JSON says %+v, %v", back, err)
			}
		}
	}
	for _, path := range []string{"/status", "/status.json", "/status/live.js", "/status/style.css"} {
		header := s.get(t, path).Header()
		policy := header.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none';") || strings.Contains(policy, "unsafe") || header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("GET %s: %v", path, header)
		}
	}

	answer := s.firstEvent(t, "")
	event, rest, _ := strings.Cut(answer.Body.String(), "\n\n")
	if rest != "" || answer.Header().Get("Content-Type") != "text/event-stream" {
		t.Errorf("%v, and after the first event comes %q", answer.Header(), rest)
	}
	for line := range strings.SplitSeq(event, "\n") {
		if !strings.HasPrefix(line, "data: ") || strings.Contains(line, "\r") {
			t.Errorf("the event has the line %q", line)
		}
	}
	expectHarmless(t, "the event", event)
}

// expectHarmless reads the text as a browser does: it finds no element but the page's own, no attribute that runs, and no link
// to elsewhere but those to the reasons.
func expectHarmless(t *testing.T, what, text string) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(text))
	expect.NoError(t, err)
	for node := range root.Descendants() {
		switch node.DataAtom {
		case atom.Img, atom.Iframe, atom.Style, atom.Svg, atom.Object:
			t.Errorf("%s has the element %s", what, node.Data)
		}
		for _, a := range node.Attr {
			own := a.Val == "status/style.css" || a.Val == "status/live.js" || strings.HasPrefix(a.Val, reason.Reason("").Page(""))
			if strings.HasPrefix(a.Key, "on") || a.Key == "style" || (a.Key == "href" || a.Key == "src" || a.Key == "action") && !own {
				t.Errorf("%s has the attribute %s=%q at %s", what, a.Key, a.Val, node.Data)
			}
		}
		if node.DataAtom == atom.Script && node.FirstChild != nil {
			t.Errorf("%s has the script %s", what, node.FirstChild.Data)
		}
	}
}

// reader follows the page in a bubble of synctest.
type reader struct {
	*httptest.ResponseRecorder

	mu    sync.Mutex
	leave context.CancelFunc
	gone  chan struct{}
}

// Write implements http.ResponseWriter.
func (r *reader) Write(text []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ResponseRecorder.Write(text)
}

// WriteString implements io.StringWriter.
func (r *reader) WriteString(text string) (int, error) { return r.Write([]byte(text)) }

func (r *reader) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Body.String()
}

func (s *served) follow(t *testing.T) *reader {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &reader{ResponseRecorder: httptest.NewRecorder(), leave: cancel, gone: make(chan struct{})}
	go func() {
		defer close(r.gone)
		s.ServeHTTP(r, httptest.NewRequestWithContext(ctx, http.MethodGet, "/status/events", nil))
	}()
	synctest.Wait()
	return r
}

// expect expects so many events and comments since the stream began.
func (r *reader) expect(t *testing.T, why string, events, comments int) {
	t.Helper()
	synctest.Wait()
	var gotEvents, gotComments int
	for block := range strings.SplitSeq(strings.TrimSpace(r.text()), "\n\n") {
		switch {
		case strings.HasPrefix(block, "data: "):
			gotEvents++
		case strings.HasPrefix(block, ": "):
			gotComments++
		}
	}
	if gotEvents != events || gotComments != comments {
		t.Errorf("%d events and %d comments, want %d and %d: %s", gotEvents, gotComments, events, comments, why)
	}
}

func TestEventStream(t *testing.T) {
	t.Parallel()
	bubble.Scenes(t, map[string]func(t *testing.T){
		"sends what changes, and a comment in between": func(t *testing.T) {
			s := serve(leading())
			r := s.follow(t)
			r.expect(t, "a reader has the content at once", 1, 0)
			time.Sleep(10 * time.Second)
			r.expect(t, "nothing has changed", 1, 0)
			for i := range 5 {
				s.set(func(f *Facts) { f.Waits = append(f.Waits, wait("web-1", "Draining", time.Duration(i))) })
				time.Sleep(100 * time.Millisecond)
			}
			time.Sleep(time.Second)
			r.expect(t, "changes within a second go together", 2, 0)
			time.Sleep(50 * time.Second)
			r.expect(t, "a comment comes every 15 s", 2, 3)
			other := s.follow(t)
			before := s.built()
			time.Sleep(10 * time.Second)
			if n := s.built() - before; n > 11 {
				t.Errorf("two readers had the facts gathered %d times in 10 s, want once a second", n)
			}
			r.leave()
			<-r.gone
			other.leave()
			<-other.gone
		},
		"ends with the manager": func(t *testing.T) {
			s := serve(leading())
			working, stop := context.WithCancel(t.Context())
			go func() { _ = s.Start(working) }()
			r := s.follow(t)
			stop()
			<-r.gone
			<-s.follow(t).gone // nor does one stay that comes late
		},
		"is bounded": func(t *testing.T) {
			s := serve(leading())
			var readers []*reader
			for range maxStreams {
				readers = append(readers, s.follow(t))
			}
			refused := s.follow(t)
			<-refused.gone
			if refused.Code != http.StatusServiceUnavailable || refused.Header().Get("Retry-After") == "" {
				t.Errorf("one reader too many gets %d %v", refused.Code, refused.Header())
			}
			readers[0].leave()
			<-readers[0].gone
			readers[0] = s.follow(t)
			readers[0].expect(t, "a place has come free", 1, 0)
			for _, r := range readers {
				r.leave()
				<-r.gone
			}
		},
	})
}

// TestEventStreamOutlastsTheLimitsOfAServer: a server's limit for reading a request must not end a reader that stays.
func TestEventStreamOutlastsTheLimitsOfAServer(t *testing.T) {
	t.Parallel()
	s := serve(leading())
	server := httptest.NewUnstartedServer(s.ServeMux)
	server.Config.ReadTimeout = 200 * time.Millisecond // less than from one event to the next
	server.Start()
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/status/events", nil)
	expect.NoError(t, err)
	var answer *http.Response
	expect.Soon(t, "the request to be read within the limit", func() (err error) {
		answer, err = server.Client().Do(request) //nolint:bodyclose // it is closed below
		return err
	})
	defer answer.Body.Close()
	changed := sync.OnceFunc(func() { s.set(func(f *Facts) { f.Waits = []metrics.Wait{wait("web-1", "Draining", 0)} }) })
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		changed()
		if strings.Contains(lines.Text(), "web-1") {
			return
		}
	}
	t.Errorf("the stream ended before the second event: %v", lines.Err())
}
