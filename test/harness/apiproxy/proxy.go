// Package apiproxy stands between a manager and the API server: it sees what the manager writes, holds it back, loses its
// answers, and cuts its watches.
package apiproxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metascheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/rollcall-dev/rollcall/test/harness/account"
)

// Observer sees a write before the proxy passes it on. The function that it returns, unless nil, sees the answer before the
// manager does; a Status of 0 says that there is none.
type Observer func(Write) (answered func(Write))

// Proxy is one manager's way to the API server.
type Proxy struct {
	// URL is where it listens.
	URL string

	server  *http.Server
	observe Observer

	mu      sync.Mutex
	fenced  bool
	renewed time.Time
	writes  []*Write
	gates   []*Gate
	// cut is closed to end the watches that are open, and uncut once new ones are let through again.
	cut, uncut chan struct{}
	expired    int
}

// Start starts a proxy that connects as the configuration says. Without an observer it keeps the writes for
// [Proxy.Writes].
func Start(ctx context.Context, config *rest.Config, observe Observer) (*Proxy, error) {
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("the API server's address: %w", err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	p := &Proxy{observe: observe, cut: make(chan struct{}), uncut: make(chan struct{})}
	close(p.uncut)
	quiet := log.New(io.Discard, "", 0)
	reverse := &httputil.ReverseProxy{
		Transport:      transport,
		FlushInterval:  -1,
		ErrorLog:       quiet,
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Header.Del("Accept-Encoding") },
		ModifyResponse: p.answered,
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for a manager: %w", err)
	}
	p.URL = "http://" + listener.Addr().String()
	p.server = &http.Server{Handler: p.handler(reverse), ReadHeaderTimeout: time.Minute, ErrorLog: quiet}
	go func() { _ = p.server.Serve(listener) }() // until Stop
	return p, nil
}

// Stop ends the proxy and all of its connections.
func (p *Proxy) Stop() { _ = p.server.Close() }

// WriteKubeconfig writes a kubeconfig that leads through the proxy.
func (p *Proxy) WriteKubeconfig(path string) error {
	return account.WriteKubeconfig(path, &rest.Config{Host: p.URL})
}

func (p *Proxy) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, done := r.Context(), func() {}
		switch {
		case strings.HasPrefix(r.URL.Path, "/apis/authorization.k8s.io/"): // a question, of which the API server keeps nothing
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			ctx, done = p.write(ctx, r)
		case r.URL.Query().Get("watch") != "":
			ctx, done = p.watch(ctx)
		}
		defer done()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// writeKey is of a request's write in its context.
type writeKey struct{}

// write lets a write pass once nothing holds it back, and drops it where the manager has gone by then.
func (p *Proxy) write(request context.Context, r *http.Request) (ctx context.Context, done func()) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	entry := &Write{Method: r.Method, Received: time.Now(), Body: string(body)}
	entry.Resource, entry.Namespace, entry.Name = parsePath(r.URL.Path)
	p.mu.Lock()
	fenced, gates := p.fenced, slices.Clone(p.gates)
	if p.observe == nil {
		p.writes = append(p.writes, entry)
	}
	p.mu.Unlock()
	if fenced {
		<-request.Done()
	}
	for _, g := range gates {
		g.pass(request, entry)
	}
	if request.Err() != nil {
		panic(http.ErrAbortHandler)
	}
	var answered func(Write)
	if p.observe != nil {
		answered = p.observe(*entry)
	}
	// The answer counts even where the manager is dead by then. A context that can't be cancelled would have the reverse
	// proxy watch the connection instead.
	ctx, cancel := context.WithCancel(context.WithoutCancel(request))
	e := &exchange{Write: entry, answered: answered}
	return context.WithValue(ctx, writeKey{}, e), func() { cancel(); e.end() }
}

// exchange is a write whose answer is to come.
type exchange struct {
	*Write

	answered func(Write)
}

// end tells the observer what came of the write, once.
func (e *exchange) end() {
	if e.answered != nil {
		e.answered(*e.Write)
	}
	e.answered = nil
}

