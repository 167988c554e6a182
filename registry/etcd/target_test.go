package etcd

import (
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestParseTarget(t *testing.T) {
	t.Parallel()
	for text, wantErr := range map[string]string{
		"services/{service}":       "",
		"{service}":                "",
		"{service}/grpc":           "",
		"a b/ü/{service}/v1.0/x-y": "",
		"":                         "must have the part {service}",
		"services":                 "must have the part {service}",
		"services/{service":        "must have the part {service}",
		"{namespace}/{service}":    "no other braces",
		"{service}/{service}":      "no other braces",
		"a{/{service}":             "no other braces",
		"services-{service}":       "whole part",
		"{service}-grpc":           "whole part",
		"/services/{service}":      "slash",
		"services/{service}/":      "slash",
		"services//{service}":      "slash",
		"{service}//grpc":          "slash",
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			_, err := parseTarget(text)
			if (err == nil) != (wantErr == "") || err != nil && !strings.Contains(err.Error(), wantErr) {
				t.Errorf("got error %v, want one with %q", err, wantErr)
			}
		})
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	byDefault := formatOf(formatGRPC).target
	type row struct{ reason, target, service, address, want string }
	expect.Each(t, map[string]row{
		"default": {"a slash, and the address with its port", byDefault, "web", "10.0.0.1", "services/web/10.0.0.1:80"},
		"ipv6":    {"IPv6 stands in brackets, as gRPC dials it", byDefault, "web", "fd00::1", "services/web/[fd00::1]:80"},
		"slash":   {"it would make another target, within that of service a", byDefault, "a/b", "10.0.0.1", "services/a%2Fb/10.0.0.1:80"},
		"percent": {"a name that looks escaped is another one", byDefault, "a%2Fb", "10.0.0.1", "services/a%252Fb/10.0.0.1:80"},
		"around":  {"it stands as it is", "x/%2F/{service}/grpc/v1", "ü b", "10.0.0.1", "x/%2F/ü b/grpc/v1/10.0.0.1:80"},
		"alone":   {"the service can be all there is", "{service}", "web", "10.0.0.1", "web/10.0.0.1:80"},
	}, func(t *testing.T, tc row) {
		target, err := parseTarget(tc.target)
		expect.NoError(t, err)
		in := registry.Instance{Service: tc.service, Address: tc.address, Port: 80, Cluster: "c", Namespace: "n", Pod: "p", UID: "u"}
		expect.Equal(t, tc.want, target.key(in), "%s", tc.reason)
		content, err := target.encode(in)
		expect.NoError(t, err)
		got, ours := target.decode(&mvccpb.KeyValue{Key: []byte(tc.want), Value: []byte(content)})
		if !ours || !got.Equal(in) {
			t.Errorf("read back it is %+v, ours %t, want %+v", got, ours, in)
		}
	})
}

// TestTheLastLookDecides has a transaction look again, since another changed the key after the first look.
func TestTheLastLookDecides(t *testing.T) {
	t.Parallel()
	target, err := parseTarget(formatOf(formatGRPC).target)
	expect.NoError(t, err)
	in := registry.Instance{Service: "web", Address: "10.0.0.1", Port: 80, Cluster: "c", Namespace: "n", Pod: "p", UID: "u"}
	text, err := target.encode(in)
	expect.NoError(t, err)
	key := []byte(target.key(in))
	own, app := &mvccpb.KeyValue{Key: key, Value: []byte(text)}, &mvccpb.KeyValue{Key: key, Value: []byte(`{"Addr":"10.0.0.1:80"}`)}
	looks := func(c *change, kvs ...*mvccpb.KeyValue) {
		target.see([]*change{c}, &clientv3.TxnResponse{Responses: []*etcdserverpb.ResponseOp{{Response: &etcdserverpb.ResponseOp_ResponseRange{
			ResponseRange: &etcdserverpb.RangeResponse{Kvs: kvs},
		}}}})
	}
	c := &change{Change: registry.Change{Instance: in, State: registry.Absent}}
	if looks(c, app); !c.foreign || c.seen != nil {
		t.Errorf("an application's entry: foreign %t, to be removed %v", c.foreign, c.seen)
	}
	if looks(c); c.foreign || c.seen != nil {
		t.Errorf("none any more: foreign %t, to be removed %v", c.foreign, c.seen)
	}
	if looks(c, own); c.foreign || c.seen != own {
		t.Errorf("the pod's own: foreign %t, to be removed %v", c.foreign, c.seen)
	}
}

func TestDecodeOfWhatIsNotOurs(t *testing.T) {
	t.Parallel()
	target, err := parseTarget("a/{service}/b")
	expect.NoError(t, err)
	const content = `{"Op":0,"Addr":"10.0.0.1:80","Metadata":{"rollcall-cluster":"c"}}`
	type row struct{ key, value string }
	expect.Each(t, map[string]row{
		"another prefix":   {"x/web/b/10.0.0.1:80", content},
		"another suffix":   {"a/web/x/10.0.0.1:80", content},
		"longer suffix":    {"a/web/bb/10.0.0.1:80", content},
		"nothing after":    {"a/web", content},
		"prefix alone":     {"a/", content},
		"another address":  {"a/web/b/10.0.0.2:80", content},
		"another port":     {"a/web/b/10.0.0.1:81", content},
		"odd port":         {"a/web/b/10.0.0.1:080", `{"Addr":"10.0.0.1:080"}`},
		"a deeper one":     {"a/web/b/c/10.0.0.1:80", content},
		"a removal":        {"a/web/b/10.0.0.1:80", strings.Replace(content, `"Op":0`, `"Op":1`, 1)},
		"no port":          {"a/web/b/10.0.0.1", `{"Addr":"10.0.0.1"}`},
		"a name for port":  {"a/web/b/10.0.0.1:http", `{"Addr":"10.0.0.1:http"}`},
		"other metadata":   {"a/web/b/10.0.0.1:80", `{"Addr":"10.0.0.1:80","Metadata":[1]}`},
		"not JSON":         {"a/web/b/10.0.0.1:80", "10.0.0.1:80"},
		"not even UTF-8":   {"a/\xff/b/10.0.0.1:80", "\xff"},
		"nothing whatever": {"", ""},
	}, func(t *testing.T, tc row) {
		if in, ours := target.decode(&mvccpb.KeyValue{Key: []byte(tc.key), Value: []byte(tc.value)}); ours {
			t.Errorf("%s: %s is read as ours: %+v", tc.key, tc.value, in)
		}
	})
}
