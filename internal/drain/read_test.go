package drain

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestParse(t *testing.T) {
	t.Parallel()
	type row struct {
		reason, text string
		want         Policy
		err          []string
	}
	path, gauge := Until{Port: 8080, Path: "/idle"}, Until{Port: 9090, Path: "/metrics", Metric: "in_flight"}
	until := func(u Until) Policy { return Policy{Min: Default, Max: 10 * time.Minute, Until: u} }
	with := func(u Until, change func(*Until)) Policy {
		change(&u)
		return until(u)
	}
	expect.Each(t, map[string]row{
		"a duration":     {"the short form", "15s", Fixed(15 * time.Second), nil},
		"white space":    {"YAML adds a line break to a block", " 15s\n", Fixed(15 * time.Second), nil},
		"an endpoint":    {"min is the usual drain", "{max: 10m, until: {path: /idle, port: 8080}}", until(path), nil},
		"in JSON":        {"tools write it", `{"min":"5s","max":"10m","until":{"path":"/idle","port":8080}}`, Policy{Min: 5 * time.Second, Max: 10 * time.Minute, Until: path}, nil},
		"in block style": {"people write it", "max: 10m\nuntil:\n  path: /idle\n  port: 8080\n", until(path), nil},
		"a query":        {"is part of a path", "{max: 10m, until: {path: '/idle?a=1&b=2', port: 8080}}", with(path, func(u *Until) { u.Path = "/idle?a=1&b=2" }), nil},
		"a metric":       {"the usual path", "{max: 10m, until: {metric: in_flight, port: 9090}}", until(gauge), nil},
		"a metric with all": {"", "{max: 10m, until: {metric: in_flight, port: 9090, path: /m, labels: {kind: http}, allow: 1}}", with(gauge, func(u *Until) {
			u.Path, u.Labels, u.Allow = "/m", map[string]string{"kind": "http"}, 1
		}), nil},

		"no unit":       {"seconds or minutes?", "15", Policy{}, []string{`"15" is not a duration`, `set "15s"`}},
		"below zero":    {"no time runs backwards", "-1s", Policy{}, []string{`"-1s" is below zero`}},
		"not YAML":      {"", "{max: 10m", Policy{}, []string{"neither a duration nor valid YAML"}},
		"no until":      {"then it is a duration", "{max: 10m}", Policy{}, []string{"until: Required", "path: /idle", `"15s"`}},
		"no max":        {"no pod may stay forever", "{until: {path: /idle, port: 8080}}", Policy{}, []string{"max: Required"}},
		"max below min": {"", "{min: 1m, max: 30s, until: {path: /idle, port: 8080}}", Policy{}, []string{`max: Invalid value: "30s"`, `"1m0s" or more`}},
		"bad min":       {"", "{min: 5, max: 30s, until: {path: /idle, port: 8080}}", Policy{}, []string{"min: Invalid value: 5", `such as "15s"`}},
		"unknown field": {"", "{max: 10m, untl: {path: /idle, port: 8080}}", Policy{}, []string{`untl: Invalid value`, `did you mean "until"?`}},
		"unknown below": {"", "{max: 10m, until: {path: /idle, prt: 8080}}", Policy{}, []string{`until.prt: Invalid value`, `did you mean "port"?`, "until.port: Required"}},
		"until a text":  {"", "{max: 10m, until: /idle}", Policy{}, []string{"until: Invalid value", "use an object with the fields path, port"}},
		"no path":       {"", "{max: 10m, until: {port: 8080}}", Policy{}, []string{"until.path: Required", "or set metric"}},
		"another host":  {"only the pod is asked", "{max: 10m, until: {path: '//example.com/idle', port: 8080}}", Policy{}, []string{"until.path: Invalid value"}},
		"a URL":         {"the same", "{max: 10m, until: {path: 'http://example.com/idle', port: 8080}}", Policy{}, []string{"until.path: Invalid value"}},
		"a long path":   {"each call sends it", "{max: 10m, until: {path: /" + strings.Repeat("x", 600) + ", port: 8080}}", Policy{}, []string{"until.path: Invalid value", "at most 512"}},
		"a fragment":    {"no server sees it", "{max: 10m, until: {path: '/idle#now', port: 8080}}", Policy{}, []string{"until.path: Invalid value"}},
		"no slash":      {"it is joined to an address", "{max: 10m, until: {path: idle, port: 8080}}", Policy{}, []string{"until.path: Invalid value"}},
		"a bad escape":  {"", "{max: 10m, until: {path: /%zz, port: 8080}}", Policy{}, []string{"until.path: Invalid value"}},
		"min below 0":   {"", "{min: -5s, max: 10m, until: {path: /idle, port: 8080}}", Policy{}, []string{"min: Invalid value", `set "0s" or more`}},
		"port 70000":    {"", "{max: 10m, until: {path: /idle, port: 70000}}", Policy{}, []string{"until.port: Invalid value: 70000"}},
		"port 0":        {"", "{max: 10m, until: {path: /idle, port: 0}}", Policy{}, []string{"until.port: Invalid value: 0", "from 1 to 65535"}},
		"a named port":  {"", "{max: 10m, until: {path: /idle, port: http}}", Policy{}, []string{`until.port: Invalid value: "http"`}},
		"a bad metric":  {"", "{max: 10m, until: {metric: 'sum(x)', port: 9090}}", Policy{}, []string{`until.metric: Invalid value: "sum(x)"`}},
		"labels without a metric": {"", "{max: 10m, until: {path: /idle, port: 9090, labels: {a: b}, allow: 1}}", Policy{},
			[]string{"until.labels: Forbidden", "until.allow: Forbidden"}},
		"a label as a number": {"", "{max: 10m, until: {metric: x, port: 9090, labels: {status: 200}}}", Policy{}, []string{"until.labels.status", "in quotes"}},
		"a bad label":         {"", "{max: 10m, until: {metric: x, port: 9090, labels: {'a b': c}}}", Policy{}, []string{`until.labels: Invalid value: "a b"`}},
		"labels as a text":    {"", "{max: 10m, until: {metric: x, port: 9090, labels: a}}", Policy{}, []string{"until.labels: Invalid value", "use an object with labels"}},
		"allow below zero":    {"", "{max: 10m, until: {metric: x, port: 9090, allow: -1}}", Policy{}, []string{"until.allow: Invalid value: -1"}},
		"twice":               {"which one counts?", "{max: 10m, max: 5m, until: {path: /idle, port: 8080}}", Policy{}, []string{`"max" is set twice`}},
		"aliases":             {"what they make has no bound", "{max: &a [x,x,x,x,x,x,x,x], until: [*a,*a,*a,*a,*a]}", Policy{}, []string{"use", "until"}},
		"an alias as a value": {"the same", "{min: &a 5s, max: *a, until: {path: /idle, port: 8080}}", Policy{}, []string{"alias"}},
	}, func(t *testing.T, tc row) {
		got, err := Parse(tc.text)
		if len(tc.err) == 0 {
			expect.NoError(t, err)
		}
		for _, part := range tc.err {
			expect.Error(t, tc.reason, err, part)
		}
		if diff := cmp.Diff(tc.want, got); len(tc.err) == 0 && diff != "" {
			t.Errorf("%s (-want +got)\n%s", tc.reason, diff)
		}
	})
}

