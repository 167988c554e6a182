package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// apiProxy stands between one manager and the API server. It journals the patches of pods, knows whether the manager
// holds the lease, and can keep its writes back.
type apiProxy struct {
	manager string
	journal *journal
	server  *http.Server
	url     string

	mu      sync.Mutex
	fenced  bool
	renewed time.Time // when the manager last wrote the lease
}

func startAPIProxy(ctx context.Context, manager string, config *rest.Config, j *journal) (*apiProxy, error) {
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("the API server's address: %w", err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	p := &apiProxy{manager: manager, journal: j}
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
		return nil, fmt.Errorf("listening for manager %s: %w", manager, err)
	}
	p.url = "http://" + listener.Addr().String()
	p.server = &http.Server{Handler: p.handler(reverse), ReadHeaderTimeout: time.Minute, ErrorLog: quiet}
	go func() { _ = p.server.Serve(listener) }() // until Stop
	return p, nil
}

func (p *apiProxy) Stop() { _ = p.server.Close() }

// kubeconfig writes a kubeconfig that leads through the proxy.
func (p *apiProxy) kubeconfig(path string) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["proxy"] = &clientcmdapi.Cluster{Server: p.url}
	config.Contexts["proxy"] = &clientcmdapi.Context{Cluster: "proxy"}
	config.CurrentContext = "proxy"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("writing the kubeconfig of manager %s: %w", p.manager, err)
	}
	return nil
}

// fence keeps every write back from now on, until lift: what the manager began is never done.
func (p *apiProxy) fence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fenced = true
}

func (p *apiProxy) lift() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fenced = false
}

// leaseRenewed is when the manager last wrote the lease; zero where it never did.
func (p *apiProxy) leaseRenewed() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.renewed
}

type patchKey struct{}

func (p *apiProxy) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		p.mu.Lock()
		fenced := p.fenced
		p.mu.Unlock()
		if fenced {
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		}
		resource, name := parsePath(r.URL.Path)
		ctx := r.Context()
		if resource == "pods" && r.Method == http.MethodPatch {
			entry := p.journal.patchReceived(p.manager, name, string(body), time.Now())
			// The answer is wanted even where the manager is dead by then. A context that can't be cancelled would have the
			// proxy watch the connection instead.
			outliving, cancel := context.WithCancel(context.WithoutCancel(ctx))
			defer cancel()
			ctx = context.WithValue(outliving, patchKey{}, entry)
			defer func() { p.journal.patchUnanswered(entry, time.Now()) }()
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// answered writes the API server's answer down.
func (p *apiProxy) answered(response *http.Response) error {
	request := response.Request
	if resource, _ := parsePath(request.URL.Path); resource == "leases" && request.Method != http.MethodGet &&
		response.StatusCode/100 == 2 {
		p.mu.Lock()
		p.renewed = time.Now()
		p.mu.Unlock()
	}
	entry, ok := request.Context().Value(patchKey{}).(*patch)
	if !ok {
		return nil
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("reading the API server's answer: %w", err)
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	p.journal.patchFinished(entry, response.StatusCode, versionOf(response, body), time.Now())
	return nil
}

// versionOf reads the resource version out of an answer that holds a pod, in JSON or protobuf.
func versionOf(response *http.Response, body []byte) uint64 {
	if response.StatusCode != http.StatusOK {
		return 0
	}
	var text string
	if strings.HasPrefix(response.Header.Get("Content-Type"), "application/json") {
		var object struct {
			Metadata struct {
				ResourceVersion string `json:"resourceVersion"`
			} `json:"metadata"`
		}
		_ = json.Unmarshal(body, &object) // then there is no version
		text = object.Metadata.ResourceVersion
	} else if object, _, err := clientgoscheme.Codecs.UniversalDeserializer().Decode(body, nil, nil); err == nil {
		if pod, ok := object.(*corev1.Pod); ok {
			text = pod.ResourceVersion
		}
	}
	version, _ := strconv.ParseUint(text, 10, 64)
	return version
}

// parsePath takes /api/v1/namespaces/NS/RESOURCE/NAME or /apis/GROUP/VERSION/namespaces/NS/RESOURCE/NAME apart.
func parsePath(path string) (resource string, name podName) {
	_, rest, _ := strings.Cut(path, "/namespaces/")
	parts := append(strings.Split(rest, "/"), "", "", "")
	return parts[1], podName{namespace: parts[0], name: parts[2]}
}
