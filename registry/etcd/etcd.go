package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// pageSize is how many entries one request for a list asks for.
const pageSize = 1000

// Registry writes to etcd. It implements [registry.Registry], [registry.Lister], [registry.Getter],
// [registry.Heartbeater], [registry.Batcher] and io.Closer, and keeps nothing about its own entries. It is safe for concurrent use.
type Registry struct {
	client *clientv3.Client
	login  *login
	target target
	fence  *fence
	lease  time.Duration
	others *others
	// members is how many the endpoint names.
	members int
}

var (
	_ registry.Constructor = New
	_ registry.Lister      = (*Registry)(nil)
	_ registry.Getter      = (*Registry)(nil)
	_ registry.Heartbeater = (*Registry)(nil)
	_ registry.Batcher     = (*Registry)(nil)

	_ registry.Describer = (*Registry)(nil)
	_ io.Closer          = (*Registry)(nil)
)

// New makes a driver for the etcd cluster whose members' client URLs are in cfg.Endpoint, separated by commas. All files
// that cfg names are read now. cfg.Options is an [Options].
func New(_ context.Context, cfg registry.Config) (registry.Registry, error) {
	endpoints, endpointErr := driverkit.URLs(cfg)
	if endpointErr == nil {
		endpointErr = checkEndpoints(endpoints)
	}
	credentials, credentialsErr := driverkit.ReadCredentials(cfg.Auth, driverkit.Password)
	options, optionsErr := decodeOptions(cfg)
	target, targetErr := targetOf(options)
	var tlsConfig *tls.Config
	var filesErr error
	if len(endpoints) == 0 || endpoints[0].Scheme == "https" {
		tlsConfig, filesErr = driverkit.ClientTLS(cfg.TLS)
	}
	err := errors.Join(endpointErr, credentialsErr, optionsErr, registry.FieldError("options.target", targetErr), filesErr)
	if err != nil {
		return nil, err
	}
	login := newLogin(credentials.Username, credentials.Password)
	client, err := connect(endpoints, tlsConfig, login.bundle, cfg.Outgoing)
	if err != nil {
		return nil, registry.FieldError("endpoint", err)
	}
	return &Registry{
		client: client, login: login, target: target, fence: newFence(target),
		lease: time.Duration(options.Lease), members: len(endpoints),
		others: &others{},
	}, nil
}

// Traits implements [registry.Describer]. An entry is renewed three times in its lease.
func (r *Registry) Traits() registry.Traits {
	return registry.Traits{ReaderLag: r.target.format.lag, Weighs: r.target.format.weighs, HeartbeatInterval: r.lease / beatsPerLease}
}

// Register implements [registry.Registry].
func (r *Registry) Register(ctx context.Context, in registry.Instance) error {
	return r.Batch(ctx, []registry.Change{{Instance: in, State: registry.InService}})[0]
}

// FailOver implements [registry.Registry]. etcd's readers know no state: FailOver does what Deregister does.
func (r *Registry) FailOver(ctx context.Context, in registry.Instance) error {
	return r.Batch(ctx, []registry.Change{{Instance: in, State: registry.OutOfService}})[0]
}

// Deregister implements [registry.Registry].
func (r *Registry) Deregister(ctx context.Context, in registry.Instance) error {
	return r.Batch(ctx, []registry.Change{{Instance: in, State: registry.Absent}})[0]
}

// List implements [registry.Lister]. All pages are of one revision of etcd.
func (r *Registry) List(ctx context.Context, cluster string) ([]registry.Entry, error) {
	return driverkit.List(ctx, cluster, r.list)
}

