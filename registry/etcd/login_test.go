package etcd_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/etcd"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// fakeServer is what an etcd does with tokens, and writes down what it is asked. What etcd itself makes of passwords and
// entries is tested on a real one.
type fakeServer struct {
	pb.UnimplementedAuthServer
	pb.UnimplementedKVServer

	refusal error // of a token that is not good

	mu     sync.Mutex
	good   string // the token that is good; empty: none
	logins int
	writes int            // carried out
	asked  map[string]int // writes by the token they came with
	reject bool           // all tokens are refused
}

func (s *fakeServer) Authenticate(context.Context, *pb.AuthenticateRequest) (*pb.AuthenticateResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logins++
	s.good = fmt.Sprintf("token-%d", s.logins)
	return &pb.AuthenticateResponse{Token: s.good}, nil
}

func (s *fakeServer) Txn(ctx context.Context, _ *pb.TxnRequest) (*pb.TxnResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	token := "none"
	if md, _ := metadata.FromIncomingContext(ctx); len(md.Get(rpctypes.TokenFieldNameGRPC)) > 0 {
		token = md.Get(rpctypes.TokenFieldNameGRPC)[0]
	}
	s.asked[token]++
	if s.reject || token != s.good {
		return nil, s.refusal
	}
	s.writes++
	return &pb.TxnResponse{Header: &pb.ResponseHeader{}, Succeeded: true}, nil
}

// forget makes all tokens invalid, as a restart does.
func (s *fakeServer) forget(reject bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.good, s.reject = "", reject
}

func (s *fakeServer) expect(t *testing.T, when string, logins, writes int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.logins != logins || s.writes != writes {
		t.Errorf("%s: %d logins and %d writes, want %d and %d", when, s.logins, s.writes, logins, writes)
	}
}

func serve(t *testing.T, refusal error) (*fakeServer, *etcd.Registry) {
	t.Helper()
	s := &fakeServer{refusal: refusal, asked: map[string]int{}}
	server := grpc.NewServer()
	pb.RegisterAuthServer(server, s)
	pb.RegisterKVServer(server, s)
	return s, open(t, registry.Config{
		Endpoint: "http://" + drivertest.ServeGRPC(t, server),
		Auth:     registry.Auth{Username: "u", PasswordFile: drivertest.File(t, "secret")},
	})
}

func open(t *testing.T, cfg registry.Config) *etcd.Registry {
	t.Helper()
	return drivertest.Open[*etcd.Registry](t, etcd.New, cfg)
}

func pod(n int) registry.Instance {
	return registry.Instance{
		Service: "web", Address: "10.0.0.1", Port: 1000 + n,
		Cluster: "c", Namespace: "n", Pod: fmt.Sprintf("web-%d", n), UID: fmt.Sprintf("uid-%d", n),
	}
}

// registerAll makes many calls at once.
func registerAll(t *testing.T, d *etcd.Registry, n int) {
	t.Helper()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if err := d.Register(t.Context(), pod(i)); err != nil {
				t.Errorf("call %d: %v", i, err)
			}
		})
	}
	all.Wait()
}

func TestManyCallsLogInOnce(t *testing.T) {
	t.Parallel()
	expect.Each(t, map[string]error{
		"restart": rpctypes.ErrGRPCInvalidAuthToken, "roles changed": rpctypes.ErrGRPCAuthOldRevision,
	}, func(t *testing.T, refusal error) {
		s, d := serve(t, refusal)
		s.expect(t, "before the first call", 0, 0)
		registerAll(t, d, 50)
		s.expect(t, "after fifty calls at once, and the fence", 1, 51)
		s.forget(false)
		registerAll(t, d, 50)
		s.expect(t, "after fifty more, whose token is not known any more", 2, 101)
	})
}

// TestRefusedTokenIsRenewedOnce: a call is made once more with a new token, and no third time.
func TestRefusedTokenIsRenewedOnce(t *testing.T) {
	t.Parallel()
	s, d := serve(t, rpctypes.ErrGRPCInvalidAuthToken)
	registerAll(t, d, 1)
	s.forget(true)
	drivertest.Passes(t, "the token was new", d.Register(t.Context(), pod(1)), "")
	s.expect(t, "after the refused call", 2, 2)
	if s.asked["token-1"] != 3 || s.asked["token-2"] != 1 {
		t.Errorf("the calls came with %v, want one more with the old token and one with the new", s.asked)
	}
	s.forget(false)
	registerAll(t, d, 1)
}
