package nacos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// clocked is a session whose time is ours, and a server's logins.
type clocked struct {
	*session
	mu     sync.Mutex
	time   time.Time
	logins atomic.Int64
	fail   error
	lasts  time.Duration
}

func newClocked() *clocked {
	c := &clocked{
		session: newSession(driverkit.Credentials{Username: "rollcall", Password: "a-password"}, slog.New(slog.DiscardHandler)),
		time:    time.Unix(1_000_000, 0), lasts: time.Hour,
	}
	c.now = func() time.Time {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.time
	}
	return c
}

func (c *clocked) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.time = c.time.Add(d)
}

func (c *clocked) login(context.Context) (grant, error) {
	n := c.logins.Add(1)
	return grant{token: fmt.Sprintf("token-%d", n), lasts: c.lasts}, c.fail
}

func (c *clocked) expectToken(t *testing.T, want string) {
	t.Helper()
	if got, err := c.token(t.Context(), c.login); got != want || err != nil {
		t.Fatalf("got token %q, error %v; want %q", got, err, want)
	}
}

func TestTokenIsRenewedInTime(t *testing.T) {
	t.Parallel()
	c := newClocked()
	c.expectToken(t, "token-1")
	c.pass(47 * time.Minute)
	c.expectToken(t, "token-1")
	c.pass(2 * time.Minute) // more than four fifths have gone
	c.expectToken(t, "token-2")
	c.lasts = 0 // the server does not say
	c.pass(time.Hour)
	c.expectToken(t, "token-3")
	c.pass(3 * time.Minute)
	c.expectToken(t, "token-3")
	c.pass(2 * time.Minute)
	c.expectToken(t, "token-4")
}

// TestTokenIsKeptWhereNoneFollows: a login is no reason to throw away a token that the server still takes.
func TestTokenIsKeptWhereNoneFollows(t *testing.T) {
	t.Parallel()
	expect.Each(t, map[string]error{
		"trouble": answered(http.StatusInternalServerError, "No DataSource set"),
		"refusal": answered(http.StatusForbidden, "user not found!"),
	}, func(t *testing.T, fail error) {
		c := newClocked()
		c.expectToken(t, "token-1")
		c.fail = fail
		c.pass(49 * time.Minute)
		for wantLogins := int64(2); wantLogins < 5; wantLogins++ {
			c.expectToken(t, "token-1")
			c.pass(loginAgain - time.Second)
			c.expectToken(t, "token-1")
			if n := c.logins.Load(); n != wantLogins {
				t.Fatalf("%d logins, want %d: one every %s", n, wantLogins, loginAgain)
			}
			c.pass(time.Second)
		}
		if got, err := c.renew(t.Context(), "token-1", c.login); err == nil {
			t.Errorf("got token %q, which the server has refused", got)
		}
		c.pass(11 * time.Minute)
		if got, err := c.token(t.Context(), c.login); err == nil {
			t.Errorf("got token %q, which has ended", got)
		}
		c.fail = nil
		c.expectToken(t, "token-7")
	})
}

// TestLoginThatHangs holds up one call, which is left time for its request.
func TestLoginThatHangs(t *testing.T) {
	t.Parallel()
	c := newClocked()
	c.expectToken(t, "token-1")
	c.pass(49 * time.Minute)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	token, err := c.token(ctx, func(part context.Context) (grant, error) {
		if deadline, _ := part.Deadline(); time.Until(deadline) > 40*time.Second {
			t.Error("the login may take all of the time")
		}
		c.expectToken(t, "token-1") // of another call
		return grant{}, context.DeadlineExceeded
	})
	if token != "token-1" || err != nil {
		t.Errorf("got token %q, error %v; want the one that has not ended", token, err)
	}
}

func TestLoginIsMadeOnce(t *testing.T) {
	t.Parallel()
	c := newClocked()
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() { c.expectToken(t, "token-1") })
	}
	all.Wait()
	c.pass(time.Minute)
	for range 64 { // the server has forgotten it, and says so to all of them
		all.Go(func() {
			if got, err := c.renew(t.Context(), "token-1", c.login); got != "token-2" || err != nil {
				t.Errorf("got token %q, error %v; want token-2", got, err)
			}
		})
	}
	all.Wait()
	expect.Equal(t, 2, c.logins.Load(), "logins")
}

