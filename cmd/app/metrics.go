package app

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/statuspage"
)

// metricsFlags are those of the server that has /metrics and the status page.
type metricsFlags struct {
	address string
	secure  bool
	certDir string
}

func (f *metricsFlags) bind(set *flag.FlagSet) {
	set.StringVar(&f.address, "metrics-bind-address", ":8080",
		"the `address` of /metrics, over plain HTTP unless --metrics-secure is set; 0 turns it off")
	set.BoolVar(&f.secure, "metrics-secure", false,
		"serve the metrics and the status page over HTTPS, and only to clients that the API server allows to get the path; needs the right to "+
			"create tokenreviews and subjectaccessreviews")
	set.StringVar(&f.certDir, "metrics-cert-dir", "",
		"the `folder` of tls.crt and tls.key for --metrics-secure, which the manager reads again when they change; without it the manager "+
			"signs a certificate itself at each start")
}

func (f *metricsFlags) check() error {
	switch {
	case f.secure && f.address == off:
		return errors.New("--metrics-secure needs an address: set --metrics-bind-address, :8443 for example")
	case f.certDir != "" && !f.secure:
		return errors.New("--metrics-cert-dir is for --metrics-secure: set that too, or leave it out")
	default:
		return nil
	}
}

// newMetricsServer serves the metrics of this manager and those of controller-runtime, which are the process's, and the status
// page if that is on.
func (a *app) newMetricsServer(own *prometheus.Registry, page *statuspage.Page) (served, error) {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(
		prometheus.Gatherers{ctrlmetrics.Registry, own},
		promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError, MaxRequestsInFlight: maxScrapes}))
	if a.features.StatusPage {
		page.Register(mux)
	}
	if !a.flags.metrics.secure {
		return served{handler: atMost(maxReaders, mux)}, nil
	}
	var server served
	if err := server.certify(a.flags.metrics.certDir); err != nil {
		return served{}, err
	}
	server.handler = newReaders(atMost(maxReaders, mux), a.direct, a.logger.WithName("metrics"), a.options.version)
	return server, nil
}

// certify takes the certificate of a folder, or makes one.
func (s *served) certify(dir string) error {
	if dir == "" {
		certificate, key, err := certutil.GenerateSelfSignedCertKey("localhost", nil, nil)
		if err != nil {
			return fmt.Errorf("--metrics-secure: making a certificate: %w", err)
		}
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil {
			return fmt.Errorf("--metrics-secure: reading the certificate that was made: %w", err)
		}
		s.certificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }
		return nil
	}
	watcher, err := certwatcher.New(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		return fmt.Errorf("--metrics-cert-dir: %w", err)
	}
	s.certificate, s.runnables = watcher.GetCertificate, []manager.Runnable{watcher}
	return nil
}

// maxReaders are answered at a time, and maxScrapes of the metrics: an answer is made in memory, and a reader may be slow.
const (
	maxReaders = 64
	maxScrapes = 8
)

const (
	// admittedFor is for how long a reader is not asked about again, and reviewTimeout bounds the questions.
	admittedFor   = time.Minute
	reviewTimeout = 10 * time.Second
	// refusalLasts is for how long a reader is refused without asking again. It is short, since a right may just be on its way.
	refusalLasts = 10 * time.Second
	// maxReviews are under way at a time, and maxToken is how many bytes a token has that is worth a question.
	maxReviews = 4
	maxToken   = 16 << 10
	// Each address of readers may ask about reviewBurst tokens that were not admitted, and one more each reviewEvery; maxAddresses are
	// remembered.
	reviewBurst  = 10
	reviewEvery  = 2 * time.Second
	maxAddresses = 1000
)

// readers lets those through whom the API server lets get the path: it knows whose a bearer token is, and what they may do.
// controller-runtime has a filter for that too, with which the API server's own packages come: a fifth of the program.
type readers struct {
	next   http.Handler
	server client.Client
	logger logr.Logger
	// version chooses the page that a refusal refers to.
	version           string
	admitted, refused *cache.Expiring
	// underWay bounds the questions, and strangers how many of them one address causes, by a [flowcontrol.PassiveRateLimiter] each.
	underWay  chan struct{}
	strangers *lru.Cache
}

func newReaders(next http.Handler, server client.Client, logger logr.Logger, version string) *readers {
	return &readers{
		next: next, server: server, logger: logger, version: version, admitted: cache.NewExpiring(), refused: cache.NewExpiring(),
		underWay: make(chan struct{}, maxReviews), strangers: lru.New(maxAddresses),
	}
}

