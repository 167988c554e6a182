package consul

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/rollcall-dev/rollcall/registry"
)

// errStale is that of an operation whose condition does not hold any more: nothing was changed.
var errStale = errors.New("somebody else changed the entry at the same time")

// errRolledBack is that of the other operations of a transaction in which one could not be made.
var errRolledBack = errors.New("the transaction was rolled back because of another change in it")

// requestError gives an error of the client the class that the answer asks for. It knows no acknowledgement: err is not
// nil.
func (r *Registry) requestError(ctx context.Context, err error, e *exchange) error {
	switch {
	case isForbidden(e.status) && !r.isForbiddenInEarnest(ctx):
		err = errors.New(r.describe(e))
	case e.status != 0 && e.status != http.StatusOK:
		err = r.statusError(e)
	default:
		err = certificateError(err)
	}
	return registry.ContextError(ctx, err)
}

func isForbidden(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden
}

// isForbiddenInEarnest asks again, with a consistent read. A server that has just become the leader knows no token before
// it has replayed its log, and nevertheless answers writes and other reads: with 403, though the token is good. A
// consistent transaction that only reads waits for the log first (agent/consul, Txn.Read).
func (r *Registry) isForbiddenInEarnest(ctx context.Context) bool {
	e := &exchange{}
	q := &api.QueryOptions{RequireConsistent: true}
	_, _, _, err := r.client.Txn().Txn(api.TxnOps{nodeOp(api.NodeGet, r.nodes[0])}, q.WithContext(e.on(ctx)))
	return err != nil && isForbidden(e.status)
}

// certificateError names the field where a connection failed because one side does not trust the other's certificate.
func certificateError(err error) error {
	if host := new(x509.HostnameError); errors.As(err, host) {
		return registry.Terminal(registry.FieldError("options.serverName", err))
	}
	return registry.TLSError(err)
}

func (r *Registry) statusError(e *exchange) error {
	err := errors.New(r.describe(e))
	switch {
	case isForbidden(e.status):
		return registry.Terminal(registry.FieldError("auth.tokenFile", err))
	case e.status == http.StatusRequestEntityTooLarge:
		return registry.Terminal(&tooLargeError{err: err})
	case strings.Contains(string(e.body), "Namespaces are a Consul Enterprise feature"):
		return registry.Terminal(registry.FieldError("options.namespace", err))
	case strings.Contains(string(e.body), "Partitions are a Consul Enterprise feature"):
		return registry.Terminal(registry.FieldError("options.partition", err))
	case isTerminal(e.status):
		return registry.Terminal(err)
	}
	if after, said := registry.ParseRetryAfter(e.retryAfter, time.Now()); said {
		return registry.RetryAfter(err, after)
	}
	return err
}

// tooLargeError is that of a transaction with more operations or bytes than the server takes.
type tooLargeError struct{ err error }

func (e *tooLargeError) Error() string { return e.err.Error() }
func (e *tooLargeError) Unwrap() error { return e.err }

func isTooLarge(err error) bool {
	var t *tooLargeError
	return errors.As(err, &t)
}

// isTerminal holds for what stays wrong however often it is tried: redirects, which are not followed, and the client's
// errors, but not those that are a matter of time.
func isTerminal(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return status >= 300 && status <= 499
}

func (r *Registry) describe(e *exchange) string {
	text := strings.TrimSpace(fmt.Sprintf("Consul answered %d %s", e.status, http.StatusText(e.status)))
	if e.status >= 300 && e.status <= 399 {
		return text + ", and redirects are not followed: set endpoint to where Consul is (Location: " +
			r.clean(e.location) + ")"
	}
	if said := r.clean(string(e.body)); said != "" {
		return text + ": " + said
	}
	return text
}

// operationError is that of one operation of a transaction that was rolled back. The status is 409 then, whatever is
// wrong, so the server's words have to tell.
func (r *Registry) operationError(e *api.TxnError) error {
	err := errors.New("Consul refused it: " + r.clean(e.What))
	for _, known := range []struct {
		words string
		class func(error) error
	}{
		{"index is stale", func(error) error { return errStale }},
		// The node or the service went between two operations of others.
		{"Missing node registration", func(error) error { return errStale }},
		{"Missing service registration", func(error) error { return errStale }},
		{"Permission denied", notAllowed},
		{"is reserved by node", func(err error) error {
			return registry.Terminal(registry.FieldError("options.nodePrefix", err))
		}},
		{"Invalid Service Meta", registry.Terminal},
		{"Invalid service address", registry.Terminal},
	} {
		if strings.Contains(e.What, known.words) {
			return known.class(err)
		}
	}
	return err
}

func notAllowed(err error) error {
	return registry.Terminal(registry.FieldError("auth.tokenFile", err))
}

// clean makes a server's text fit for a log line: one line, not long, and not our token, should the server echo it.
func (r *Registry) clean(text string) string {
	if r.guard.token != "" {
		text = strings.ReplaceAll(text, r.guard.token, "[token]")
	}
	return registry.Excerpt(text)
}
