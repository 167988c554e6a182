package etcd_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/etcd"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// keptServer keeps keys, and counts what it sends of them.
type keptServer struct {
	pb.UnimplementedKVServer

	mu      sync.Mutex
	header  *pb.ResponseHeader
	entries map[string]*mvccpb.KeyValue
	ranges  int // requests for more than one key
	sent    int // entries in the answers to them
	hold    chan struct{}
}

func serveKept(t *testing.T) (*keptServer, *etcd.Registry) {
	t.Helper()
	s := &keptServer{header: &pb.ResponseHeader{ClusterId: 7, RaftTerm: 2}, entries: map[string]*mvccpb.KeyValue{}}
	server := grpc.NewServer()
	pb.RegisterKVServer(server, s)
	return s, open(t, registry.Config{Endpoint: "http://" + drivertest.ServeGRPC(t, server)})
}

func (s *keptServer) put(key, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.header.Revision++
	s.entries[key] = &mvccpb.KeyValue{Key: []byte(key), Value: []byte(value), ModRevision: s.header.GetRevision()}
}

func (s *keptServer) delete(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.header.Revision++
	delete(s.entries, key)
}

func (s *keptServer) read(r *pb.RangeRequest) *pb.RangeResponse {
	answer := &pb.RangeResponse{Header: &pb.ResponseHeader{
		ClusterId: s.header.GetClusterId(), RaftTerm: s.header.GetRaftTerm(), Revision: s.header.GetRevision(),
	}}
	for key, kv := range s.entries {
		if key == string(r.GetKey()) || key > string(r.GetKey()) && key < string(r.GetRangeEnd()) && kv.GetModRevision() >= r.GetMinModRevision() {
			answer.Kvs = append(answer.Kvs, kv)
		}
	}
	slices.SortFunc(answer.Kvs, func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.GetKey(), b.GetKey()) })
	if limit := int(r.GetLimit()); limit > 0 && len(answer.GetKvs()) > limit {
		answer.Kvs, answer.More = answer.GetKvs()[:limit], true
	}
	return answer
}

func (s *keptServer) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	s.mu.Lock()
	hold := s.hold
	s.ranges++
	answer := s.read(r)
	s.sent += len(answer.GetKvs())
	s.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
		}
	}
	return answer, nil
}

// Txn reads, and takes the fence of a driver.
func (s *keptServer) Txn(_ context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := &pb.TxnResponse{Header: &pb.ResponseHeader{Revision: s.header.GetRevision()}, Succeeded: true}
	for _, op := range r.GetSuccess() {
		answer.Responses = append(answer.Responses, &pb.ResponseOp{
			Response: &pb.ResponseOp_ResponseRange{ResponseRange: s.read(op.GetRequestRange())},
		})
	}
	return answer, nil
}

// asked is how many requests for the service there were since, and how many entries their answers had.
func (s *keptServer) asked() (ranges, sent int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ranges, sent = s.ranges, s.sent
	s.ranges, s.sent = 0, 0
	return ranges, sent
}

// fill registers pods of the service.
func (s *keptServer) fill(pods int) {
	for i := range pods {
		in := pod(10000 + i)
		s.put("services/web/"+in.Endpoint(), fmt.Sprintf(`{"Op":0,"Addr":%q,"Metadata":{"rollcall-cluster":"c","rollcall-namespace":"n",`+
			`"rollcall-pod":%q,"rollcall-uid":%q}}`, in.Endpoint(), in.Pod, in.UID))
	}
}

func (s *keptServer) app(name string, at registry.Instance) (key string) {
	key = "services/web/" + name
	s.put(key, fmt.Sprintf(`{"Op":0,"Addr":%q}`, at.Endpoint()))
	return key
}

func expectState(t *testing.T, d *etcd.Registry, in registry.Instance, want registry.State, reason string) {
	t.Helper()
	got, err := d.Get(t.Context(), in)
	expect.NoError(t, err)
	if got != want {
		t.Errorf("got state %s, want %s: %s", got, want, reason)
	}
}

