package etcd_test

import (
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
)

// TestABatchOverGRPCsLimits is undone: each of its changes may fit by itself.
func TestABatchOverGRPCsLimits(t *testing.T) {
	t.Parallel()
	server := grpc.NewServer(grpc.MaxRecvMsgSize(1 << 20))
	pb.RegisterKVServer(server, pb.UnimplementedKVServer{})
	endpoint := "http://" + drivertest.ServeGRPC(t, server)
	for name, tc := range map[string]struct {
		reason string
		each   int // how many bytes each of three has
	}{
		"the server's": {"--max-request-bytes is lower there", 600 << 10},
		"the client's": {"it is etcd's own default", 900 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, registry.Config{Endpoint: endpoint})
			var changes []registry.Change
			for i := range 3 {
				in := pod(i + 1)
				in.Metadata = map[string]string{"note": strings.Repeat("x", tc.each)}
				changes = append(changes, registry.Change{Instance: in, State: registry.InService})
			}
			for i, err := range d.Batch(t.Context(), changes) {
				if !registry.IsNotApplied(err) {
					t.Errorf("change %d: got error %v, want one of a change that was not made\nreason: %s", i, err, tc.reason)
				}
			}
			changes[0].Instance.Metadata["note"] = strings.Repeat("x", 3*tc.each)
			if err := d.Batch(t.Context(), changes[:1])[0]; !registry.IsTerminal(err) || registry.IsNotApplied(err) {
				t.Errorf("an instance that is as large: got error %v, want a terminal one", err)
			}
		})
	}
}
