package evictions

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

const (
	// lookEvery bounds how often a path or certificate that is not known is read, and lookTimeout how long that takes.
	lookEvery   = time.Second
	lookTimeout = 2 * time.Second
)

// Path lets in the API server alone. The webhook causes deletions of pods, and anyone in the cluster may reach it, while the API server
// does not identify itself unless its own configuration file tells it to. So the path that it calls is a secret, which is in the
// webhook configuration: tenants may not read that. Every manager reads it. It is safe for concurrent use.
type Path struct {
	// Server reads from the API server.
	Server client.Reader
	// Name is that of the MutatingWebhookConfiguration.
	Name   string
	Clock  clock.PassiveClock
	Logger logr.Logger

	paths atomic.Pointer[[]string]
	looks looks
}

// looks are those at the API server for what is not known here yet.
type looks struct {
	// looking is held during a look, for which nothing that is known waits, and looked is when the last one ended.
	looking sync.Mutex
	looked  time.Time
}

// until reads, not too often, unless it is known.
func (l *looks) until(ctx context.Context, clock clock.PassiveClock, known func() bool, read func(context.Context) error) error {
	if known() {
		return nil
	}
	l.looking.Lock()
	defer l.looking.Unlock()
	if known() || clock.Since(l.looked) < lookEvery {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
	defer cancel()
	defer func() { l.looked = clock.Now() }()
	return read(ctx)
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*Path) NeedLeaderElection() bool { return false }

// Start reads the path until ctx ends, so that one which was replaced is not answered any more.
func (p *Path) Start(ctx context.Context) error {
	return repeat(p.Logger, "failed to read the path of the eviction webhook", p.read)(ctx)
}

// Guard answers 404 where the path is not one that the webhook configuration has.
func (p *Path) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !p.opens(r.Context(), r.URL.Path) {
			http.NotFound(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// opens reads the webhook configuration where it does not know the path: the leader may just have written it.
func (p *Path) opens(ctx context.Context, path string) bool {
	if err := p.looks.until(ctx, p.Clock, func() bool { return p.knows(path) }, p.read); err != nil {
		p.Logger.Error(err, "failed to read the path of the eviction webhook")
	}
	return p.knows(path)
}

func (p *Path) read(ctx context.Context) error {
	var configuration admissionv1.MutatingWebhookConfiguration
	if err := p.Server.Get(ctx, client.ObjectKey{Name: p.Name}, &configuration); err != nil {
		return err
	}
	var paths []string
	for _, w := range configuration.Webhooks {
		if path := pathOf(w.ClientConfig); path != "" {
			paths = append(paths, path)
		}
	}
	p.paths.Store(&paths)
	return nil
}

func (p *Path) knows(path string) bool {
	paths := p.paths.Load()
	return paths != nil && slices.ContainsFunc(*paths, func(known string) bool {
		return subtle.ConstantTimeCompare([]byte(known), []byte(path)) == 1
	})
}

// pathOf returns the path that the API server calls, empty if the webhook has none of its own.
func pathOf(c admissionv1.WebhookClientConfig) string {
	switch {
	case c.Service != nil:
		return ptr.Deref(c.Service.Path, "")
	case c.URL != nil:
		if u, err := url.Parse(*c.URL); err == nil {
			return u.Path
		}
	}
	return ""
}

// IssuePath gives the webhook configuration of the name a path where it has none, until the context ends. Only the leader does.
func IssuePath(server client.Client, name string, logger logr.Logger) manager.RunnableFunc {
	return repeat(logger, "failed to keep the path of the eviction webhook", func(ctx context.Context) error {
		return issuePath(ctx, server, name)
	})
}

func issuePath(ctx context.Context, server client.Client, name string) error {
	return change(ctx, server, name, "service/path", func(c admissionv1.WebhookClientConfig) any {
		if c.Service == nil || c.Service.Path != nil {
			return nil
		}
		return "/" + strings.ToLower(rand.Text()) // capital letters are refused
	})
}
