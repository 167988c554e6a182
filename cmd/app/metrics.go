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

	"github.com/rollcall-dev/rollcall/internal/config"
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
	if a.features.StatusPage != config.PageOff {
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

// pageAccess is who is shown pods on the status page. Without --metrics-secure it is not known who asks.
func (a *app) pageAccess() statuspage.Access {
	switch {
	case a.flags.metrics.secure:
		return mayListPods
	case a.features.StatusPage == config.PageForAll:
		return func(*http.Request, string) string { return "" }
	default:
		return func(*http.Request, string) string {
			return "set --metrics-secure, by which readers are known, or statusPage: true, which shows pods to everyone who reaches the port"
		}
	}
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

// reader is a token, and what it asks for: a path, or to list the pods of a namespace.
type reader struct{ token, verb, path, namespace string }

// listPods is the verb of a reader of pods.
const listPods = "list pods"

// known is a reader who was admitted, and what knows more about them.
type known struct {
	*readers

	token string
	user  authenticationv1.UserInfo
}

type knownKey struct{}

// mayListPods asks the API server whether the reader of a request that was admitted may list the pods of the namespace, or of all.
func mayListPods(r *http.Request, namespace string) (refusal string) {
	of, is := r.Context().Value(knownKey{}).(known)
	if !is {
		return "who asks is not known"
	}
	// Readers over a port-forward have one address, so each token has its own limit here.
	review := func(ctx context.Context) (authenticationv1.UserInfo, answer, error) {
		refused, err := of.allowed(ctx, of.user, authorizationv1.SubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Resource: "pods"},
		})
		return of.user, refused, err
	}
	_, refused := of.admit(r.Context(), reader{token: of.token, verb: listPods, namespace: namespace}, of.token, review)
	return refused.text
}

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
	hash, verb, path := fmt.Sprintf("%x", sha256.Sum256([]byte(token))), strings.ToLower(r.Method), r.URL.Path
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	user, refused := s.admit(r.Context(), reader{token: hash, verb: verb, path: path}, host,
		func(ctx context.Context) (authenticationv1.UserInfo, answer, error) {
			return s.review(ctx, token, verb, path)
		})
	if refused.code != 0 {
		if refused.code == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", fmt.Sprint(int(reviewEvery.Seconds())))
		}
		http.Error(w, refused.text, refused.code)
		return
	}
	ctx, end := context.WithCancel(context.WithValue(r.Context(), knownKey{}, known{s, hash, user}))
	defer end()
	// A stream stays open, and a right may be revoked meanwhile.
	again := time.AfterFunc(admittedFor, func() { s.endUnlessAdmitted(ctx, end, token, verb, path) })
	defer again.Stop()
	s.next.ServeHTTP(w, r.WithContext(ctx))
}

// admit asks about a reader who was not asked about a short while ago. Whoever asks about many who are not admitted has to wait.
func (s *readers) admit(
	ctx context.Context, of reader, asks string, review func(context.Context) (authenticationv1.UserInfo, answer, error),
) (user authenticationv1.UserInfo, refused answer) {
	if before, known := s.admitted.Get(of); known {
		user, _ = before.(authenticationv1.UserInfo)
		return user, answer{}
	}
	if before, known := s.refused.Get(of); known {
		refused, _ = before.(answer)
		return user, refused
	}
	if !s.stranger(asks).TryAccept() {
		return user, answer{"too many questions about who may read this: try again soon", http.StatusTooManyRequests}
	}
	select {
	case s.underWay <- struct{}{}:
		defer func() { <-s.underWay }()
	default:
		return user, answer{"too many readers are being asked about: try again soon", http.StatusTooManyRequests}
	}
	user, refused, err := review(ctx)
	switch {
	case err != nil:
		s.logger.Error(err, "failed to ask the API server who may read the metrics")
	case refused.code != 0:
		s.refused.Set(of, refused, refusalLasts)
	default:
		s.admitted.Set(of, user, admittedFor)
	}
	return user, refused
}

// stranger bounds the questions of an address, or about a token.
func (s *readers) stranger(asks string) flowcontrol.PassiveRateLimiter {
	if known, is := s.strangers.Get(asks); is {
		if limiter, is := known.(flowcontrol.PassiveRateLimiter); is {
			return limiter
		}
	}
	limiter := flowcontrol.NewTokenBucketPassiveRateLimiter(float32(time.Second)/float32(reviewEvery), reviewBurst)
	s.strangers.Add(asks, limiter)
	return limiter
}

// endUnlessAdmitted ends a request that has outlasted its admission once its reader is not admitted again, or it can't be known.
func (s *readers) endUnlessAdmitted(ctx context.Context, end context.CancelFunc, token, verb, path string) {
	defer end()
	for ctx.Err() == nil {
		_, refused, err := s.review(ctx, token, verb, path)
		if err != nil && ctx.Err() == nil {
			s.logger.Error(err, "failed to ask the API server whether the reader of a stream may still read it: the stream ends")
		}
		if refused.code != 0 {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(admittedFor):
		}
	}
}

// unasked is the answer if it is not known.
func unasked() answer {
	return answer{"the API server did not answer who may read this: see the manager's log", http.StatusInternalServerError}
}

// review returns whose the token is, or what the reader is answered who may not get the path.
func (s *readers) review(ctx context.Context, token, verb, path string) (user authenticationv1.UserInfo, refused answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	who := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	switch err := s.server.Create(ctx, who); {
	case err != nil:
		return user, unasked(), fmt.Errorf("creating a TokenReview: %w", err)
	case !who.Status.Authenticated:
		return user, answer{"the API server does not know this token", http.StatusUnauthorized}, nil
	}
	refused, err = s.allowed(ctx, who.Status.User, authorizationv1.SubjectAccessReviewSpec{
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: verb},
	})
	return who.Status.User, refused, err
}

// allowed asks whether a user may do something.
func (s *readers) allowed(
	ctx context.Context, user authenticationv1.UserInfo, what authorizationv1.SubjectAccessReviewSpec,
) (refused answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	what.User, what.UID, what.Groups = user.Username, user.UID, user.Groups
	what.Extra = make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for key, values := range user.Extra {
		what.Extra[key] = authorizationv1.ExtraValue(values)
	}
	access := &authorizationv1.SubjectAccessReview{Spec: what}
	switch err := s.server.Create(ctx, access); {
	case err != nil:
		return unasked(), fmt.Errorf("creating a SubjectAccessReview: %w", err)
	case access.Status.Allowed:
		return answer{}, nil
	}
	return answer{fmt.Sprintf("%s may not %s", user.Username, s.right(what)), http.StatusForbidden}, nil
}

// right is what a reader lacks, and how to get it.
func (s *readers) right(what authorizationv1.SubjectAccessReviewSpec) string {
	if path := what.NonResourceAttributes; path != nil {
		return fmt.Sprintf("%s %s: bind a ClusterRole that allows it, as in %s", path.Verb, path.Path,
			reason.Docs(s.version, "docs/monitoring.md"))
	}
	if what.ResourceAttributes.Namespace == "" {
		return "list pods in all namespaces: choose one namespace in which they may"
	}
	return "list pods in namespace " + what.ResourceAttributes.Namespace
}
