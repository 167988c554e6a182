package etcd

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestOthersOfAnotherEtcd: an etcd that was restored or set up again has other revisions.
func TestOthersOfAnotherEtcd(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer    *pb.ResponseHeader
		continues bool
		listed    int64
	}{
		"a later revision":    {&pb.ResponseHeader{ClusterId: 7, RaftTerm: 2, Revision: 101}, true, 100},
		"a later term":        {&pb.ResponseHeader{ClusterId: 7, RaftTerm: 3, Revision: 100}, true, 100},
		"an earlier revision": {&pb.ResponseHeader{ClusterId: 7, RaftTerm: 2, Revision: 99}, false, 100},
		"an earlier term":     {&pb.ResponseHeader{ClusterId: 7, RaftTerm: 1, Revision: 1000}, false, 0},
		"another cluster":     {&pb.ResponseHeader{ClusterId: 8, RaftTerm: 2, Revision: 1000}, false, 0},
	} {
		o := &others{}
		o.learnAll(map[string]*known{}, &pb.ResponseHeader{ClusterId: 7, RaftTerm: 2, Revision: 100})
		expect.Equal(t, tc.continues, o.continues(tc.answer, o.since("services/web/")), "%s: what is known counts", name)
		o.learn("services/web/", 0, &known{}, tc.answer)
		expect.Equal(t, tc.answer.GetRevision(), o.since("services/web/"), "%s: the service is known up to", name)
		expect.Equal(t, tc.listed, o.since("services/api/"), "%s: another is known up to", name)
	}
}

// TestOthersAreAdded: a question is for what was written since the one before.
func TestOthersAreAdded(t *testing.T) {
	t.Parallel()
	o := &others{}
	for n, key := range []string{"a", "b"} {
		found := &known{}
		found.add("10.0.0.1:80", key)
		o.learn("services/web/", int64(n), found, &pb.ResponseHeader{Revision: int64(n + 1)})
	}
	in := registry.Instance{Service: "web", Address: "10.0.0.1", Port: 80}
	expect.Equal(t, []string{"a", "b"}, o.keysOf("services/web/", in), "the keys of others")
}

// holding is an etcd without keys that answers no question about a service until answer is closed.
type holding struct {
	clientv3.KV

	answer    chan struct{}
	questions atomic.Int32
}

func (h *holding) Get(context.Context, string, ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	h.questions.Add(1)
	<-h.answer
	return &clientv3.GetResponse{Header: &pb.ResponseHeader{Revision: 1}}, nil
}

func (h *holding) Txn(context.Context) clientv3.Txn { return noTxn{} }

type noTxn struct{}

func (noTxn) If(...clientv3.Cmp) clientv3.Txn  { return noTxn{} }
func (noTxn) Then(...clientv3.Op) clientv3.Txn { return noTxn{} }
func (noTxn) Else(...clientv3.Op) clientv3.Txn { return noTxn{} }

func (noTxn) Commit() (*clientv3.TxnResponse, error) {
	return &clientv3.TxnResponse{Succeeded: true}, nil
}

// TestGetsAtOneMomentShareAQuestion about their service: the first is answered only when all calls wait.
func TestGetsAtOneMomentShareAQuestion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const together = 84
		etcd := &holding{answer: make(chan struct{})}
		client := clientv3.NewCtxClient(t.Context())
		client.KV = etcd
		target, err := targetOf(Options{Target: "services/{service}"})
		expect.NoError(t, err)
		d := &Registry{client: client, login: newLogin("", ""), target: target, fence: newFence(target), members: 1, others: &others{}}
		var all sync.WaitGroup
		for n := range together {
			all.Go(func() {
				if _, err := d.Get(t.Context(), drivertest.Pod(n)); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		close(etcd.answer)
		all.Wait()
		if asked := etcd.questions.Load(); asked > 2 {
			t.Errorf("%d calls asked %d questions, want at most 2: one that is under way, and one for all that came meanwhile", together, asked)
		}
	})
}
