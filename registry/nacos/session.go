package nacos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

const (
	// unsaidLifetime is taken for that of a token if the server does not say it.
	unsaidLifetime = 5 * time.Minute
	// freshFor is how long after its login a token is refused for what the user may do, not for its age.
	freshFor = 2 * time.Second
	// loginAgain is how long after a login another one is made, if the token of an earlier one has not ended.
	loginAgain = 10 * time.Second
	// startUp is how long after its start a server may refuse who it takes later: Nacos reads users and roles from its
	// database by a timer, first after 5 s and then every 15 s (NacosUserServiceImpl, NacosRoleServiceImpl).
	startUp = 30 * time.Second
)

// grant is what a login gives.
type grant struct {
	token string
	lasts time.Duration
}

// session holds a token for a user, and gets a new one before it ends. All methods are safe for concurrent use.
type session struct {
	username, password string
	log                *slog.Logger
	now                func() time.Time
	turn               chan struct{} // held by who logs in: all others wait for the result

	mu       sync.Mutex
	current  string
	since    time.Time // of the login
	renewAt  time.Time
	endsAt   time.Time
	accepted bool      // a login has ever been
	doubted  time.Time // when a login was first refused, after one was accepted; zero if the last was
	back     time.Time // when one was accepted again
}

func newSession(c driverkit.Credentials, log *slog.Logger) *session {
	if c.Username == "" {
		return nil
	}
	return &session{username: c.Username, password: c.Password, log: log, now: time.Now, turn: make(chan struct{}, 1)}
}

// token returns one that has not ended. One that is about to end is renewed by one call, while all others continue with it; if that
// fails, so does this one.
func (s *session) token(ctx context.Context, login func(context.Context) (grant, error)) (string, error) {
	s.mu.Lock()
	current, now := s.current, s.now()
	good, due := now.Before(s.endsAt), !now.Before(s.renewAt)
	if good && due {
		s.renewAt = now.Add(loginAgain)
	}
	s.mu.Unlock()
	if !good {
		return s.exchange(ctx, current, login)
	}
	if !due {
		return current, nil
	}
	part, cancel := driverkit.Share(ctx, 2) // the request needs time, too
	defer cancel()
	renewed, err := s.exchange(part, current, login)
	if err != nil {
		s.log.Warn("no new token of Nacos', using the one that has not ended", "error", err)
		return current, nil
	}
	return renewed, nil
}

// renew returns another token than the one that the server has just refused; or the same, if that is so young that its age
// is not why.
func (s *session) renew(ctx context.Context, refused string, login func(context.Context) (grant, error)) (string, error) {
	s.mu.Lock()
	current, young := s.current, s.now().Sub(s.since) < freshFor
	s.mu.Unlock()
	if current != refused || young {
		return current, nil
	}
	return s.exchange(ctx, refused, login)
}

// exchange logs in, unless somebody else has meanwhile.
func (s *session) exchange(
	ctx context.Context, old string, login func(context.Context) (grant, error),
) (string, error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return "", fmt.Errorf("waiting for a login: %w", ctx.Err())
	}
	s.mu.Lock()
	current := s.current
	s.mu.Unlock()
	if current != old {
		return current, nil
	}
	g, err := login(ctx)
	if err != nil {
		return "", fmt.Errorf("logging in as %q: %w", s.username, s.refusal(err))
	}
	s.keep(g)
	return g.token, nil
}

func (s *session) keep(g grant) {
	if g.lasts <= 0 {
		g.lasts = unsaidLifetime
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current, s.since, s.accepted = g.token, s.now(), true
	s.renewAt, s.endsAt = s.since.Add(g.lasts*4/5), s.since.Add(g.lasts)
	if !s.doubted.IsZero() {
		s.doubted, s.back = time.Time{}, s.since
	}
}

// refusal gives the error of a login its class.
func (s *session) refusal(err error) error {
	if !isRefusedLogin(err, s.username) {
		return err
	}
	// Another address would say the same, if it has started long ago.
	err = &answerError{verdict: refused, err: errors.New(err.Error())}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if s.doubted.IsZero() {
		s.doubted = now
	}
	if s.accepted && now.Sub(s.doubted) < startUp {
		return driverkit.Away(
			fmt.Errorf("the server accepted this password before; it may have restarted and not loaded its users yet: %w", err))
	}
	return registry.Terminal(registry.FieldError("auth.passwordFile",
		fmt.Errorf("the server rejects the password, or does not know the user: %w", err)))
}

// notAllowed gives a refusal its class that came in spite of a fresh token. Another server may have other roles, or take everybody.
func (s *session) notAllowed(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now().Sub(s.back) < startUp {
		return driverkit.Away(fmt.Errorf("the server may have restarted and not loaded its roles yet: %w", err))
	}
	return driverkit.Away(registry.Terminal(registry.FieldError("auth.username", fmt.Errorf(
		"user %q may not do this: give it a role with read and write for the namespace: %w", s.username, err))))
}

func noUser(err error) error {
	return driverkit.Away(registry.Terminal(registry.FieldError("auth.username",
		fmt.Errorf("is missing: Nacos requires a user: %w", err))))
}

// isRefusedLogin reports whether a login failed for who we are. If the part of Nacos that answers has no handler for
// it, a wrong password is an error of the server: 3.1 answers 500 without a word, and some 2.x name the user.
func isRefusedLogin(err error, username string) bool {
	e, ok := errors.AsType[*answerError](err)
	if !ok {
		return false
	}
	if e.verdict == refused {
		return true
	}
	if !driverkit.HasStatus(err, http.StatusInternalServerError) {
		return false
	}
	for _, words := range []string{"user not found", "User " + username + " not found", "No message available"} {
		if strings.Contains(err.Error(), words) {
			return true
		}
	}
	return false
}
