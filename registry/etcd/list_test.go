package etcd_test

import (
	"context"
	"fmt"
	"sort"
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

// pagedServer has more entries than one page, and at its own pace moves on to another revision after each request.
type pagedServer struct {
	pb.UnimplementedKVServer

	mu        sync.Mutex
	entries   []*mvccpb.KeyValue // by key, as they are at the first revision
	revision  int64
	compacted int // how often the revision of the first page is gone when the second one is asked for
	asked     []*pb.RangeRequest
}

func (s *pagedServer) Range(_ context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r)
	now := s.revision
	s.revision++
	switch {
	case s.compacted > 0 && r.GetRevision() != 0:
		s.compacted--
		return nil, rpctypes.ErrGRPCCompacted
	case r.GetRevision() == 0 && string(r.GetKey()) != string(s.asked[0].GetKey()): // everything has gone meanwhile
		return &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: now}}, nil
	}
	from := sort.Search(len(s.entries), func(i int) bool { return string(s.entries[i].GetKey()) >= string(r.GetKey()) })
	until := min(from+int(r.GetLimit()), len(s.entries))
	return &pb.RangeResponse{
		Header: &pb.ResponseHeader{Revision: now}, Kvs: s.entries[from:until], More: until < len(s.entries),
	}, nil
}

func servePages(t *testing.T, entries, compacted int) (*pagedServer, *etcd.Registry) {
	t.Helper()
	s := &pagedServer{revision: 7, compacted: compacted}
	for i := range entries {
		in := pod(10000 + i)
		s.entries = append(s.entries, &mvccpb.KeyValue{
			Key: fmt.Appendf(nil, "services/web/%s", in.Endpoint()),
			Value: fmt.Appendf(nil, `{"Op":0,"Addr":%q,"Metadata":{"rollcall-cluster":"c","rollcall-namespace":"n","rollcall-pod":%q,`+
				`"rollcall-uid":%q}}`, in.Endpoint(), in.Pod, in.UID),
		})
	}
	server := grpc.NewServer()
	pb.RegisterKVServer(server, s)
	return s, open(t, registry.Config{Endpoint: "http://" + drivertest.ServeGRPC(t, server)})
}

func TestPagesAreOfOneRevision(t *testing.T) {
	t.Parallel()
	const entries = 2500
	s, d := servePages(t, entries, 0)
	got, err := d.List(t.Context(), "c")
	if err != nil || len(got) != entries {
		t.Fatalf("got %d entries and error %v, want %d", len(got), err, entries)
	}
	seen := map[int]bool{}
	for _, e := range got {
		seen[e.Port] = true
	}
	expect.Equal(t, entries, len(seen), "different entries")
	for i, r := range s.asked {
		if want := int64(min(i, 1) * 7); r.GetRevision() != want {
			t.Errorf("page %d was asked for at revision %d, want %d", i, r.GetRevision(), want)
		}
		if r.GetSerializable() {
			t.Errorf("page %d may be an old answer", i)
		}
	}
}

// TestAListBeginsAgainIfItIsCompacted: the next one is a minute away.
func TestAListBeginsAgainIfItIsCompacted(t *testing.T) {
	t.Parallel()
	const entries = 2500
	_, d := servePages(t, entries, 2)
	got, err := d.List(t.Context(), "c")
	if err != nil || len(got) != entries {
		t.Errorf("got %d entries and error %v, want %d, each once", len(got), err, entries)
	}
}

// TestHalfAListIsNone: what is missing from a list may be registered forever, or removed.
func TestHalfAListIsNone(t *testing.T) {
	t.Parallel()
	_, d := servePages(t, 2500, 100)
	got, err := d.List(t.Context(), "c")
	drivertest.Passes(t, "a part is not the list", err, "")
	expect.Equal(t, 0, len(got), "entries")
}