func TestFreshTokenIsNotRenewed(t *testing.T) {
	t.Parallel()
	c := newClocked()
	c.expectToken(t, "token-1")
	if got, err := c.renew(t.Context(), "token-1", c.login); got != "token-1" || err != nil {
		t.Errorf("got token %q, error %v; want the same one: its age is not why it is refused", got, err)
	}
	refusal := answered(http.StatusForbidden, "authorization failed!")
	if err := c.notAllowed(refusal); registry.CodeOf(err) != registry.CodeTerminal {
		t.Errorf("got error %v, want a terminal one", err)
	}
}

func TestWaitingForALoginEndsWithTheContext(t *testing.T) {
	t.Parallel()
	c := newClocked()
	c.turn <- struct{}{} // somebody else's login hangs
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.token(ctx, c.login); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want one of the context", err)
	}
}

// What a login's answer means. The words are those of real servers: Nacos' handler of a refusal is not there for all of
// its parts.
func TestRefusedLogins(t *testing.T) {
	t.Parallel()
	type row struct {
		reason  string
		err     error
		refused bool
	}
	expect.Each(t, map[string]row{
		"403":              {"2.x", answered(403, "user not found!"), true},
		"401":              {"a proxy", answered(401, ""), true},
		"500 of 3.1":       {"a wrong password, without a word", answered(500, "No message available"), true},
		"500 of 2.5":       {"an unknown user", answered(500, "Server failed, User rollcall not found"), true},
		"500 of trouble":   {"the database is away", answered(500, "No DataSource set"), false},
		"another's 500":    {"it is not about us", answered(500, "User other not found"), false},
		"503":              {"the server is starting", answered(503, "No message available"), false},
		"no answer":        {"the server is away", driverkit.Away(errors.New("connection refused")), false},
		"none of Nacos'":   {"it is unknown", errors.New("something"), false},
		"a page not found": {"it is another version", answered(404, "No message available"), false},
	}, func(t *testing.T, tc row) {
		c := newClocked()
		c.fail = tc.err
		_, err := c.token(t.Context(), c.login)
		field, _ := registry.FieldOf(err)
		if (registry.CodeOf(err) == registry.CodeTerminal) != tc.refused || (field == "auth.passwordFile") != tc.refused {
			t.Errorf("got error %v of field %q, terminal: %t; want refused: %t\nreason: %s",
				err, field, registry.CodeOf(err) == registry.CodeTerminal, tc.refused, tc.reason)
		}
		if tc.refused && verdictOf(err) != refused {
			t.Errorf("another address would be asked for the same: %v", err)
		}
	})
}

func answered(status int, said string) error {
	return newAnswerError(&driverkit.Answer{Status: status, Body: []byte(said)})
}

// A server that was restarted refuses for a while who it took before.
func TestRestartedServerIsGivenTime(t *testing.T) {
	t.Parallel()
	refusal := answered(http.StatusForbidden, "Access Denied")
	c := newClocked()
	c.expectToken(t, "token-1")
	c.fail = refusal
	c.pass(time.Hour)
	expect := func(terminal bool) {
		t.Helper()
		if _, err := c.token(t.Context(), c.login); err == nil || (registry.CodeOf(err) == registry.CodeTerminal) != terminal {
			t.Fatalf("got error %v, terminal: %t; want %t", err, registry.CodeOf(err) == registry.CodeTerminal, terminal)
		}
	}
	expect(false)
	c.pass(startUp - time.Second)
	expect(false)
	c.fail = nil
	if _, err := c.token(t.Context(), c.login); err != nil {
		t.Fatal(err)
	}
	// It has its users back, and perhaps not yet their roles.
	if err := c.notAllowed(refusal); registry.CodeOf(err) == registry.CodeTerminal {
		t.Errorf("got a terminal error as soon as the login works again: %v", err)
	}
	c.pass(startUp)
	if err := c.notAllowed(refusal); registry.CodeOf(err) != registry.CodeTerminal {
		t.Errorf("got error %v, want a terminal one: the roles are there by now", err)
	}

	// The password was changed, and stays so.
	c.fail = refusal
	c.pass(time.Hour)
	expect(false)
	c.pass(startUp)
	expect(true)
}
