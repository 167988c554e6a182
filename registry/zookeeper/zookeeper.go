package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// sessionTimeout is the most that servers grant by default. The client takes a connection for lost that was silent for two
// thirds of it; dropIfSilent is quicker if a call waits.
const sessionTimeout = 40 * time.Second

// Registry writes entries into ZooKeeper. It is safe for concurrent use, and keeps nothing about instances that a call depends on.
type Registry struct {
	session       *session
	tree          tree
	opts          Options
	acl           []zk.ACL
	authenticates bool
	locks         driverkit.Locks
	fence         fence
	others        driverkit.Others
	folders       folders
}

var (
	_ registry.Constructor = New
	_ registry.Lister      = (*Registry)(nil)
	_ registry.Getter      = (*Registry)(nil)
	_ registry.Batcher     = (*Registry)(nil)
	_ io.Closer            = (*Registry)(nil)
)

// New makes a driver for the ZooKeeper at cfg.Endpoint, which has the form of ZooKeeper's own clients:
// host:port,host:port/chroot. It begins to connect, and does not wait for it. Of cfg.Auth it takes user and password, for
// the scheme digest.
func New(ctx context.Context, cfg registry.Config) (registry.Registry, error) {
	servers, chroot, endpointErr := parseEndpoint(cfg)
	opts, optionsErr := readOptions(cfg)
	digest, digestErr := readDigest(cfg.Auth)
	tlsConfig, filesErr := driverkit.ClientTLS(cfg.TLS)
	if err := errors.Join(endpointErr, optionsErr, digestErr, filesErr); err != nil {
		return nil, err
	}
	if !cfg.TLS.Given() {
		tlsConfig = nil
	}
	s, err := newSession(ctx, settings{
		servers: servers, timeout: sessionTimeout, connectBy: connectTimeout(cfg.Timeout), tls: tlsConfig, digest: digest,
		log: driverkit.Logger(cfg),
	})
	if err != nil {
		return nil, err
	}
	return &Registry{
		session: s, tree: newTree(chroot, opts.Base), opts: opts, acl: aclOf(opts), authenticates: digest != nil,
	}, nil
}

// connectTimeout leaves a call time for a second server if the first does not answer.
func connectTimeout(call time.Duration) time.Duration {
	const least, most = time.Second, 20 * time.Second
	if call == 0 {
		return most
	}
	return min(max(call/2, least), most) //nolint:mnd // a half
}

func readDigest(auth registry.Auth) ([]byte, error) {
	credentials, err := driverkit.ReadCredentials(auth, driverkit.Password)
	switch {
	case err != nil:
		return nil, err
	case auth.Username == "":
		return nil, nil
	case strings.Contains(auth.Username, ":"):
		return nil, registry.FieldError("auth.username", errors.New("must not hold a colon: ZooKeeper ends the name there"))
	}
	return []byte(auth.Username + ":" + credentials.Password), nil
}

// aclOf is for all that Rollcall creates.
func aclOf(opts Options) []zk.ACL {
	if opts.ACL == aclOpen {
		return zk.WorldACL(zk.PermAll)
	}
	return append(zk.AuthACL(zk.PermAll), zk.WorldACL(zk.PermRead)...)
}

// Register implements [registry.Registry].
func (r *Registry) Register(ctx context.Context, in registry.Instance) error {
	return r.change(ctx, registry.Change{Instance: in, State: registry.InService})
}

// FailOver implements [registry.Registry]. An instance that is not known stays unknown.
func (r *Registry) FailOver(ctx context.Context, in registry.Instance) error {
	return r.change(ctx, registry.Change{Instance: in, State: registry.OutOfService})
}

// Deregister implements [registry.Registry].
func (r *Registry) Deregister(ctx context.Context, in registry.Instance) error {
	return r.change(ctx, registry.Change{Instance: in, State: registry.Absent})
}

// Close drops the connection. Entries belong to no session, and stay.
func (r *Registry) Close() error {
	r.session.close()
	return nil
}

// change makes one change.
func (r *Registry) change(ctx context.Context, c registry.Change) error {
	return driverkit.Batch(ctx, []registry.Change{c}, r.prepare, func(one []prepared) []error {
		return []error{r.exclusively(ctx, []string{one[0].path}, func(ctx context.Context) error { return r.apply(ctx, one[0]) })}
	})[0]
}

// exclusively runs work while no other call works on these entries.
func (r *Registry) exclusively(ctx context.Context, paths []string, work func(context.Context) error) error {
	release, err := r.locks.Acquire(ctx, paths...)
	if err != nil {
		return err
	}
	return r.run(ctx, func(ctx context.Context) error {
		defer release()
		if err := r.raiseFence(ctx); err != nil {
			return err
		}
		return work(ctx)
	})
}

// run runs work and returns when it or the context ends. The client's requests take no context: one that is under way when
// the context ends continues until the server has answered or the connection is gone, which the client makes sure of within
// two thirds of the session's timeout. No other request is made after it.
func (r *Registry) run(ctx context.Context, work func(context.Context) error) error {
	started := time.Now()
	done := make(chan error, 1)
	go func() { done <- work(ctx) }()
	select {
	case err := <-done:
		return r.explain(err)
	case <-ctx.Done():
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		r.session.wire.dropIfSilent(started)
	}
	return fmt.Errorf("%w%s", ctx.Err(), r.session.excuse())
}
