package etcd_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/etcd"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// member is one of a cluster that has the entry of a pod, with a lease.
type member struct {
	pb.UnimplementedKVServer
	pb.UnimplementedLeaseServer

	value []byte
	// trouble is what the member has, if any, before it answers.
	trouble func(context.Context) error

	reads, renewals, transactions, leaderless atomic.Int32 // requests, and those that any member may answer that has no leader
}

func (m *member) note(ctx context.Context, requests *atomic.Int32) error {
	requests.Add(1)
	if md, _ := metadata.FromIncomingContext(ctx); len(md.Get(rpctypes.MetadataRequireLeaderKey)) == 0 {
		m.leaderless.Add(1)
	}
	if m.trouble == nil {
		return nil
	}
	return m.trouble(ctx)
}

func (m *member) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	if err := m.note(ctx, &m.reads); err != nil {
		return nil, err
	}
	return m.holds(r), nil
}

func (m *member) LeaseKeepAlive(stream grpc.BidiStreamingServer[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]) error {
	asked, err := stream.Recv()
	if err != nil {
		return err
	}
	if err := m.note(stream.Context(), &m.renewals); err != nil {
		return err
	}
	return stream.Send(&pb.LeaseKeepAliveResponse{Header: &pb.ResponseHeader{}, ID: asked.GetID(), TTL: 60})
}

// Txn reads, or removes what it is asked to.
func (m *member) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if err := m.note(ctx, &m.transactions); err != nil {
		return nil, err
	}
	answer := &pb.TxnResponse{Header: &pb.ResponseHeader{}, Succeeded: true}
	for _, op := range r.GetSuccess() {
		to := &pb.ResponseOp{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: &pb.DeleteRangeResponse{}}}
		if read := op.GetRequestRange(); read != nil {
			to.Response = &pb.ResponseOp_ResponseRange{ResponseRange: m.holds(read)}
		}
		answer.Responses = append(answer.Responses, to)
	}
	return answer, nil
}

func (m *member) holds(r *pb.RangeRequest) *pb.RangeResponse {
	return &pb.RangeResponse{Header: &pb.ResponseHeader{}, Kvs: []*mvccpb.KeyValue{{Key: r.GetKey(), Value: m.value, Lease: 7}}}
}

// hang is what a member does that waits for its peers or its disk: connections to it stay up.
func hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// entryOf is the value of an instance's key.
func entryOf(t *testing.T, in registry.Instance) []byte {
	t.Helper()
	value, err := json.Marshal(map[string]any{"Op": 0, "Addr": in.Endpoint(), "Metadata": in.Meta()})
	expect.NoError(t, err)
	return value
}

// cluster serves the entry of an instance by members, the first of which has trouble.
func cluster(t *testing.T, in registry.Instance, size int, trouble func(context.Context) error) (*etcd.Registry, []*member) {
	t.Helper()
	value := entryOf(t, in)
	var members []*member
	var urls []string
	for range size {
		m := &member{value: value}
		server := grpc.NewServer()
		pb.RegisterKVServer(server, m)
		pb.RegisterLeaseServer(server, m)
		members, urls = append(members, m), append(urls, "http://"+drivertest.ServeGRPC(t, server))
	}
	members[0].trouble = trouble
	return open(t, registry.Config{Endpoint: strings.Join(urls, ","), Options: []byte(`{"lease":"60s"}`)}), members
}

