package etcd_test

import (
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
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
			expect.Code(t, registry.CodeNotApplied, err, "change %d: a change that was not made: %s", i, tc.reason)
		}
		changes[0].Instance.Metadata["note"] = strings.Repeat("x", 3*tc.each)
		expect.Code(t, registry.CodeTerminal, d.Batch(t.Context(), changes[:1])[0], "an instance that is as large")
	})
}
