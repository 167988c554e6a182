package etcd

import (
	"context"
	"net/url"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

func TestRequestsCarryWhatIsOutgoing(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]outgoing{"": nil, "00-1-2-01": func(context.Context, *url.URL) map[string]string {
		return map[string]string{"traceparent": "00-1-2-01"}
	}} {
		got := ""
		err := o.unary(t.Context(), "/etcdserverpb.KV/Txn", nil, nil, nil,
			func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
				if sent, _ := metadata.FromOutgoingContext(ctx); len(sent.Get("traceparent")) > 0 {
					got = sent.Get("traceparent")[0]
				}
				return nil
			})
		if err != nil || got != want {
			t.Errorf("the request has traceparent %q, want %q: %v", got, want, err)
		}
	}
}
