package etcd_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
	"github.com/rollcall-dev/rollcall/registry/etcd"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestNew(t *testing.T) {
	t.Parallel()
	d := drivertest.Driver{New: etcd.New, Good: "https://a:2379", Auth: []driverkit.AuthKind{driverkit.Password}}
	const short = "every entry would end when a leader dies, before the next one renews them"
	d.Run(t, map[string]drivertest.Case{
		"several": {
			Reason: "each member has an address, and a slash at its end is no path",
			Config: registry.Config{Endpoint: "https://a:2379/, https://[fd00::1]:2379"},
		},
		"no port": d.At("gRPC would take 443, where no etcd is", "https://a", "no port"),
		"a path":  d.At("gRPC has no place for it", "https://a:2379/base", "path"),
		"TLS with http": drivertest.Wrong(
			"it promises what is not there", registry.Config{Endpoint: "http://a:2379", TLS: registry.TLS{CAFile: "/nonexistent"}},
			"tls.caFile", ""),

		"all options":        d.Options("all are taken", `{"target": "x/{service}", "lease": "1m30s"}`, "", ""),
		"format":             d.Options("there is none such", `{"format": "dubbo"}`, "options.format", "kitex"),
		"scheme":             d.Options("no client asks for it", `{"format": "kratos", "scheme": "tcp"}`, "options.scheme", "grpcs"),
		"rooted target":      d.Options("Kratos' own is", `{"format": "kratos", "target": "/a/{service}"}`, "", ""),
		"rooted gRPC target": d.Options("gRPC cuts the slash off", `{"target": "/a/{service}"}`, "options.target", "slash"),
		"target":             d.Options("without the service all would be one", `{"target": "x"}`, "options.target", "{service}"),
		"lease without unit": d.Options("60 of what?", `{"lease": 60}`, "options.lease", "60s"),
		"odd lease":          d.Options("the text is shown", `{"lease": "soon"}`, "options.lease", "soon"),
		"short lease":        d.Options(short, `{"lease": "59s"}`, "options.lease", "at least 1m0s"),
		"negative lease":     d.Options(short, `{"lease": "-5s"}`, "options.lease", "at least 1m0s"),
		"half seconds":       d.Options("etcd counts in seconds", `{"lease": "62500ms"}`, "options.lease", "whole seconds"),
	})
}

func TestReaderLagIsThatOfTheFormat(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]time.Duration{"grpc": 0, "go-zero": 0, "kratos": 0, "kitex": 5 * time.Second, "skydns": 5 * time.Second} {
		d := open(t, registry.Config{Endpoint: "http://a:2379", Options: json.RawMessage(`{"format": "` + format + `"}`)})
		expect.Equal(t, want, d.Traits().ReaderLag, "%s", format)
	}
}

func TestFormatsWithWeights(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]bool{"grpc": false, "go-zero": false, "kratos": true, "kitex": true, "skydns": true} {
		d := open(t, registry.Config{Endpoint: "http://a:2379", Options: json.RawMessage(`{"format": "` + format + `"}`)})
		expect.Equal(t, want, d.Traits().Weighs, "%s", format)
	}
}

func TestShortestLeaseOutlastsAChangeOfLeader(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ takeover, lease, short time.Duration }{
		{0, time.Minute, 59 * time.Second}, {40 * time.Second, 2 * time.Minute, 119 * time.Second},
	} {
		cfg := registry.Config{Endpoint: "http://a:2379", Takeover: c.takeover, Options: json.RawMessage(`{"lease": "` + c.lease.String() + `"}`)}
		if least := cfg.LeastLease(open(t, cfg).Traits().HeartbeatInterval); least > c.lease {
			t.Errorf("a lease of %s is taken, and has to be %s at least", c.lease, least)
		}
		cfg.Options = json.RawMessage(`{"lease": "` + c.short.String() + `"}`)
		if _, err := etcd.New(t.Context(), cfg); err == nil {
			t.Errorf("a lease of %s is taken, and ends before the next leader renews it", c.short)
		}
	}
}
