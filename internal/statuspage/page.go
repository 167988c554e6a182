// Package statuspage shows what the manager knows, read-only: which pods wait and why, what each service has in rotation, and how
// each registry answers. [Build] makes a [Snapshot] of the facts; [Page] serves it as HTML, as JSON, and live.
package statuspage

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/statuspage/entries"
)

const (
	// freshFor is how long a snapshot serves every reader, however many there are.
	freshFor = time.Second
	// keepAlive is how often a stream without an event has a comment, so that no proxy takes it for dead.
	keepAlive = 15 * time.Second
	// maxStreams bounds the readers that stay.
	maxStreams = 16
)

//go:embed style.css live.js
var assets embed.FS

// Access returns why a reader may not be shown the pods of a namespace, or of all namespaces if it is empty; nothing if they may.
type Access func(r *http.Request, namespace string) (refusal string)

// Page serves the snapshot. It is safe for concurrent use.
type Page struct {
	facts   func() Facts
	access  Access
	streams chan struct{}
	ended   chan struct{}

	mu    sync.Mutex
	last  Snapshot
	made  Facts
	taken time.Time
}

// New returns a Page of what facts returns, which is called at most once a second, and only while somebody reads. Readers are shown what
// access lets them, which is called up to twice for an answer.
func New(facts func() Facts, access Access) *Page {
	return &Page{facts: facts, access: access, streams: make(chan struct{}, maxStreams), ended: make(chan struct{})}
}

// Register adds the page to a mux. All it answers is GET.
func (p *Page) Register(mux *http.ServeMux) {
	for pattern, handle := range map[string]http.HandlerFunc{
		"GET /status":             p.serveHTML,
		"GET " + entries.PagePath: p.serveJSON,
		"GET " + entries.Path:     p.serveEntries,
		"GET /status/events":      p.serveEvents,
		"GET /status/style.css":   asset("style.css"),
		"GET /status/live.js":     asset("live.js"),
	} {
		mux.Handle(pattern, guarded(handle))
	}
}

// Start ends the streams when the context does. It is a manager.Runnable: a server that shuts down waits for its streams.
func (p *Page) Start(ctx context.Context) error {
	<-ctx.Done()
	close(p.ended)
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: a manager that does not lead shows who does.
func (*Page) NeedLeaderElection() bool { return false }

// guarded makes the browser load nothing from elsewhere and run nothing that is in the page: its text comes from
// registries and from who writes pods.
func guarded(handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "+
			"form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		handle(w, r)
	}
}

func asset(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, assets, name) }
}

// current returns the snapshot, which is at most freshFor old, and what it was made from.
func (p *Page) current() (Snapshot, Facts) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); now.Sub(p.taken) >= freshFor {
		facts := p.facts()
		p.last, p.made, p.taken = Build(facts), facts, now
	}
	return p.last, p.made
}

func filterOf(r *http.Request) Filter {
	query := r.URL.Query()
	return Filter{Namespace: strings.TrimSpace(query.Get("namespace")), Text: strings.TrimSpace(query.Get("q"))}
}

// shown returns what the reader who asks is shown: all, or the pods of one namespace, or how many there are.
func (p *Page) shown(r *http.Request, f Filter) Snapshot {
	snapshot, _ := p.current()
	refusal := p.access(r, "")
	if refusal == "" {
		return snapshot.Filter(f)
	}
	snapshot = snapshot.withoutOthers()
	if f.Namespace != "" {
		if refusal = p.access(r, f.Namespace); refusal == "" {
			return snapshot.Filter(f)
		}
	}
	return snapshot.withheld(refusal)
}

func (p *Page) serveHTML(w http.ResponseWriter, r *http.Request) {
	f := filterOf(r)
	v := view{Snapshot: p.shown(r, f), filter: f, now: time.Now()}
	v.page()
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = io.WriteString(w, v.String()) // a reader who has gone needs none
}

func (p *Page) serveJSON(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, p.shown(r, filterOf(r)))
}

// serveEntries answers the kubectl plugin about every pod, of one namespace where that is named.
func (p *Page) serveEntries(w http.ResponseWriter, r *http.Request) {
	snapshot, made := p.current()
	answer := entries.Answer{
		Leads: snapshot.Manager.Leads, Pods: map[types.UID][]entries.Entry{}, Waits: map[types.UID]entries.Wait{},
		Circumstances: map[types.UID]lifecycle.Circumstances{},
	}
	namespace := r.URL.Query().Get(entries.ParameterNamespace)
	if answer.Withheld = p.access(r, ""); answer.Withheld != "" && namespace != "" {
		answer.Withheld = p.access(r, namespace)
	}
	if answer.Leads && answer.Withheld == "" {
		asked := func(of string) bool { return namespace == "" || of == namespace }
		answer.Pods = entriesOf(made.Instances, func(pod lifecycle.PodID) bool { return asked(pod.Namespace) })
		answer.Waits = waitsOf(snapshot.Pods, asked)
		for pod, under := range made.Circumstances {
			if asked(pod.Namespace) {
				answer.Circumstances[pod.UID] = under
			}
		}
	}
	writeJSON(w, answer)
}

func writeJSON(w http.ResponseWriter, answer any) {
	w.Header().Set("Content-Type", "application/json")
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	_ = out.Encode(answer) // a reader who has gone needs none
}

// serveEvents sends the content of the page immediately, and again when it has changed.
func (p *Page) serveEvents(w http.ResponseWriter, r *http.Request) {
	select {
	case p.streams <- struct{}{}:
		defer func() { <-p.streams }()
	default:
		w.Header().Set("Retry-After", "10")
		http.Error(w, fmt.Sprintf("%d readers follow the page already: reload it instead", maxStreams), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	s := &stream{page: p, writer: w, control: http.NewResponseController(w), request: r}
	ticker := time.NewTicker(freshFor)
	defer ticker.Stop()
	for s.look() == nil {
		select {
		case <-ticker.C:
		case <-r.Context().Done():
			return
		case <-p.ended:
			return
		}
	}
}

// stream is one reader that stays.
type stream struct {
	page    *Page
	writer  http.ResponseWriter
	control *http.ResponseController
	request *http.Request

	// sent is the snapshot that the reader has, and at when something was last written.
	sent []byte
	at   time.Time
}

// look sends the content if it has changed, or a comment if nothing was sent for a while.
func (s *stream) look() error {
	snapshot := s.page.shown(s.request, filterOf(s.request))
	now, err := json.Marshal(snapshot)
	switch {
	case err != nil:
		return err
	case !bytes.Equal(now, s.sent):
		s.sent = now
		v := view{Snapshot: snapshot, now: time.Now()}
		v.content()
		return s.write(event(v.String()))
	case time.Since(s.at) >= keepAlive:
		return s.write(": still here\n\n")
	default:
		return nil
	}
}

// event has each line of the content begin as the format of server-sent events wants it.
func event(content string) string {
	lines := strings.FieldsFunc(content, func(c rune) bool { return c == '\n' || c == '\r' })
	return "data: " + strings.Join(lines, "\ndata: ") + "\n\n"
}

func (s *stream) write(text string) error {
	s.at = time.Now() // the server bounds how long a reader may take
	if _, err := io.WriteString(s.writer, text); err != nil {
		return err
	}
	return s.control.Flush()
}
