package consul

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

const (
	headerToken = "X-Consul-Token" //nolint:gosec // a header's name
	// retryLogin is how long a token is used whose renewal has failed, before the next try.
	retryLogin = 10 * time.Second
	// logoutTimeout bounds what Close waits for.
	logoutTimeout = 2 * time.Second
	// unknownToken is how Consul answers to a token that has expired or was deleted; a server that has just become the leader may too.
	unknownToken = "ACL not found" //nolint:gosec // words of an answer
)

// session has an ACL token: that of the configuration, or one that Consul's authentication method gives for what the configuration has. All
// of its methods are safe for concurrent use.
type session struct {
	method string        // empty: the token is that of the configuration
	turn   chan struct{} // held by who logs in: all others wait for the result

	mu       sync.Mutex
	token    string
	renewAt  time.Time
	accepted bool // a login has ever been
}

func newSession(opts Options, credentials driverkit.Credentials) *session {
	if opts.AuthMethod == "" {
		return &session{token: credentials.Token}
	}
	return &session{method: opts.AuthMethod, turn: make(chan struct{}, 1)}
}

// held returns the token, if there is one, and whether this caller has to renew it: one does, and the others continue with it.
func (s *session) held() (token string, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if due = s.token != "" && !s.renewAt.IsZero() && !now.Before(s.renewAt); due {
		s.renewAt = now.Add(retryLogin)
	}
	return s.token, due
}

// get returns a token. One that is due stays in use if the login fails, or takes long.
func (s *session) get(ctx context.Context, login func(context.Context) (granted, error)) (string, error) {
	token, due := s.held()
	switch {
	case due:
		return s.renewed(ctx, token, login), nil
	case token != "" || s.method == "":
		return token, nil
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return "", fmt.Errorf("waiting for a login: %w", ctx.Err())
	}
	if token, _ := s.held(); token != "" {
		return token, nil // of somebody else's login
	}
	given, err := login(ctx)
	if err == nil {
		return s.accept(given), nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.accepted && ctx.Err() == nil { // a server that has just become the leader may not know the auth method yet
		return "", fmt.Errorf("logging in: %v", err) //nolint:errorlint // without its class
	}
	return "", fmt.Errorf("logging in: %w", err)
}

// renewed returns a new token, or the one before if that takes more than half of the time: the request needs time, too.
func (s *session) renewed(ctx context.Context, token string, login func(context.Context) (granted, error)) string {
	part, cancel := driverkit.Share(ctx, 2) //nolint:mnd // half of it
	defer cancel()
	if given, err := login(part); err == nil {
		return s.accept(given)
	}
	return token
}

func (s *session) accept(given granted) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token, s.renewAt, s.accepted = given.SecretID, given.renewAt(), true
	return s.token
}

// refuse notes that Consul knows no such token: the next call logs in.
func (s *session) refuse(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.method != "" && s.token == token {
		s.token = ""
	}
}

// end returns the token that there is to log out with, once.
func (s *session) end() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	token := s.token
	if s.method == "" {
		return ""
	}
	s.token = ""
	return token
}

// granted is Consul's answer to a login, with Consul's names.
type granted struct {
	SecretID                   string
	CreateTime, ExpirationTime time.Time
}

// renewAt is before the token ends, by this clock; zero if it does not end.
func (g granted) renewAt() time.Time {
	if g.ExpirationTime.IsZero() {
		return time.Time{}
	}
	return time.Now().Add(g.ExpirationTime.Sub(g.CreateTime) * 4 / 5)
}

// authorized returns the header of a request, and its token.
func (r *Registry) authorized(ctx context.Context) (header http.Header, token string, err error) {
	token, err = r.session.get(ctx, r.logIn)
	header = http.Header{}
	if token != "" {
		header.Set(headerToken, token)
	}
	return header, token, err
}

func (r *Registry) logIn(ctx context.Context) (given granted, err error) {
	body, err := json.Marshal(map[string]any{
		"AuthMethod": r.session.method, "BearerToken": r.credentials.Token, "Meta": map[string]string{registry.MetaCluster: r.cluster},
	})
	if err != nil {
		return given, fmt.Errorf("encoding the login: %w", err)
	}
	query := url.Values{}
	r.place(query, "dc", r.opts.Datacenter)
	answer, err := r.client.Do(ctx, driverkit.Request{
		Method: http.MethodPost, Path: "/v1/acl/login", Query: query, Body: body, Limit: maxAnswer,
		Check: func(a *driverkit.Answer) error {
			if err := decode(a, &given); err != nil {
				return err
			}
			if given.SecretID == "" {
				return errors.New("the answer to the login has no token")
			}
			return nil
		},
	})
	switch {
	case err != nil:
		return given, wrongNameError("options.serverName", err)
	case answer.OK():
		return given, nil
	}
	said := string(answer.Body)
	err = answer.Refusal(said).Classified()
	switch {
	case strings.Contains(said, "auth method") && strings.Contains(said, "not found"):
		return given, registry.Terminal(registry.FieldError("options.authMethod", err))
	case isForbidden(answer.Status):
		return given, notAllowed(fmt.Errorf("is rejected by the authentication method %q, or none of its binding rules applies: %w",
			r.session.method, err))
	}
	return given, err
}

// logOut ends the token of a login. One that stays ends by itself if the auth method limits how long tokens last.
func (r *Registry) logOut() {
	token := r.session.end()
	if token == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), logoutTimeout)
	defer cancel()
	query := url.Values{}
	r.place(query, "dc", r.opts.Datacenter)
	_, _ = r.client.Do(ctx, driverkit.Request{
		Method: http.MethodPost, Path: "/v1/acl/logout", Query: query, Header: http.Header{headerToken: {token}}, Secrets: []string{token},
	})
}
