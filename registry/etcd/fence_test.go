package etcd_test

import (
	"context"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/etcd"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

const fenceKey = "services/~rollcall"

// frozenServer has nothing but the fence's key. The first registration is with a member that is frozen.
type frozenServer struct {
	pb.UnimplementedKVServer

	refusal error // to write the fence

	mu              sync.Mutex
	revision, fence int64
	held            *pb.TxnRequest
}

func (s *frozenServer) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if s.holds(r) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.carryOut(r)
}

func (s *frozenServer) holds(r *pb.TxnRequest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held != nil || string(r.GetSuccess()[0].GetRequestPut().GetKey()) == fenceKey {
		return false
	}
	s.held = r
	return true
}

func (s *frozenServer) hasOne() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held != nil
}

func (s *frozenServer) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	return &pb.RangeResponse{Header: &pb.ResponseHeader{}}, nil
}

func (s *frozenServer) carryOut(r *pb.TxnRequest) (*pb.TxnResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	answer := &pb.TxnResponse{Header: &pb.ResponseHeader{Revision: s.revision}, Succeeded: true}
	for _, c := range r.GetCompare() {
		if string(c.GetKey()) == fenceKey && c.GetModRevision() != s.fence {
			answer.Succeeded = false
		}
	}
	ops := r.GetSuccess()
	if !answer.Succeeded {
		ops = r.GetFailure()
	}
	for _, op := range ops {
		to := &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{}}}
		read := &pb.RangeResponse{}
		switch {
		case string(op.GetRequestPut().GetKey()) == fenceKey && s.refusal != nil:
			return nil, s.refusal
		case string(op.GetRequestPut().GetKey()) == fenceKey:
			s.fence = s.revision
		case op.GetRequestRange() != nil:
			if string(op.GetRequestRange().GetKey()) == fenceKey && s.fence > 0 {
				read.Kvs = []*mvccpb.KeyValue{{Key: []byte(fenceKey), ModRevision: s.fence}}
			}
			to.Response = &pb.ResponseOp_ResponseRange{ResponseRange: read}
		}
		answer.Responses = append(answer.Responses, to)
	}
	return answer, nil
}

// TestARegistrationThatWasGivenUp is not carried out any more once another call has returned, however long the member was frozen.
func TestARegistrationThatWasGivenUp(t *testing.T) {
	t.Parallel()
	type row struct {
		reason  string
		then    func(context.Context, *etcd.Registry) error
		refusal error
		another bool // another driver calls
		want    bool // it can still be carried out
	}
	removes := func(ctx context.Context, d *etcd.Registry) error { return d.Deregister(ctx, pod(1)) }
	expect.Each(t, map[string]row{
		"a removal": {reason: "the hook may be released", then: removes},
		"a read": {reason: "so it may if the read shows that the pod is out", then: func(ctx context.Context, d *etcd.Registry) error {
			_, err := d.Get(ctx, pod(1))
			return err
		}},
		"a list": {reason: "the same", then: func(ctx context.Context, d *etcd.Registry) error {
			_, err := d.List(ctx, "test")
			return err
		}},
		"a registration": {reason: "it must not wait for the one before", then: func(ctx context.Context, d *etcd.Registry) error {
			return d.Register(ctx, pod(2))
		}},
		"a removal by the next leader, or after a reload": {reason: "it can't know what was given up", another: true, then: removes},
		"a full database": {reason: "removals must be made, and nothing is put", then: removes, refusal: rpctypes.ErrGRPCNoSpace, want: true},
		"no permission":   {reason: "the role may be of an older version's manual", then: removes, refusal: rpctypes.ErrGRPCPermissionDenied, want: true},
	}, func(t *testing.T, tc row) {
		s, server := &frozenServer{refusal: tc.refusal}, grpc.NewServer()
		pb.RegisterKVServer(server, s)
		config := registry.Config{Endpoint: "http://" + drivertest.ServeGRPC(t, server)}
		d := open(t, config)
		ctx, giveUp := context.WithCancel(t.Context())
		given := make(chan error, 1)
		go func() { given <- d.Register(ctx, pod(1)) }()
		expect.Becomes(t, "the member to have a registration", s.hasOne)
		giveUp()
		if <-given == nil {
			t.Error("the member is frozen, and the registration has succeeded")
		}
		next := d
		if tc.another {
			next = open(t, config)
		}
		expect.NoError(t, tc.then(t.Context(), next))
		answer, err := s.carryOut(s.held)
		expect.NoError(t, err)
		expect.Equal(t, tc.want, answer.GetSucceeded(), "the registration was carried out: %s", tc.reason)
		if tc.refusal == nil {
			expect.NoError(t, d.Register(t.Context(), pod(1)))
		}
	})
}
