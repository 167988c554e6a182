package etcd

import (
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestClasses(t *testing.T) {
	t.Parallel()
	handshake := func(text string) error {
		return status.Error(codes.Unavailable, `connection error: desc = "`+text+`"`)
	}
	type row struct {
		reason   string
		err      error
		terminal bool
		field    string
		late     bool // it may still be carried out
	}
	expect.Each(t, map[string]row{
		"password":     {"it stays wrong", rpctypes.ErrGRPCAuthFailed, true, "auth.passwordFile", false},
		"wrapped":      {"what was being done changes nothing", fmt.Errorf("logging in: %w", rpctypes.ErrAuthFailed), true, "auth.passwordFile", false},
		"no user":      {"it stays missing", rpctypes.ErrGRPCUserEmpty, true, "auth.username", false},
		"permission":   {"a person has to grant it", rpctypes.ErrGRPCPermissionDenied, true, "", false},
		"too large":    {"it stays too large", rpctypes.ErrGRPCRequestTooLarge, true, "", false},
		"token":        {"it expires, and there are others", rpctypes.ErrGRPCInvalidAuthToken, false, "", false},
		"old revision": {"roles have changed meanwhile", rpctypes.ErrGRPCAuthOldRevision, false, "", false},
		"no leader":    {"there will be one", rpctypes.ErrGRPCNoLeader, false, "", false},
		"no space":     {"somebody will make some", rpctypes.ErrGRPCNoSpace, false, "", false},
		"too many":     {"it is a matter of time", rpctypes.ErrGRPCRequestTooManyRequests, false, "", false},
		"compacted":    {"the next list reads a newer revision", rpctypes.ErrGRPCCompacted, false, "", false},
		"lease gone":   {"the next call gets another", rpctypes.ErrGRPCLeaseNotFound, false, "", false},
		"refused":      {"a server that is away comes back", handshake("transport: Error while dialing: dial tcp: connection refused"), false, "", false},
		"certificate":  {"ours is not good there", handshake("error reading server preface: remote error: tls: bad certificate"), true, "tls.certFile", false},
		"authority": {
			"theirs is not good here",
			handshake("tls: failed to verify certificate: x509: certificate signed by unknown authority"), true, "tls.caFile", false,
		},
		"another name": {
			"theirs is good for another host than the endpoint's",
			handshake("tls: failed to verify certificate: x509: certificate is valid for etcd-0.etcd, not etcd.example.com"), true, "endpoint", false,
		},
		"no name": {
			"so it is where it is good for none",
			handshake("tls: failed to verify certificate: x509: cannot validate certificate for 10.0.0.1 because it doesn't contain any IP SANs"),
			true, "endpoint", false,
		},
		"old": {
			"theirs stays so until it is replaced",
			handshake("tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time is after"), true, "endpoint", false,
		},
		"given up":          {"it waited for a majority", rpctypes.ErrGRPCTimeout, false, "", true},
		"leader lost":       {"the next leader may have it", rpctypes.ErrGRPCTimeoutDueToLeaderFail, false, "", true},
		"connection lost":   {"so it is with a member", rpctypes.ErrGRPCTimeoutDueToConnectionLost, false, "", true},
		"ended by a member": {"it knows the time that the call has", status.Error(codes.Canceled, "RST_STREAM"), false, "", true},
		"ended as it was up": {
			"gRPC sees by the clock that it is, before the context does", status.Error(codes.DeadlineExceeded, "RST_STREAM"), false, "", true,
		},
		"cut": {"a member may have it", status.Error(codes.Unavailable, "error reading from server: EOF"), false, "", true},
		"silent": {
			"so it is where that no longer answers", status.Error(codes.Unavailable, "keepalive ping failed to receive ACK within timeout"), false, "", true,
		},
		"stopped": {"the member that stops may have passed it on", rpctypes.ErrGRPCStopped, false, "", true},
		"gateway": {
			"nginx had no answer in time",
			status.Error(codes.Unavailable, "unexpected HTTP status code received from server: 504 (Gateway Timeout)"), false, "", true,
		},
		"Envoy": {"so had Envoy", status.Error(codes.Unavailable, "upstream request timeout"), false, "", true},
		"reset": {
			"a proxy ended the stream",
			status.Error(codes.Internal, "stream terminated by RST_STREAM with error code: INTERNAL_ERROR"), false, "", true,
		},
		"no address": {"it was never sent", status.Error(codes.Unavailable, "name resolver error: produced zero addresses"), false, "", false},
		"unknown":    {"an unknown error may pass, and what was sent be carried out", errors.New("odd"), false, "", true},
		"gRPC":       {"so may what gRPC does not know", status.Error(codes.Unknown, "odd"), false, "", true},
	}, func(t *testing.T, tc row) {
		err := classify(tc.err)
		field, _ := registry.FieldOf(err)
		var late interface{ Timeout() bool }
		if (registry.CodeOf(err) == registry.CodeTerminal) != tc.terminal || field != tc.field || errors.As(err, &late) != tc.late {
			t.Errorf("%s: terminal %t with field %q, a time-out: %t, want %t, %q and %t: %v",
				tc.reason, registry.CodeOf(err) == registry.CodeTerminal, field, late != nil, tc.terminal, tc.field, tc.late, err)
		}
	})
	if classify(nil) != nil {
		t.Error("no error is one")
	}
}
