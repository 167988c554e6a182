package app

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// admittedFor is for how long a reader is not asked about again, and reviewTimeout bounds the questions.
	admittedFor   = time.Minute
	reviewTimeout = 10 * time.Second
)

// readers lets those through whom the API server lets get the path: it knows whose a bearer token is, and what they may do.
// controller-runtime has a filter for that too, with which the API server's own packages come: a fifth of the program.
type readers struct {
	next     http.Handler
	server   client.Client
	logger   logr.Logger
	admitted *cache.Expiring
}

func (s *readers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") || token == "" {
		http.Error(w, "send the token of a ServiceAccount, as Authorization: Bearer", http.StatusUnauthorized)
		return
	}
	asked := [...]string{fmt.Sprintf("%x", sha256.Sum256([]byte(token))), strings.ToLower(r.Method), r.URL.Path}
	if _, known := s.admitted.Get(asked); !known {
		refusal, code, err := s.review(r.Context(), token, asked[1], asked[2])
		if err != nil {
			s.logger.Error(err, "asking the API server who may read the metrics")
		}
		if code != http.StatusOK {
			http.Error(w, refusal, code)
			return
		}
		s.admitted.Set(asked, true, admittedFor)
	}
	s.next.ServeHTTP(w, r)
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
		return fmt.Sprintf("%s may not %s %s: see docs/deploy.md", user.Username, verb, path), http.StatusForbidden, nil
	}
	return "", http.StatusOK, nil
}
