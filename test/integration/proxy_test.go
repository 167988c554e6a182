package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// apiProxy stands between a manager and the API server. It writes down every write, and can hold back the writes to a
// namespace's pods or lose their answers.
type apiProxy struct {
	server *http.Server
	url    string

	mu     sync.Mutex
	writes []*write
	gates  []*gate
	losses map[string]int
	// watching ends the watches that are open, and without is closed once new ones are let through again.
	watching context.Context
	cut      context.CancelFunc
	without  chan struct{}
	expired  int
}

// write is one request of a manager that changes something.
type write struct {
	method, resource, namespace, name string
	received                          time.Time
	status                            int
	body                              string
	// pod is the API server's answer to a write to a pod.
	pod *corev1.Pod
	// lost: the answer was kept from the manager.
	lost bool
}

func (w *write) toPod() bool { return w.resource == "pods" && w.method == http.MethodPatch }

// changes is the patch without its tests and the record.
func (w *write) changes() string {
	var operations []struct{ Op, Path string }
	if err := json.Unmarshal([]byte(w.body), &operations); err != nil {
		return w.body
	}
	var text []string
	for _, o := range operations {
		if o.Op != "test" {
			text = append(text, o.Op+" "+o.Path)
		}
	}
	return strings.Join(text, ", ")
}

// gate holds the writes to the pods of a namespace back.
type gate struct {
	namespace string
	// state narrows it to patches that test for this lifecycle state; empty means all.
	state    appspub.LifecycleStateType
	released chan struct{}
	once     sync.Once
	mu       sync.Mutex
	held     int
}

func (g *gate) Release() { g.once.Do(func() { close(g.released) }) }

func (g *gate) Held() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held
}

type writeKey struct{}

func newAPIProxy(config *rest.Config) (*apiProxy, error) {
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	p := &apiProxy{losses: map[string]int{}, without: make(chan struct{})}
	p.watching, p.cut = context.WithCancel(context.Background())
	close(p.without)
	reverse := &httputil.ReverseProxy{
		Transport:      transport,
		FlushInterval:  -1,
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Header.Del("Accept-Encoding") },
		ModifyResponse: p.answered,
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p.url = "http://" + listener.Addr().String()
	p.server = &http.Server{Handler: p.handler(reverse), ReadHeaderTimeout: time.Minute}
	go func() {
		if err := p.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			panic(err)
		}
	}()
	return p, nil
}

func (p *apiProxy) Close() { _ = p.server.Close() }

// Kubeconfig writes a kubeconfig that leads through the proxy.
func (p *apiProxy) Kubeconfig(path string) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["proxy"] = &clientcmdapi.Cluster{Server: p.url}
	config.Contexts["proxy"] = &clientcmdapi.Context{Cluster: "proxy"}
	config.CurrentContext = "proxy"
	return clientcmd.WriteToFile(*config, path)
}

func (p *apiProxy) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			if r.URL.Query().Get("watch") != "" {
				watch, cancel := p.watch(r)
				defer cancel()
				r = watch
			}
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		entry := &write{method: r.Method, received: time.Now(), body: string(body)}
		entry.resource, entry.namespace, entry.name = parsePath(r.URL.Path)
		p.mu.Lock()
		p.writes = append(p.writes, entry)
		gates := slices.Clone(p.gates)
		p.mu.Unlock()
		if entry.toPod() && !pass(r.Context(), gates, entry) {
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), writeKey{}, entry)))
	})
}

// watch returns a request to watch that can be cut off, once watches are let through.
func (p *apiProxy) watch(r *http.Request) (*http.Request, context.CancelFunc) {
	p.mu.Lock()
	without, watching := p.without, p.watching
	p.mu.Unlock()
	select {
	case <-without:
	case <-r.Context().Done():
	}
	ctx, cancel := context.WithCancel(r.Context())
	stop := context.AfterFunc(watching, cancel)
	return r.WithContext(ctx), func() { stop(); cancel() }
}

// CutWatches ends the manager's watches, and holds new ones back until the function that it returns is called.
func (p *apiProxy) CutWatches() (let func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut()
	without := make(chan struct{})
	p.without = without
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.watching, p.cut = context.WithCancel(context.Background())
		close(without)
	}
}

// Expired is how many watches the API server refused to begin, or to go on with, since they were too old.
func (p *apiProxy) Expired() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.expired
}

// scanned passes a watch's events on, and looks for the one that says that it is too old.
type scanned struct {
	io.ReadCloser
	proxy *apiProxy
}

func (s scanned) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if bytes.Contains(p[:n], []byte(metav1.StatusReasonExpired)) && bytes.Contains(p[:n], []byte("too old resource version")) {
		s.proxy.mu.Lock()
		defer s.proxy.mu.Unlock()
		s.proxy.expired++
	}
	return n, err
}

// pass waits at the gates and reports whether the request still wants to go through.
func pass(ctx context.Context, gates []*gate, entry *write) bool {
	for _, g := range gates {
		if g.namespace != entry.namespace || !strings.Contains(entry.body, fmt.Sprintf("%q", g.state)) && g.state != "" {
			continue
		}
		g.mu.Lock()
		g.held++
		g.mu.Unlock()
		select {
		case <-g.released:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// answered writes the API server's answer down, and loses it where it shall.
func (p *apiProxy) answered(response *http.Response) error {
	if response.Request.URL.Query().Get("watch") != "" {
		response.Body = scanned{ReadCloser: response.Body, proxy: p}
		return nil
	}
	entry, ok := response.Request.Context().Value(writeKey{}).(*write)
	if !ok {
		return nil
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	p.mu.Lock()
	defer p.mu.Unlock()
	entry.status = response.StatusCode
	if !entry.toPod() || entry.status != http.StatusOK {
		return nil
	}
	object, _, err := clientgoscheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return err
	}
	entry.pod, _ = object.(*corev1.Pod)
	if p.losses[entry.namespace] > 0 {
		p.losses[entry.namespace]--
		entry.lost = true
		return errors.New("the answer is lost on purpose")
	}
	return nil
}

// parsePath takes /api/v1/namespaces/NS/RESOURCE/NAME or /apis/GROUP/VERSION/namespaces/NS/RESOURCE/NAME apart.
func parsePath(path string) (resource, namespace, name string) {
	_, rest, namespaced := strings.Cut(path, "/namespaces/")
	if !namespaced {
		return path, "", ""
	}
	parts := append(strings.Split(rest, "/"), "", "")
	return parts[1], parts[0], parts[2]
}

// HoldPodWrites holds back the manager's writes to the pods of a namespace until the gate is released.
func (p *apiProxy) HoldPodWrites(namespace string) *gate { return p.HoldPodWritesIn(namespace, "") }

// HoldPodWritesIn is HoldPodWrites for pods that the manager takes to be in the state.
func (p *apiProxy) HoldPodWritesIn(namespace string, state appspub.LifecycleStateType) *gate {
	g := &gate{namespace: namespace, state: state, released: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gates = append(p.gates, g)
	return g
}

// LosePodAnswers keeps the answers to the next n writes to the pods of a namespace from the manager.
func (p *apiProxy) LosePodAnswers(namespace string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.losses[namespace] = n
}

// Writes returns the manager's requests that change something in a namespace, or all of them where it is empty.
func (p *apiProxy) Writes(namespace string) []write {
	p.mu.Lock()
	defer p.mu.Unlock()
	var picked []write
	for _, w := range p.writes {
		if namespace == "" || w.namespace == namespace {
			picked = append(picked, *w)
		}
	}
	return picked
}