// TestCallsPassOverAMemberThatDoesNotServe has a connection to each member.
func TestCallsPassOverAMemberThatDoesNotServe(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second
	type row struct {
		reason  string
		trouble func(context.Context) error
		// forChanges is how long a change may take.
		forChanges time.Duration
	}
	expect.Each(t, map[string]row{
		"it hangs":         {"its disk stalls", hang, timeout / 8},
		"it has no leader": {"it says so of a request that wants one", func(context.Context) error { return rpctypes.ErrGRPCNoLeader }, timeout},
		"it ends calls": {
			"their time is up there a moment before it is here",
			func(context.Context) error { return status.Error(codes.Canceled, "RST_STREAM") }, timeout,
		},
	}, func(t *testing.T, tc row) {
		in := pod(1)
		d, members := cluster(t, in, 4, tc.trouble) // with three, only reads would come to the first
		within := func(timeout time.Duration, call func(context.Context) error) error {
			ctx := drivertest.Within(t, timeout)
			return call(ctx)
		}
		beat := func(ctx context.Context) error { return d.Heartbeat(ctx, in) }
		get := func(ctx context.Context) error { _, err := d.Get(ctx, in); return err }
		remove := func(ctx context.Context) error { return d.Deregister(ctx, in) }
		expect.Soon(t, "all members are connected", func() error {
			err := within(timeout/8, beat)
			for i, m := range members {
				if m.reads.Load() == 0 {
					return fmt.Errorf("none of the reads came to member %d: %w", i, err)
				}
			}
			return nil
		})
		for i := range 8 {
			if err := within(timeout, beat); err != nil {
				t.Errorf("heartbeat %d: %v\nreason: %s", i, err, tc.reason)
			}
		}
		for i := range 6 {
			for range i % len(members) { // so that each kind of request comes to each member
				if err := within(timeout, get); err != nil {
					t.Errorf("read %d: %v\nreason: %s", i, err, tc.reason)
				}
			}
			// A change is not repeated. So it is lost at a member that hangs, and not at one that says that it has no leader.
			if err := within(tc.forChanges, remove); errors.Is(err, context.DeadlineExceeded) && tc.forChanges == timeout {
				t.Errorf("removal %d: %v\nreason: %s", i, err, tc.reason)
			}
		}
		if members[0].renewals.Load() == 0 || members[0].transactions.Load() == 0 {
			t.Error("no renewal or no change came to the member that does not serve, so that the test proves half")
		}
		for i, m := range members {
			if n := m.leaderless.Load(); n > 0 {
				t.Errorf("%d requests would be answered by member %d while it has no leader, and hang there", n, i)
			}
		}
	})
}

// TestHeartbeatFailsWhereNoMemberServes: it is the caller who tries again.
func TestHeartbeatFailsWhereNoMemberServes(t *testing.T) {
	t.Parallel()
	d, members := cluster(t, pod(1), 1, hang)
	ctx := drivertest.Within(t, 2*time.Second)
	if err := d.Heartbeat(ctx, pod(1)); !drivertest.MayLand(err) {
		t.Errorf("got %v of the only member, which hangs, want a time-out", err)
	}
	expect.Equal(t, 1, members[0].reads.Load(), "reads: the member has the whole time")
}

// TestAChangeWhoseConnectionIsCut may still be carried out: a proxy ended it, and the member has it.
func TestAChangeWhoseConnectionIsCut(t *testing.T) {
	t.Parallel()
	var server *grpc.Server
	m := &member{trouble: func(ctx context.Context) error {
		go server.Stop() // which closes connections, and waits for what is under way
		return hang(ctx)
	}}
	server = grpc.NewServer()
	pb.RegisterKVServer(server, m)
	d := open(t, registry.Config{Endpoint: "http://" + drivertest.ServeGRPC(t, server)})
	err := d.Register(t.Context(), pod(1))
	if !drivertest.MayLand(err) || m.transactions.Load() != 1 {
		t.Errorf("got error %v after %d requests, want one of a call that may still be carried out", err, m.transactions.Load())
	}
	err = d.Register(t.Context(), pod(1))
	if err == nil || drivertest.MayLand(err) {
		t.Errorf("got error %v of a member that is away, want one of a call that can't be carried out", err)
	}
}

// TestHeartbeatWaitsForSlowMembers: all members are slow when a disk that they share is, and one of them would answer in time.
func TestHeartbeatWaitsForSlowMembers(t *testing.T) {
	t.Parallel()
	const timeout = 5 * time.Second
	slow := func(ctx context.Context) error {
		select {
		case <-time.After(timeout / 4):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	d, members := cluster(t, pod(1), 4, slow)
	for _, m := range members {
		m.trouble = slow
	}
	ctx := drivertest.Within(t, timeout)
	expect.NoError(t, d.Heartbeat(ctx, pod(1)))
}
