package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// classify gives an error of the client its class. What is not named here may pass, and may still be carried out: a proxy can give up
// waiting in many ways, with 502, 504, a reset stream or words of its own.
func classify(err error) error {
	err = rpctypes.Error(err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rpctypes.ErrAuthFailed):
		return registry.Terminal(registry.FieldError("auth.passwordFile", err))
	case errors.Is(err, rpctypes.ErrUserEmpty):
		return registry.Terminal(registry.FieldError("auth.username", fmt.Errorf("is missing, and etcd requires a user: %w", err)))
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return registry.Terminal(fmt.Errorf("the role of the user must allow reading and writing below the target: %w", err))
	case errors.Is(err, rpctypes.ErrNoSpace): // it passes, and is an answer: removals still work
		return registry.RetryAfter(err, 0)
	case loginLost(err):
		return err
	case timedOut(err):
		return driverkit.Late(err)
	case codeOf(err) == codes.InvalidArgument || tooLarge(err):
		return registry.Terminal(err)
	case saysNo(err):
		return err
	case codeOf(err) == codes.Unavailable:
		return classifyConnection(err)
	}
	return driverkit.Late(err)
}

// saysNo holds for an answer of etcd's own, by which a change was not carried out. A server that is stopped may have passed it on
// (etcdserver/v3_server.go).
func saysNo(err error) bool {
	return errors.As(err, new(rpctypes.EtcdError)) && !errors.Is(err, rpctypes.ErrStopped)
}

// codeOf is the code of gRPC.
func codeOf(err error) codes.Code {
	if e := new(rpctypes.EtcdError); errors.As(err, e) {
		return e.Code()
	}
	return status.Code(err)
}

// isAway holds for what another member may answer: this one has no leader, can't be reached, or did not answer in time. It may
// have ended the call itself, whose time was up there a moment before it was here.
func isAway(err error) bool {
	code := codeOf(rpctypes.Error(err))
	return code == codes.Unavailable || code == codes.DeadlineExceeded || code == codes.Canceled ||
		errors.Is(err, context.DeadlineExceeded)
}

// timedOut holds if etcd has given up waiting for a change, which it may still carry out (etcdserver/v3_server.go), or a member has
// ended a call whose time was up a moment before it was here.
func timedOut(err error) bool {
	code := codeOf(err)
	return errors.Is(err, rpctypes.ErrTimeout) || errors.Is(err, rpctypes.ErrTimeoutDueToLeaderFail) ||
		errors.Is(err, rpctypes.ErrTimeoutDueToConnectionLost) || code == codes.Canceled || code == codes.DeadlineExceeded
}

// loginLost holds for etcd's answer to a token that it no longer knows: it has expired, the server was started again, or
// users or roles have changed. The call was not carried out.
func loginLost(err error) bool {
	err = rpctypes.Error(err)
	return errors.Is(err, rpctypes.ErrInvalidAuthToken) || errors.Is(err, rpctypes.ErrAuthOldRevision)
}

// classifyConnection looks for what trying again does not cure, and for what was never sent. gRPC tells only the text.
func classifyConnection(err error) error {
	text := err.Error()
	switch {
	// The server's answer to the client certificate (crypto/tls, alert.go).
	case contains(text, "remote error: tls: certificate required", "remote error: tls: bad certificate",
		"remote error: tls: unknown certificate", "remote error: tls: expired certificate",
		"remote error: tls: revoked certificate", "remote error: tls: unsupported certificate"):
		return registry.Terminal(registry.FieldError("tls.certFile", fmt.Errorf("etcd does not accept the client certificate: %w", err)))
	// What is wrong with the server's (crypto/x509, verify.go).
	case contains(text, "x509: certificate signed by unknown authority"):
		return registry.Terminal(registry.FieldError("tls.caFile", err))
	case contains(text, "x509: certificate is valid for ", "x509: certificate is not valid for any names",
		"x509: cannot validate certificate for ", "x509: certificate relies on legacy Common Name field"):
		return registry.Terminal(registry.FieldError("endpoint", fmt.Errorf("does not match etcd's certificate: %w", err)))
	case contains(text, "x509: certificate has expired or is not yet valid"):
		return registry.Terminal(registry.FieldError("endpoint",
			fmt.Errorf("has a certificate that has expired or is not valid yet: %w", err)))
	// There was no connection yet to send it over (gRPC, http2_client.go; pickfirst.go and endpointsharding.go).
	case contains(text, "rror while dialing", "authentication handshake failed", "failed to write client preface",
		"error reading server preface", "initial http2 frame from server is not", "resolver error", "produced zero addresses",
		"no children to pick from"):
		return err
	}
	return driverkit.Late(err)
}

func contains(text string, parts ...string) bool {
	for _, part := range parts {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

// refused holds for an error by which the changes were not carried out, and would not be if they were sent again, but some of
// them may be by themselves: a full database takes removals, and no puts. The transaction that raises the alarm may have been carried
// out.
func refused(err error, changes []*change) bool {
	switch codeOf(rpctypes.Error(err)) {
	case codes.InvalidArgument, codes.PermissionDenied:
		return true
	default:
		return tooLarge(err) || errors.Is(rpctypes.Error(err), rpctypes.ErrNoSpace) && len(reads(changes)) > 0
	}
}

// tooLarge holds for the error of gRPC itself, here or at the server, for a request over its limit. etcd reports that by
// InvalidArgument, and uses gRPC's code for what passes.
func tooLarge(err error) bool {
	return codeOf(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "message larger than max")
}
