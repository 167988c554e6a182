package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/credentials"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/metadata"

	"github.com/rollcall-dev/rollcall/registry"
)

const (
	// maxAnswer bounds one answer, in bytes; etcd's own limit for a request is 1.5 MiB.
	maxAnswer = 64 << 20
	// A connection that answers no ping for pingTimeout is given up. etcd forbids more than one ping in 5 seconds.
	pingEvery, pingTimeout = 10 * time.Second, 5 * time.Second
	// reconnectEvery is the longest pause between two attempts to connect: a server that is back must not look as if it
	// were still away. By itself gRPC lets it grow to two minutes.
	reconnectEvery = time.Second
	// dialTimeout bounds one attempt to connect.
	dialTimeout = 5 * time.Second
)

// connect makes a client. It connects when the first call needs it.
func connect(
	endpoints []*url.URL, tlsConfig *tls.Config, bundle credentials.PerRPCCredentialsBundle, outgoing outgoing,
) (*clientv3.Client, error) {
	var urls []string
	for _, u := range endpoints {
		urls = append(urls, u.Scheme+"://"+u.Host)
	}
	return clientv3.New(clientv3.Config{
		Endpoints:            urls,
		TLS:                  tlsConfig,
		DialKeepAliveTime:    pingEvery,
		DialKeepAliveTimeout: pingTimeout,
		MaxCallRecvMsgSize:   maxAnswer,
		MaxUnaryRetries:      1, // counts the first
		Logger:               zap.NewNop(),
		DialOptions: []grpc.DialOption{
			grpc.WithPerRPCCredentials(bundle.PerRPCCredentials()),
			grpc.WithChainUnaryInterceptor(outgoing.unary, promptUnary),
			grpc.WithChainStreamInterceptor(promptStream),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: reconnectEvery / 10, Multiplier: 1.6, Jitter: 0.2, MaxDelay: reconnectEvery},
				MinConnectTimeout: dialTimeout,
			}),
		},
	})
}

// outgoing is [registry.Config.Outgoing]. Which server a request goes to is for gRPC to choose.
type outgoing func(context.Context, *url.URL) map[string]string

func (o outgoing) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker,
	opts ...grpc.CallOption,
) error {
	if o != nil {
		var pairs []string
		for key, value := range o(ctx, nil) {
			pairs = append(pairs, key, value)
		}
		ctx = metadata.AppendToOutgoingContext(ctx, pairs...)
	}
	return next(ctx, method, req, reply, cc, opts...)
}

// checkEndpoints refuses what etcd's client would overlook.
func checkEndpoints(endpoints []*url.URL) error {
	for _, u := range endpoints {
		switch {
		case u.Port() == "":
			return registry.FieldError("endpoint", errors.New("has no port; use URLs like https://etcd.example.com:2379"))
		case u.Path != "" && u.Path != "/":
			return registry.FieldError("endpoint", errors.New("must not have a path; use URLs like https://etcd.example.com:2379"))
		}
	}
	return nil
}

// promptUnary makes a call fail if there is no connection to be had; the client would wait for its deadline.
func promptUnary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker,
	opts ...grpc.CallOption,
) error {
	return next(ctx, method, req, reply, cc, append(opts, grpc.WaitForReady(false))...)
}

// promptStream is promptUnary for streams.
func promptStream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer,
	opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	return next(ctx, desc, cc, method, append(opts, grpc.WaitForReady(false))...)
}

// login keeps the token that etcd gives for a user and password. Without a user there is none.
type login struct {
	username, password string
	bundle             credentials.PerRPCCredentialsBundle
	// turn is held while logging in: a password costs etcd much to check, and one login does for all.
	turn  chan struct{}
	token string // guarded by turn
	made  bool   // guarded by turn
}

func newLogin(username, password string) *login {
	return &login{
		username: username, password: password,
		bundle: credentials.NewPerRPCCredentialBundle(), turn: make(chan struct{}, 1),
	}
}

// do makes a call, logged in. A call that etcd has not carried out because it no longer knows the token is made once more
// with a new one.
func (l *login) do(ctx context.Context, auth clientv3.Auth, call func() error) error {
	if l.username == "" {
		return call()
	}
	used, err := l.ensure(ctx, auth, nil)
	if err != nil {
		return err
	}
	err = call()
	if !loginLost(err) && (used != "" || !loginMissing(err)) {
		return err
	}
	if _, err := l.ensure(ctx, auth, &used); err != nil {
		return err
	}
	return call()
}

// loginMissing holds for etcd's answer to a call without a token if authentication is on, maybe turned on since the
// login. With client certificates it takes the name in Rollcall's for the user, and knows no such user.
func loginMissing(err error) bool {
	err = rpctypes.Error(err)
	return errors.Is(err, rpctypes.ErrUserEmpty) || errors.Is(err, rpctypes.ErrPermissionDenied)
}

// ensure returns the token, which is a new one if there is none yet, or still the one that was refused.
func (l *login) ensure(ctx context.Context, auth clientv3.Auth, refused *string) (string, error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if l.made && (refused == nil || *refused != l.token) {
		return l.token, nil
	}
	answer, err := auth.Authenticate(ctx, l.username, l.password)
	switch {
	case errors.Is(rpctypes.Error(err), rpctypes.ErrAuthNotEnabled): // etcd wants no password
		l.token = ""
	case err != nil:
		return "", fmt.Errorf("logging in: %w", err)
	default:
		l.token = answer.Token
	}
	l.made = true
	l.bundle.UpdateAuthToken(l.token)
	return l.token, nil
}