// answered notes the API server's answer.
func (p *Proxy) answered(response *http.Response) error {
	if response.Request.URL.Query().Get("watch") != "" {
		response.Body = scanned{ReadCloser: response.Body, proxy: p}
		return nil
	}
	e, ok := response.Request.Context().Value(writeKey{}).(*exchange)
	if !ok {
		return nil
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("reading the API server's answer: %w", err)
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	p.mu.Lock()
	defer p.mu.Unlock()
	e.Status = response.StatusCode
	if e.Resource == "leases" && e.Status/100 == 2 {
		p.renewed = time.Now()
	}
	if e.ToPod() && e.Status == http.StatusOK {
		e.Pod = podOf(body)
	}
	e.end()
	return nil
}

// podOf reads an answer that is a pod, or a pod's metadata; nil where it is neither.
func podOf(body []byte) *corev1.Pod {
	object, _, err := clientgoscheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if pod, isPod := object.(*corev1.Pod); err == nil && isPod {
		return pod
	}
	object, _, err = metascheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if meta, isMeta := object.(*metav1.PartialObjectMetadata); err == nil && isMeta {
		return &corev1.Pod{ObjectMeta: meta.ObjectMeta}
	}
	return nil
}

// parsePath takes /api/v1/namespaces/NS/RESOURCE/NAME or /apis/GROUP/VERSION/namespaces/NS/RESOURCE/NAME apart. What is below
// that is part of the resource, as in roles: pods/status.
func parsePath(path string) (resource, namespace, name string) {
	_, rest, namespaced := strings.Cut(path, "/namespaces/")
	if !namespaced {
		return path, "", ""
	}
	parts := append(strings.Split(rest, "/"), "", "", "")
	resource = parts[1]
	if parts[3] != "" {
		resource += "/" + parts[3]
	}
	return resource, parts[0], parts[2]
}

// Fence drops every write from now on, or lets them through again: what the manager has begun meanwhile is never done.
func (p *Proxy) Fence(fenced bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fenced = fenced
}

// LeaseRenewed is when the manager last wrote a lease; zero where it never did.
func (p *Proxy) LeaseRenewed() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.renewed
}

// HoldPodWritesIn holds back the manager's writes to the pods of a namespace that it takes to be in the state until the gate is
// released. An empty state is any.
func (p *Proxy) HoldPodWritesIn(namespace string, state appspub.LifecycleStateType) *Gate {
	g := &Gate{namespace: namespace, state: state, released: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gates = append(p.gates, g)
	return g
}

// Writes returns the manager's requests that change something in a namespace, or all of them where it is empty.
func (p *Proxy) Writes(namespace string) []Write {
	p.mu.Lock()
	defer p.mu.Unlock()
	var picked []Write
	for _, w := range p.writes {
		if namespace == "" || w.Namespace == namespace {
			picked = append(picked, *w)
		}
	}
	return picked
}

// CutWatches ends the manager's watches, and holds new ones back until the function that it returns is called.
func (p *Proxy) CutWatches() (let func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.cut)
	uncut := make(chan struct{})
	p.uncut = uncut
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.cut = make(chan struct{})
		close(uncut)
	}
}

// watch returns the context of a watch that can be cut off, once watches are let through.
func (p *Proxy) watch(request context.Context) (ctx context.Context, done func()) {
	p.mu.Lock()
	uncut := p.uncut
	p.mu.Unlock()
	select {
	case <-uncut:
	case <-request.Done():
	}
	p.mu.Lock()
	cut := p.cut
	p.mu.Unlock()
	ctx, cancel := context.WithCancel(request)
	go func() {
		select {
		case <-cut:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// Expired is how many watches the API server refused to begin, or to go on with, since they were too old.
func (p *Proxy) Expired() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.expired
}

// scanned passes a watch's events on, and looks for the one that says that it is too old.
type scanned struct {
	io.ReadCloser

	proxy *Proxy
}

func (s scanned) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if bytes.Contains(p[:n], []byte(metav1.StatusReasonExpired)) && bytes.Contains(p[:n], []byte("too old resource version")) {
		s.proxy.mu.Lock()
		defer s.proxy.mu.Unlock()
		s.proxy.expired++
	}
	return n, err //nolint:wrapcheck // an io.Reader's
}