func (r *Registry) list(ctx context.Context, cluster string) ([]registry.Entry, error) {
	entries, others := []registry.Entry{}, map[string]*known{}
	begin := func() {
		entries = entries[:0]
		clear(others)
	}
	answer, err := r.each(ctx, span{prefix: r.target.before}, begin, func(kv *mvccpb.KeyValue) {
		if in, ours := r.target.decode(kv); ours {
			if in.Cluster == cluster {
				entries = append(entries, registry.Entry{Instance: in, State: r.stateOf(kv)})
			}
			return
		}
		entries = append(entries, r.target.foreign(kv, cluster)...)
		for _, e := range r.target.foreignToAny(kv) {
			folder := r.target.folder(e.Instance)
			if others[folder] == nil {
				others[folder] = &known{}
			}
			others[folder].add(e.Endpoint(), string(kv.GetKey()))
		}
	})
	if err != nil {
		return nil, err
	}
	r.others.learnAll(others, answer)
	return entries, nil
}

// stateOf is an entry's state in the list. One with a lease, if the configuration has none any longer, ends soon since nothing
// renews it: it must not count as an acknowledgement.
func (r *Registry) stateOf(kv *mvccpb.KeyValue) registry.State {
	if r.lease == 0 && kv.GetLease() != 0 {
		return registry.OutOfService
	}
	return registry.InService
}

// maxReadings bounds how often all pages are read because etcd has compacted their revision meanwhile. It does so every few minutes.
const maxReadings = 3

// span are the keys with a prefix that were written after the revision since.
type span struct {
	prefix string
	since  int64
}

// each calls f for every key of a span, as they were at one revision, and begin before the first one: again if it begins again. It returns
// the header of the answer that has that revision. What is not there stays away, unless a call that is made afterwards puts it there.
func (r *Registry) each(ctx context.Context, of span, begin func(), f func(*mvccpb.KeyValue)) (at *pb.ResponseHeader, err error) {
	if err := r.endLost(ctx); err != nil {
		return nil, classify(err)
	}
	for range maxReadings {
		begin()
		if at, err = r.eachPage(ctx, of, f); !errors.Is(rpctypes.Error(err), rpctypes.ErrCompacted) {
			break
		}
	}
	return at, classify(err)
}

func (r *Registry) eachPage(ctx context.Context, of span, f func(*mvccpb.KeyValue)) (at *pb.ResponseHeader, err error) {
	from, end := of.prefix, clientv3.GetPrefixRangeEnd(of.prefix)
	if from == "" {
		from, end = "\x00", "\x00" // all there is
	}
	options := []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithLimit(pageSize)}
	if of.since > 0 {
		options = append(options, clientv3.WithMinModRev(of.since+1))
	}
	for {
		page, err := eachInTurn(ctx, r.members, func(ctx context.Context) (*clientv3.GetResponse, error) {
			return r.page(ctx, from, options)
		})
		if err != nil {
			return nil, err
		}
		if at == nil { // only the first: the answer's revision is always that of now
			at = page.Header
			options = append(options, clientv3.WithRev(at.GetRevision()))
		}
		for _, kv := range page.Kvs {
			f(kv)
		}
		if !page.More || len(page.Kvs) == 0 {
			return at, nil
		}
		from = string(page.Kvs[len(page.Kvs)-1].GetKey()) + "\x00"
	}
}

func (r *Registry) page(ctx context.Context, from string, options []clientv3.OpOption) (page *clientv3.GetResponse, err error) {
	err = r.do(ctx, func(ctx context.Context) (err error) {
		page, err = r.client.Get(ctx, from, options...)
		return err
	})
	return page, err
}

// do makes a call, logged in. The member must know a leader, or it answers that it has none: one that is cut off from its peers would
// have the call wait for its whole time.
func (r *Registry) do(ctx context.Context, call func(context.Context) error) error {
	ctx = clientv3.WithRequireLeader(ctx)
	return r.login.do(ctx, r.client.Auth, func() error { return call(ctx) })
}

// Close closes the connections. Entries stay, those with a lease until it ends.
func (r *Registry) Close() error {
	if err := r.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("closing the connections to etcd: %w", err)
	}
	return nil
}
