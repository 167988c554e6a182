package zookeeper

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/rollcall-dev/rollcall/registry"
)

// errReconnected: what was read may be older than what was acknowledged, since it came over another connection.
var errReconnected = errors.New("the connection was lost meanwhile")

// isConflict holds where somebody else was quicker: look again.
func isConflict(err error) bool {
	return errors.Is(err, zk.ErrNodeExists) || errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrBadVersion) ||
		errors.Is(err, errReconnected)
}

// isRefusal holds where the server does not take who we say we are, or wants us to say it. For the latter the client has no
// name: it is KeeperException's SESSIONCLOSEDREQUIRESASLAUTH, of servers with enforce.auth.enabled.
func isRefusal(err error) bool {
	return errors.Is(err, zk.ErrAuthFailed) || err.Error() == "unknown error: -124"
}

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
		return registry.FieldError("auth.username", fmt.Errorf("is missing, and without it we may not do this: %w", err))
	}
	// ZooKeeper takes any password; a wrong one makes us somebody else, who has no rights.
	return registry.FieldError("auth.passwordFile", fmt.Errorf(
		"has another password than the nodes' owner, or this user has no rights on them: %w", err))
}

// explainTLS names the file that is wrong where a handshake failed because of it.
func explainTLS(err error) error {
	var (
		unknown  x509.UnknownAuthorityError
		hostname x509.HostnameError
		invalid  x509.CertificateInvalidError
	)
	switch {
	case errors.As(err, &unknown), errors.As(err, &invalid):
		return registry.Terminal(registry.FieldError("tls.caFile", fmt.Errorf("does not vouch for the server: %w", err)))
	case errors.As(err, &hostname):
		return registry.Terminal(registry.FieldError("endpoint", fmt.Errorf("is not what the server's certificate names: %w", err)))
	case isCertificateAlert(err):
		return registry.Terminal(registry.FieldError("tls.certFile", fmt.Errorf("is not what the server asks for: %w", err)))
	}
	return err
}

// isCertificateAlert holds for what a server says of our certificate, or of there being none. The alerts of package tls have
// no type that we could ask for.
func isCertificateAlert(err error) bool {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "remote error" {
		return false
	}
	alert := op.Err.Error()
	return strings.Contains(alert, "certificate") || strings.HasSuffix(alert, "handshake failure") ||
		strings.HasSuffix(alert, "access denied")
}