// reader is a token, what it asks for, and whom the answer is about.
type reader struct{ token, verb, path string }

// answer is what a reader is answered who is not let through.
type answer struct {
	text string
	code int
}

func (s *readers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") || token == "" {
		http.Error(w, "send the token of a ServiceAccount, as Authorization: Bearer", http.StatusUnauthorized)
		return
	}
	if len(token) > maxToken {
		http.Error(w, "the token is too long", http.StatusUnauthorized)
		return
	}
	verb := strings.ToLower(r.Method)
	if refused := s.admit(r, reader{fmt.Sprintf("%x", sha256.Sum256([]byte(token))), verb, r.URL.Path}, token); refused.code != 0 {
		if refused.code == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", fmt.Sprint(int(reviewEvery.Seconds())))
		}
		http.Error(w, refused.text, refused.code)
		return
	}
	ctx, end := context.WithCancel(r.Context())
	defer end()
	// A stream stays open, and a right may be revoked meanwhile.
	again := time.AfterFunc(admittedFor, func() { s.endUnlessAdmitted(ctx, end, token, verb, r.URL.Path) })
	defer again.Stop()
	s.next.ServeHTTP(w, r.WithContext(ctx))
}

// admit asks the API server about a reader who was not asked about a short while ago.
func (s *readers) admit(r *http.Request, of reader, token string) (refused answer) {
	if _, known := s.admitted.Get(of); known {
		return answer{}
	}
	if before, known := s.refused.Get(of); known {
		refused, _ = before.(answer)
		return refused
	}
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	if !s.stranger(host).TryAccept() {
		return answer{"too many tokens from " + host + " that are not known: try again soon", http.StatusTooManyRequests}
	}
	select {
	case s.underWay <- struct{}{}:
		defer func() { <-s.underWay }()
	default:
		return answer{"too many readers are being asked about: try again soon", http.StatusTooManyRequests}
	}
	refusal, code, err := s.review(r.Context(), token, of.verb, of.path)
	switch {
	case err != nil:
		s.logger.Error(err, "failed to ask the API server who may read the metrics")
		return answer{refusal, code}
	case code != http.StatusOK:
		refused = answer{refusal, code}
		s.refused.Set(of, refused, refusalLasts)
		return refused
	}
	s.admitted.Set(of, true, admittedFor)
	return answer{}
}

// stranger bounds the questions about readers from an address.
func (s *readers) stranger(host string) flowcontrol.PassiveRateLimiter {
	if known, is := s.strangers.Get(host); is {
		if limiter, is := known.(flowcontrol.PassiveRateLimiter); is {
			return limiter
		}
	}
	limiter := flowcontrol.NewTokenBucketPassiveRateLimiter(float32(time.Second)/float32(reviewEvery), reviewBurst)
	s.strangers.Add(host, limiter)
	return limiter
}

// endUnlessAdmitted ends a request that has outlasted its admission once its reader is not admitted again, or it can't be known.
func (s *readers) endUnlessAdmitted(ctx context.Context, end context.CancelFunc, token, verb, path string) {
	defer end()
	for ctx.Err() == nil {
		_, code, err := s.review(ctx, token, verb, path)
		if err != nil && ctx.Err() == nil {
			s.logger.Error(err, "failed to ask the API server whether the reader of a stream may still read it: the stream ends")
		}
		if code != http.StatusOK {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(admittedFor):
		}
	}
}

// review returns StatusOK, or what the reader is answered.
func (s *readers) review(ctx context.Context, token, verb, path string) (refusal string, code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	const unasked = "the API server did not answer who may read this: see the manager's log"
	who := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	switch err := s.server.Create(ctx, who); {
	case err != nil:
		return unasked, http.StatusInternalServerError, fmt.Errorf("creating a TokenReview: %w", err)
	case !who.Status.Authenticated:
		return "the API server does not know this token", http.StatusUnauthorized, nil
	}
	user := who.Status.User
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	access := &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: verb},
		},
	}
	switch err := s.server.Create(ctx, access); {
	case err != nil:
		return unasked, http.StatusInternalServerError, fmt.Errorf("creating a SubjectAccessReview: %w", err)
	case !access.Status.Allowed:
		return fmt.Sprintf("%s may not %s %s: bind a ClusterRole that allows it, as in %s", user.Username, verb, path,
			reason.Docs(s.version, "docs/monitoring.md")), http.StatusForbidden, nil
	}
	return "", http.StatusOK, nil
}
