// Package httpserver is the server half of the HTTP registry protocol (docs/http-registry.openapi.yaml). It answers over any
// registry that can be read back.
package httpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// Backend is what the server answers from.
type Backend interface {
	registry.Registry
	registry.Lister
}

// Options change how the server answers; the zero value is an open server.
type Options struct {
	// Login decides on the user and password of a request. Nil lets everybody in.
	Login func(username, password string) bool
	// BatchLimit is how many changes a batch may have, and Probe says whether clients are given an instance where they are
	// asked. Without both the server is one of version 1.2 of the protocol, which has neither and does not say so.
	BatchLimit int
	Probe      bool
}

type server struct {
	backend Backend
	opts    Options
}

// New returns the handler of the protocol, with the paths under /v1 at its root. It is safe for concurrent use if the
// backend is.
func New(backend Backend, opts Options) http.Handler {
	s := &server{backend: backend, opts: opts}
	mux := http.NewServeMux()
	mux.Handle("POST /v1/register", s.change(backend.Register))
	mux.Handle("POST /v1/fail-over", s.change(backend.FailOver))
	mux.Handle("POST /v1/deregister", s.change(backend.Deregister))
	mux.Handle("GET /v1/instances", s.handle(s.list))
	if opts.BatchLimit > 0 || opts.Probe {
		mux.Handle("GET /v1/capabilities", s.handle(s.capabilities))
	}
	if opts.BatchLimit > 0 {
		mux.Handle("POST /v1/batch", s.handle(s.batch))
	}
	if opts.Probe {
		mux.Handle("POST /v1/probe", s.change(s.probe))
	}
	return mux
}

// reply is what a request is answered with; a nil body sends none.
type reply struct {
	status     int
	body       any
	retryAfter time.Duration
}

type listing struct {
	Instances []registry.Entry `json:"instances"`
}

type problem struct {
	Error string `json:"error"`
}

func (s *server) handle(do func(*http.Request) reply) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rep := s.refuse(r)
		if rep.status == 0 {
			rep = do(r)
		}
		if rep.status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry", charset="UTF-8"`)
		}
		send(w, rep)
	})
}

// refuse answers a request that is not let in; the zero reply means that it is.
func (s *server) refuse(r *http.Request) reply {
	username, password, given := r.BasicAuth()
	if s.opts.Login == nil || given && s.opts.Login(username, password) {
		return reply{}
	}
	return reply{status: http.StatusUnauthorized, body: problem{"valid credentials are needed"}}
}

func (s *server) change(apply func(context.Context, registry.Instance) error) http.Handler {
	return s.handle(func(r *http.Request) reply {
		in, err := decode(r)
		if err == nil {
			err = apply(r.Context(), in)
		}
		if err != nil {
			return failure(err)
		}
		return reply{status: http.StatusNoContent}
	})
}

func (s *server) capabilities(*http.Request) reply {
	return reply{status: http.StatusOK, body: struct {
		BatchLimit int  `json:"batchLimit,omitempty"`
		Probe      bool `json:"probe,omitempty"`
	}{s.opts.BatchLimit, s.opts.Probe}}
}

// probe reports an instance that clients are not given.
func (s *server) probe(ctx context.Context, in registry.Instance) error {
	entries, err := s.backend.List(ctx, in.Cluster)
	if err != nil {
		return err //nolint:wrapcheck // its class says what is wrong
	}
	if !slices.ContainsFunc(entries, func(e registry.Entry) bool {
		return e.Service == in.Service && e.Endpoint() == in.Endpoint() && in.Owns(e.UID, e.Registry) && e.State == registry.InService
	}) {
		return notGivenError{}
	}
	return nil
}

// outcome is what came of one change of a batch.
type outcome struct {
	Status     int    `json:"status"`
	Error      string `json:"error,omitempty"`
	RetryAfter int64  `json:"retryAfter,omitempty"`
}

func (s *server) batch(r *http.Request) reply {
	var asked struct {
		Changes []registry.Entry `json:"changes"`
	}
	if err := decodeBody(r, &asked, "changes"); err != nil {
		return failure(err)
	}
	if len(asked.Changes) > s.opts.BatchLimit {
		return failure(requestError(
			fmt.Sprintf("a batch may have %d changes, not %d", s.opts.BatchLimit, len(asked.Changes))))
	}
	var answer struct {
		Outcomes []outcome `json:"outcomes"`
	}
	for _, e := range asked.Changes {
		err := valid(e.Instance)
		if err == nil {
			err = registry.Change{Instance: e.Instance, State: e.State}.Make(r.Context(), s.backend)
		}
		came := outcome{Status: http.StatusNoContent}
		if err != nil {
			rep := failure(err)
			came = outcome{rep.status, err.Error(), wholeSeconds(rep.retryAfter)}
		}
		answer.Outcomes = append(answer.Outcomes, came)
	}
	return reply{status: http.StatusOK, body: answer}
}

func (s *server) list(r *http.Request) reply {
	cluster := r.URL.Query().Get("cluster")
	if cluster == "" {
		return failure(requestError("query parameter cluster is missing"))
	}
	query := r.URL.Query()
	entries, err := s.backend.List(r.Context(), cluster)
	if err != nil {
		return failure(err)
	}
	entries = slices.DeleteFunc(append([]registry.Entry{}, entries...), func(e registry.Entry) bool {
		return !matches(query, "service", e.Service) || !matches(query, "address", e.Address) ||
			!matches(query, "port", strconv.Itoa(e.Port))
	})
	return reply{status: http.StatusOK, body: listing{entries}}
}

// matches reports whether a parameter of the query lets the value pass.
func matches(query url.Values, parameter, value string) bool {
	return !query.Has(parameter) || query.Get(parameter) == value
}

// requestError is an error in what the client sent.
type requestError string

func (e requestError) Error() string { return string(e) }

// notGivenError is the answer to a probe of an instance that clients are not given.
type notGivenError struct{}

func (notGivenError) Error() string { return "clients are not given the instance" }

func decode(r *http.Request) (in registry.Instance, err error) {
	if err := decodeBody(r, &in, "one instance"); err != nil {
		return registry.Instance{}, err
	}
	return in, valid(in)
}

func decodeBody(r *http.Request, into any, what string) error {
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		return requestError("the body must be " + what + " as JSON: " + err.Error())
	}
	return nil
}

func valid(in registry.Instance) error {
	if err := driverkit.CheckInstance(in); err != nil {
		return requestError(err.Error())
	}
	return nil
}

func failure(err error) reply {
	rep := reply{status: http.StatusServiceUnavailable, body: problem{err.Error()}}
	var bad requestError
	switch {
	case errors.Is(err, notGivenError{}):
		rep.status = http.StatusConflict
	case errors.As(err, &bad):
		rep.status = http.StatusBadRequest
	case registry.CodeOf(err) == registry.CodeTerminal, registry.CodeOf(err) == registry.CodeNotRegistered:
		rep.status = http.StatusUnprocessableEntity
	default:
		rep.retryAfter, _ = registry.RetryAfterOf(err)
	}
	return rep
}

func wholeSeconds(d time.Duration) int64 { return int64(math.Ceil(d.Seconds())) }

func send(w http.ResponseWriter, rep reply) {
	if rep.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(wholeSeconds(rep.retryAfter), 10))
	}
	if rep.body == nil {
		w.WriteHeader(rep.status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(rep.status)
	_ = json.NewEncoder(w).Encode(rep.body) // the client has gone
}
