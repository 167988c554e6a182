package consul

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// errStale is that of an operation whose condition does not hold any more: nothing was changed.
var errStale = errors.New("somebody else changed the entry at the same time")

// errRolledBack is that of the other operations of a transaction in which one could not be made.
var errRolledBack = errors.New("the transaction was rolled back because of another change in it")

// wrongNameError adds the option that helps with a certificate for another name.
func wrongNameError(field string, err error) error {
	if host := new(x509.HostnameError); errors.As(err, host) {
		return registry.Terminal(registry.FieldError(field, host))
	}
	return err
}

// expiredError adds the option with the path of a certificate that has expired. The kit takes it for one of endpoint's.
func expiredError(field string, err error) error {
	if invalid := new(x509.CertificateInvalidError); errors.As(err, invalid) && invalid.Reason == x509.Expired {
		return registry.Terminal(registry.FieldError(field, fmt.Errorf("has a certificate that has expired or is not valid yet: %w", invalid)))
	}
	return err
}

// refusal makes an error of an answer that is not an acknowledgement.
func (r *Registry) refusal(ctx context.Context, a *driverkit.Answer) error {
	said := string(a.Body)
	err := a.Refusal(said).Classified()
	switch {
	case isUnknown(said):
		return driverkit.Late(err)
	case isForbidden(a.Status) && r.isForbiddenInEarnest(ctx):
		return notAllowed(err)
	case isForbidden(a.Status):
		return errors.New(err.Error()) // it passes
	case strings.Contains(said, "Namespaces are a Consul Enterprise feature"):
		return registry.FieldError("options.namespace", registry.Terminal(err))
	case strings.Contains(said, "Partitions are a Consul Enterprise feature"):
		return registry.FieldError("options.partition", registry.Terminal(err))
	}
	return err
}

// isUnknown holds for a server's answer to a change of unknown outcome: the connection to the leader ended when
// it was passed on (agent/pool, RPC), or the leader was deposed before its peers had confirmed it (raft, ErrLeadershipLost). The next
// leader may have it. What the leader itself has refused is known.
func isUnknown(said string) bool {
	if strings.Contains(said, "leadership lost while committing log") {
		return true
	}
	_, passedOn, found := strings.Cut(said, "rpc error making call: ")
	ended := []string{"EOF", "connection reset", "broken pipe", "i/o timeout", "session shutdown", "stream closed", "stream reset"}
	return found && slices.ContainsFunc(ended, func(words string) bool { return strings.Contains(passedOn, words) })
}

func isForbidden(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden
}

// isForbiddenInEarnest asks again, with a consistent read. A server that has just become the leader knows no token before
// it has replayed its log, and nevertheless answers writes and other reads: with 403, though the token is good. A
// consistent transaction that only reads waits for the log first (agent/consul, Txn.Read).
func (r *Registry) isForbiddenInEarnest(ctx context.Context) bool {
	answer, err := r.sendTransaction(ctx, []operation{nodeOp(get, r.nodes[0])}, &outcome{})
	return err == nil && isForbidden(answer.Status)
}

// isNotThere holds for the end of what the state store reports of a service or check: names, which tenants choose, come before it.
func (e operationError) isNotThere() bool { return strings.HasSuffix(e.What, " doesn't exist") }

// refusedOperation is the error of one operation of a transaction that was rolled back. The status is 409 then, whatever is
// wrong, so the server's words have to tell.
func (r *Registry) refusedOperation(e operationError) error {
	err := errors.New("Consul refused it: " + r.credentials.Excerpt(e.What))
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
