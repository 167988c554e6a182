package nacos_test

import (
	"strings"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
	"github.com/rollcall-dev/rollcall/registry/nacos"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
)

func TestNew(t *testing.T) {
	t.Parallel()
	d := drivertest.Driver{New: nacos.New, Good: "https://nacos:8848", Auth: []driverkit.AuthKind{driverkit.Password}}
	wrong := func(reason, options, option string) drivertest.Case {
		return d.Options(reason, options, "options."+option, "")
	}
	d.Run(t, map[string]drivertest.Case{
		"host and port": d.At("the scheme says whether there is TLS", "nacos:8848", ""),
		"several": {
			Reason: "a cluster has three", Config: registry.Config{Endpoint: "http://a:8848, http://b:8848/nacos"},
		},
		"no time for its pauses": drivertest.Wrong("a removal beside an application's entry pauses for up to 4 s, so that a hook would wait "+
			"forever", registry.Config{Endpoint: d.Good, Timeout: 4400 * time.Millisecond}, "timeout", "set 4.5s or more"),
		"time for its pauses": {Reason: "it suffices", Config: registry.Config{Endpoint: d.Good, Timeout: 4500 * time.Millisecond}},
		"TLS without use": drivertest.Wrong(
			"it promises what is not there", registry.Config{Endpoint: "http://a", TLS: registry.TLS{CAFile: "x"}}, "tls.caFile", ""),

		"all options": d.Options("as documented", `{"namespace":"3f2a-b_c","group":"G.1:a","cluster":"c1",`+
			`"apiVersion":"v3","healthChecker":"server"}`, "", ""),
		"ephemeral":         d.Options("as documented", `{"ephemeral":true,"heartbeatInterval":"10s","apiVersion":"v2"}`, "", ""),
		"places":            d.Options("as documented", `{"namespace":"{nsLabel:example.com/team}","group":"g:{label:app}"}`, "", ""),
		"no place":          wrong("there is none such", `{"namespace":"{pod}"}`, "namespace"),
		"bad place":         wrong("no pod could have it", `{"group":"a b {namespace}"}`, "group"),
		"empty namespace":   wrong("the default has a name", `{"namespace":""}`, "namespace"),
		"namespace":         wrong("the ID is wanted, not the name", `{"namespace":"my namespace"}`, "namespace"),
		"long namespace":    wrong("Nacos refuses it", `{"namespace":"`+strings.Repeat("a", 65)+`"}`, "namespace"),
		"group":             wrong("Nacos takes what is before @@ for it", `{"group":"a@@b"}`, "group"),
		"cluster":           wrong("Nacos refuses dots here", `{"cluster":"a.b"}`, "cluster"),
		"login":             wrong("there is none such", `{"login":"token"}`, "login"),
		"no access key":     d.Options("nothing could be signed", `{"login":"accessKey"}`, "auth.username", "access key"),
		"version":           wrong("there is none such", `{"apiVersion":"3"}`, "apiVersion"),
		"checker":           wrong("there is none such", `{"healthChecker":"TCP"}`, "healthChecker"),
		"checker of no use": wrong("ephemeral instances are not probed", `{"ephemeral":true,"healthChecker":"none"}`, "healthChecker"),
		"beats of no use":   wrong("persistent ones need none", `{"heartbeatInterval":"5s"}`, "heartbeatInterval"),
		"no time":           wrong("a number has no unit", `{"ephemeral":true,"heartbeatInterval":"5"}`, "heartbeatInterval"),
		"too rarely":        wrong("Nacos drops a client after 3 minutes", `{"ephemeral":true,"heartbeatInterval":"46s"}`, "heartbeatInterval"),
		"too often":         wrong("the servers look every 5 s", `{"ephemeral":true,"heartbeatInterval":"10ms"}`, "heartbeatInterval"),
	})
}
