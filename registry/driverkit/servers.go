package driverkit

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

// Server is one of a client's servers, for one call.
type Server struct {
	client *HTTPClient
	number int // from 0 in the order of the endpoint
	left   int // among how many requests, this one included, the call's time is to be shared
	url    *url.URL
	alone  http.RoundTripper // the one connection of [Server.Alone], nil for the client's
}

// String returns the server's URL, which is different for each of the client's servers.
func (s Server) String() string { return strings.TrimRight(s.url.String(), "/") }

// Policy decides at which servers [HTTPClient.Try] makes a call, one after the other. The zero Policy has all of them, beginning with the
// one that took the last call.
type Policy struct {
	// After is a server at which the call was made without success: the call is made at all others, also at those of [Members.Reach].
	After Server
	// Because is the reason, for the log, why later calls begin at the server that takes this call, such as "it lacks an entry". If it is
	// empty, the server at which calls begin stays the same. A call that only returns nil leaves the server for the next one.
	Because string
}

// Do makes one request at the server that took the last call. If that server does not answer, or answers 5xx or 429, or the request's
// Check returns an error, later calls are made at the next server. If there are several servers, Do removes Retry-After from a 5xx answer.
// The request is repeated only if a certificate was wrong, since the server has not read it then. For the answer and the error see
// [Server.Do]; the error is terminal only if no server has a valid certificate.
func (c *HTTPClient) Do(ctx context.Context, r Request) (*Answer, error) {
	if r.At != nil {
		return Server{client: c, left: 1, url: r.At}.Do(ctx, r)
	}
	var failures []error
	for server := range c.ring(int(c.current.Load()), len(c.servers)) {
		answer, err := server.Do(ctx, r)
		switch {
		case err != nil && !errors.Is(ctx.Err(), context.Canceled): // a caller that has gone is not the server's fault
			c.leave(server, err)
		case err == nil && (answer.Status >= http.StatusInternalServerError || answer.Status == http.StatusTooManyRequests):
			c.leave(server, answer.Refusal(""))
			if len(c.servers) > 1 && answer.Status != http.StatusTooManyRequests { // which is about the caller
				answer.Header.Del(retryAfter)
			}
		}
		if registry.CodeOf(err) != registry.CodeTerminal {
			return answer, err
		}
		failures = append(failures, err)
	}
	return nil, allOf(failures)
}

// Try makes a call, with all of its requests at one server: with the zero [Policy] the server that took the last call, or, if the error is
// marked by [Away], the next one, until one takes it. No server is asked twice. After a timeout or another error whose Timeout() is true,
// the call may still be under way, so it is not made elsewhere, but the next call begins at the next server. If all servers are away, the
// error has that of each, and is terminal only if all are.
//
// With [Policy.After], any error moves the call to the next server, and does not affect later calls; Try returns the last error. There,
// the context of the call has only a share of the time, which leaves some for the servers that follow.
func (c *HTTPClient) Try(ctx context.Context, at Policy, call func(context.Context, Server) error) error {
	if at.After.url != nil {
		return c.tryOthers(ctx, at, call)
	}
	var failures []error
	for server := range c.ring(int(c.current.Load()), len(c.servers)) {
		err := call(ctx, server)
		away := isAway(err) && !errors.Is(ctx.Err(), context.Canceled)
		if away || errors.Is(err, context.DeadlineExceeded) || mayLand(err) {
			c.leave(server, err)
		}
		if !away {
			return err
		}
		if failures = append(failures, err); ctx.Err() != nil {
			break
		}
	}
	return allOf(failures)
}

func (c *HTTPClient) tryOthers(ctx context.Context, at Policy, call func(context.Context, Server) error) error {
	err := errors.New("the endpoint has no other server")
	for _, other := range c.others(at.After) {
		part, end := Share(ctx, other.left+2)
		other.left = 1
		err = call(part, other)
		end()
		if err != nil {
			continue
		}
		if at.Because != "" {
			c.move(at.After, other, at.Because)
		}
		return nil
	}
	return err
}

// others are all servers but this one: of the endpoint, then those of [Members.Reach].
func (c *HTTPClient) others(than Server) (others []Server) {
	first, count := than.number+1, len(c.servers)-1
	if than.number == unlisted {
		first, count = 0, len(c.servers)
	}
	others = slices.Collect(c.ring(first, count))
	if reached := c.reached.Load(); reached != nil {
		for _, at := range *reached {
			if *at != *than.url {
				others = append(others, Server{client: c, number: unlisted, url: at})
			}
		}
	}
	for i := range others {
		others[i].left = len(others) - i
	}
	return others
}

// unlisted is the number of a server of which the endpoint has no address. No call begins there.
const unlisted = -1

// ring returns count servers, in the order of a call that begins at the one with the number first.
func (c *HTTPClient) ring(first, count int) iter.Seq[Server] {
	return func(yield func(Server) bool) {
		for i := range count {
			if !yield(c.server(first+i, count-i)) {
				return
			}
		}
	}
}

func (c *HTTPClient) server(number, left int) Server {
	number %= len(c.servers)
	return Server{client: c, number: number, left: left, url: c.servers[number]}
}

// leave has later calls begin at the next server. If an address stands for several, they begin on new connections, which may reach another.
func (c *HTTPClient) leave(server Server, why error) {
	if c.several.Load() {
		c.Close()
	}
	c.move(server, c.server(server.number+1, 1), why.Error())
}

// move has later calls begin at another server than this one, unless another call has seen to that already.
func (c *HTTPClient) move(from, to Server, because string) {
	if from.number != to.number && to.number != unlisted && c.current.CompareAndSwap(int64(from.number), int64(to.number)) {
		c.log.Info("using another registry server", "server", from.String(), "next", to.String(), "reason", because)
	}
}

// Share bounds a request by its share of the remaining time, which is for so many consecutive requests, including this one: a server that
// hangs takes no time from those after it. The last request gets all that is left. As with [context.WithTimeout], the caller calls the
// function when the request has ended.
func Share(ctx context.Context, left int) (context.Context, context.CancelFunc) {
	deadline, is := ctx.Deadline()
	if !is || left <= 1 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Until(deadline)/time.Duration(left))
}

// Away marks the error of a server that has not taken a call and will not, although another one may; see [HTTPClient.Try].
// Away(nil) is nil.
func Away(err error) error {
	if err == nil {
		return nil
	}
	return &awayError{err: err}
}

func isAway(err error) bool {
	_, is := errors.AsType[*awayError](err)
	return is
}

type awayError struct{ err error }

func (e *awayError) Error() string { return e.err.Error() }
func (e *awayError) Unwrap() error { return e.err }

// allOf joins all failures in one line. It has the class of the failure that ends first.
func allOf(failures []error) error {
	var texts []string
	for _, err := range failures {
		texts = append(texts, err.Error())
	}
	first := slices.MinFunc(failures, func(a, b error) int { return cmp.Compare(passes(a), passes(b)) })
	return &retold{text: strings.Join(texts, "; "), err: first}
}

// passes is how long a failure lasts at the least.
func passes(err error) time.Duration {
	if registry.CodeOf(err) == registry.CodeTerminal {
		return math.MaxInt64
	}
	after, _ := registry.RetryAfterOf(err)
	return after
}