func TestGetReadsNoMoreOfALargeService(t *testing.T) {
	t.Parallel()
	s, d := serveKept(t)
	s.fill(2500)
	_, err := d.List(t.Context(), "c")
	expect.NoError(t, err)
	s.asked()
	for i := range 10 {
		expectState(t, d, pod(10000+i), registry.InService, "it was registered")
	}
	if ranges, sent := s.asked(); ranges != 10 || sent > 1 { // the driver's fence is written late
		t.Errorf("10 reads made %d requests for the service and were sent %d entries, want 10 and none", ranges, sent)
	}
}

func TestGetsBeforeAListReadAServiceOnce(t *testing.T) {
	t.Parallel()
	s, d := serveKept(t)
	s.fill(1500)
	for i := range 10 {
		expectState(t, d, pod(10000+i), registry.InService, "it was registered")
	}
	if ranges, sent := s.asked(); ranges != 11 || sent != 1500 {
		t.Errorf("10 reads made %d requests for the service and were sent %d entries, want 11 and 1500", ranges, sent)
	}
}

func TestGetsAtOneMomentShareAQuestion(t *testing.T) {
	t.Parallel()
	const together = 84
	s, d := serveKept(t)
	s.fill(together)
	s.hold = make(chan struct{})
	var all sync.WaitGroup
	for i := range together {
		all.Go(func() { expectState(t, d, pod(10000+i), registry.InService, "it was registered") })
	}
	expect.Becomes(t, "the service to be asked for", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.ranges > 0
	})
	close(s.hold)
	all.Wait()
	if ranges, _ := s.asked(); ranges > together/2 {
		t.Errorf("%d reads made %d requests for the service, want a few", together, ranges)
	}
}

func TestGetSeesOthersThatCameSince(t *testing.T) {
	t.Parallel()
	for name, learn := range map[string]func(*testing.T, *etcd.Registry){
		"a list": func(t *testing.T, d *etcd.Registry) {
			t.Helper()
			_, err := d.List(t.Context(), "c")
			expect.NoError(t, err)
		},
		"another read": func(t *testing.T, d *etcd.Registry) {
			t.Helper()
			expectState(t, d, pod(10001), registry.InService, "nobody else has its address")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, d := serveKept(t)
			s.fill(3)
			there := s.app("before", pod(10000))
			learn(t, d)
			expectState(t, d, pod(10000), registry.Foreign, "clients are given its address by another's key")
			came := s.app("since", pod(10001))
			expectState(t, d, pod(10001), registry.Foreign, "another has registered it since")
			expectState(t, d, pod(10002), registry.InService, "nobody else has its address")
			s.delete(there)
			s.delete(came)
			expectState(t, d, pod(10000), registry.InService, "the other key has gone")
			expectState(t, d, pod(10001), registry.InService, "the other key has gone")
		})
	}
}

// TestGetOfAnotherEtcd: an etcd that was restored or set up again has other revisions.
func TestGetOfAnotherEtcd(t *testing.T) {
	t.Parallel()
	for name, header := range map[string]*pb.ResponseHeader{
		"an earlier revision": {ClusterId: 7, RaftTerm: 2, Revision: 1},
		"an earlier term":     {ClusterId: 7, RaftTerm: 1, Revision: 1000},
		"another cluster":     {ClusterId: 8, RaftTerm: 2, Revision: 1000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, d := serveKept(t)
			s.fill(100)
			_, err := d.List(t.Context(), "c")
			expect.NoError(t, err)
			expectState(t, d, pod(10000), registry.InService, "it was registered")
			s.restore(&pb.ResponseHeader{}, pod(10000))
			s.setHeader(header)
			expectState(t, d, pod(10000), registry.Foreign, "the other etcd has an application's key, from before the revisions that were seen")
		})
	}
}

// restore has the server begin again with what an application has registered.
func (s *keptServer) restore(header *pb.ResponseHeader, at registry.Instance) {
	s.mu.Lock()
	s.entries = map[string]*mvccpb.KeyValue{}
	s.mu.Unlock()
	s.setHeader(header)
	s.app("restored", at)
}

func (s *keptServer) setHeader(header *pb.ResponseHeader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.header.ClusterId, s.header.RaftTerm, s.header.Revision = header.GetClusterId(), header.GetRaftTerm(), header.GetRevision()
}
