package etcd_test

import (
	"context"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestABatchOverGRPCsLimits is undone: each of its changes may fit by itself.
func TestABatchOverGRPCsLimits(t *testing.T) {
	t.Parallel()
	server := grpc.NewServer(grpc.MaxRecvMsgSize(1 << 20))
	pb.RegisterKVServer(server, &member{})
	endpoint := "http://" + drivertest.ServeGRPC(t, server)
	type row struct {
		reason string
		each   int // how many bytes each of three has
	}
	expect.Each(t, map[string]row{
		"the server's": {"--max-request-bytes is lower there", 600 << 10},
		"the client's": {"it is etcd's own default", 900 << 10},
	}, func(t *testing.T, tc row) {
		d := open(t, registry.Config{Endpoint: endpoint})
		var changes []registry.Change
		for i := range 3 {
			in := pod(i + 1)
			in.Metadata = map[string]string{"note": strings.Repeat("x", tc.each)}
			changes = append(changes, registry.Change{Instance: in, State: registry.InService})
		}
		for i, err := range d.Batch(t.Context(), changes) {
			if registry.CodeOf(err) != registry.CodeNotApplied {
				t.Errorf("change %d: got error %v, want one of a change that was not made\nreason: %s", i, err, tc.reason)
			}
		}
		changes[0].Instance.Metadata["note"] = strings.Repeat("x", 3*tc.each)
		if err := d.Batch(t.Context(), changes[:1])[0]; registry.CodeOf(err) != registry.CodeTerminal {
			t.Errorf("an instance that is as large: got error %v, want a terminal one", err)
		}
	})
}

// fullServer has the alarm NOSPACE: it removes and reads, and takes nothing more.
type fullServer struct{ member }

func (s *fullServer) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	for _, op := range r.GetSuccess() {
		if op.GetRequestPut() != nil {
			return nil, rpctypes.ErrGRPCNoSpace
		}
	}
	return s.member.Txn(ctx, r)
}

func (s *fullServer) LeaseGrant(context.Context, *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	return nil, rpctypes.ErrGRPCNoSpace
}

// TestRemovalsFromAFullDatabase are undone in a batch with a registration, and made by themselves. Registrations wait together.
func TestRemovalsFromAFullDatabase(t *testing.T) {
	t.Parallel()
	expect.Each(t, map[string]string{"no lease": `{}`, "a lease": `{"lease": "60s"}`}, func(t *testing.T, options string) {
		in, s, server := pod(1), &fullServer{}, grpc.NewServer()
		s.value = entryOf(t, in)
		pb.RegisterKVServer(server, s)
		pb.RegisterLeaseServer(server, s)
		d := open(t, registry.Config{Endpoint: "http://" + drivertest.ServeGRPC(t, server), Options: []byte(options)})
		for i, err := range d.Batch(t.Context(), []registry.Change{
			{Instance: pod(2), State: registry.InService}, {Instance: in, State: registry.Absent},
		}) {
			if registry.CodeOf(err) != registry.CodeNotApplied {
				t.Errorf("change %d: got error %v, want one of a change that was not made", i, err)
			}
		}
		expect.NoError(t, d.Deregister(t.Context(), in))
		for i, err := range d.Batch(t.Context(), []registry.Change{
			{Instance: pod(2), State: registry.InService}, {Instance: pod(3), State: registry.InService},
		}) {
			if _, answered := registry.RetryAfterOf(err); !answered || registry.CodeOf(err) == registry.CodeTerminal || registry.CodeOf(err) == registry.CodeNotApplied {
				t.Errorf("registration %d: got error %v, want one that passes and opens no breaker, and is not made again at once", i, err)
			}
		}
	})
}