// TestPolicy_WrittenIsRead: the effective configuration is one.
func TestPolicy_WrittenIsRead(t *testing.T) {
	t.Parallel()
	for _, p := range []Policy{
		Fixed(0), Fixed(15 * time.Second),
		{Min: time.Second, Max: time.Minute, Until: Until{Port: 1, Path: "/idle"}},
		{Min: time.Second, Max: time.Minute, Until: Until{Port: 1, Path: "/m", Metric: "a", Labels: map[string]string{"b": "c"}, Allow: 2}},
	} {
		text, err := json.Marshal(p.Written())
		expect.NoError(t, err)
		got, err := Parse(strings.Trim(string(text), `"`))
		expect.NoError(t, err)
		expect.Equal(t, p, got, "%s", text)
	}
}

// TestRead_UnknownFieldsCanBeNamed: the plugin reads the configuration of a newer manager.
func TestRead_UnknownFieldsCanBeNamed(t *testing.T) {
	t.Parallel()
	var unknown []string
	written := map[string]any{"max": "1m", "new": 1, "until": map[string]any{"path": "/idle", "port": int64(8080), "newer": true}}
	_, problems := Read(field.NewPath("drain"), written, func(path string) { unknown = append(unknown, path) })
	if got := fmt.Sprint(unknown); len(problems) > 0 || got != "[drain.new drain.until.newer]" {
		t.Errorf("unknown %s, problems %v", got, problems)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"15s", "{max: 10m, until: {path: /idle, port: 8080}}", "a: &a [*a]", "{max: 1m, until: {metric: x, port: 1, labels: {a: b}}}", "? : :", "{<<: *x}"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(text)
		if err == nil && (p.Min < 0 || p.Max < p.Min || p.Asks() && !strings.HasPrefix(p.Until.Path, "/")) {
			t.Errorf("%q is accepted as %+v", text, p)
		}
	})
}
