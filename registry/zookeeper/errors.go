package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// errReconnected: what was read may be older than what was acknowledged, since it came over another connection.
var errReconnected = errors.New("the connection was lost meanwhile")

// isConflict holds if somebody else was quicker: look again.
func isConflict(err error) bool {
	return errors.Is(err, zk.ErrNodeExists) || errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrBadVersion) ||
		errors.Is(err, errReconnected)
}

// isRefusal holds if the server does not accept the credentials, or wants some. For the latter the client has no name: it
// is KeeperException's SESSIONCLOSEDREQUIRESASLAUTH, of servers with enforce.auth.enabled.
func isRefusal(err error) bool {
	return errors.Is(err, zk.ErrAuthFailed) || err.Error() == "unknown error: -124"
}

// isUnimplemented holds if the server does not know the request: KeeperException's UNIMPLEMENTED, for which the client has no name.
func isUnimplemented(err error) bool { return err != nil && err.Error() == "unknown error: -6" }

// explain gives an error its class. What is not named here is retryable.
func (r *Registry) explain(err error) error {
	switch {
	case err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	case isRefusal(err) || errors.Is(err, zk.ErrNoAuth):
		return registry.Terminal(r.explainAuth(err))
	case errors.Is(err, zk.ErrInvalidACL):
		return registry.Terminal(registry.FieldError("options.acl", fmt.Errorf(
			"creator needs auth.username, or a client certificate that the servers know: %w", err)))
	case errors.Is(err, zk.ErrInvalidPath) || errors.Is(err, zk.ErrBadArguments):
		return registry.Terminal(err)
	}
	return explainTLS(err)
}

func (r *Registry) explainAuth(err error) error {
	if !r.authenticates {
		return registry.FieldError("auth.username", fmt.Errorf("is missing, and ZooKeeper does not let an anonymous client do this: %w", err))
	}
	// ZooKeeper takes any password; with a wrong one, Rollcall is another user, who has no rights.
	return registry.FieldError("auth.passwordFile", fmt.Errorf(
		"is not the password of the nodes' owner, or this user has no rights on them: %w", err))
}

// explainTLS adds the file that is wrong if a handshake failed because of it. If a certificate is missing, ZooKeeper reports only
// that the handshake failed.
func explainTLS(err error) error {
	var alert *net.OpError
	if errors.As(err, &alert) && alert.Op == "remote error" && strings.HasSuffix(alert.Err.Error(), "handshake failure") {
		return registry.Terminal(registry.FieldError("tls.certFile", fmt.Errorf("is not a certificate that the registry accepts: %w", err)))
	}
	return driverkit.TLSError(err)
}
