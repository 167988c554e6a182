package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestForms reads the lines as people have them: from a manager, and as collectors export them.
func TestForms(t *testing.T) {
	t.Parallel()
	written, err := os.ReadFile(filepath.Join("testdata", "lines.jsonl"))
	expect.NoError(t, err)
	lines := bytes.Split(bytes.TrimSpace(written), []byte("\n"))
	each := func(format string) []byte {
		var all bytes.Buffer
		for _, line := range lines {
			fmt.Fprintf(&all, format+"\n", line)
		}
		return all.Bytes()
	}
	quoted := func(format, between string) string {
		var all []string
		for _, line := range lines {
			text, err := json.Marshal(string(line))
			expect.NoError(t, err)
			all = append(all, fmt.Sprintf(format, text))
		}
		return strings.Join(all, between)
	}
	objects := func(format string) string {
		var all []string
		for _, line := range lines {
			all = append(all, fmt.Sprintf(format, line))
		}
		return strings.Join(all, ",\n")
	}
	want := Read(written).Lines()
	if len(want) != 11 || want[2].Pod != web1 || want[2].Entries[1] != byApp.Listed() || !want[4].Since.Equal(at.Add(-time.Minute)) ||
		want[5].Took != 12.345678 || !want[0].At.Equal(at) {
		t.Fatalf("the manager's own log is read as %+v", want)
	}
	type row struct {
		reason string
		log    []byte
	}
	expect.Each(t, map[string]row{
		"a node's file":          {"the container runtime puts a time before each line", each("2026-11-23T14:48:53.120000001Z stderr F %s")},
		"kubectl --prefix":       {"it puts the pod before each line", each("[pod/rollcall-7d9f/manager] %s")},
		"among other text":       {"a crash is none of ours", append([]byte("panic: [recovered] {\ngoroutine 1 [running]:\n"), written...)},
		"logcli -o jsonl":        {"each line is a string", []byte(quoted(`{"labels":{"app":"rollcall"},"line":%s,"timestamp":"2026-11-23T14:48:53Z"}`, "\n"))},
		"Loki's API":             {"all lines are in one object", []byte(`{"status":"success","data":{"resultType":"streams","result":[{"stream":{"pod":"rollcall-0"},"values":[` + quoted(`["1795445333120000000",%s]`, ",") + `]}]}}`)},
		"Grafana's download":     {"a list of objects", []byte(`[` + quoted(`{"line":%s,"timestamp":"1795445333120000000","fields":{"app":"rollcall"}}`, ",\n") + `]`)},
		"Elastic's search":       {"Filebeat has read the JSON", []byte(`{"took":3,"hits":{"total":{"value":13},"hits":[` + objects(`{"_index":"logs","_source":%s}`) + `]}}`)},
		"Elastic's own message":  {"Filebeat left the line alone", []byte(`{"hits":{"hits":[` + quoted(`{"_source":{"@timestamp":"2026-11-23T14:48:53Z","message":%s}}`, ",") + `]}}`)},
		"elasticdump":            {"a document a line", []byte(strings.ReplaceAll(objects(`{"_index":"logs","_source":{"json":%s}}`), ",\n", "\n"))},
		"seconds since 1970":     {"the manager's earlier versions could be told to", bytes.ReplaceAll(written, []byte(`"2026-11-23T14:48:53.12Z"`), []byte(`1795445333.12`))},
		"nanoseconds since 1970": {"embedded managers choose the encoder", bytes.ReplaceAll(written, []byte(`"ts":"2026-11-23T14:48:53.12Z"`), []byte(`"ts":1795445333120000000`))},
	}, func(t *testing.T, c row) {
		got := Read(c.log).Lines()
		for i := range got { // a float has not all digits
			if got[i].At = got[i].At.Round(time.Microsecond); got[i].Since.Nanosecond() != 0 {
				got[i].Since = got[i].Since.Round(time.Microsecond)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got\n%+v\nwant\n%+v", c.reason, got, want)
		}
	})
}

// TestNoLines: what has none of the lines is no history.
func TestNoLines(t *testing.T) {
	t.Parallel()
	for reason, log := range map[string]string{
		"empty":        "",
		"another file": "cluster: a\nregistries: {}\n",
		"no time":      `{"logger":"history","msg":"registered","pod":"web-1"}`,
		"another time": `{"logger":"history","ts":"yesterday","msg":"registered","pod":"web-1"}`,
		"other lines":  `{"logger":"controller","ts":1795445333.12,"msg":"registered","pod":"web-1"}`,
		"cut off":      `{"logger":"history","ts":1795445333.12,"msg":"registered","po`,
		"deep":         strings.Repeat("[", 100) + `{"logger":"history","ts":1795445333.12,"msg":"registered"}` + strings.Repeat("]", 100),
	} {
		if got := Read([]byte(log)).Lines(); len(got) > 0 {
			t.Errorf("%s: got %+v", reason, got)
		}
	}
}

func FuzzRead(f *testing.F) {
	written, err := os.ReadFile(filepath.Join("testdata", "lines.jsonl"))
	expect.NoError(f, err)
	f.Add(written)
	f.Add([]byte(`[{"line":"{\"ts\":1e300,\"msg\":\"released\",\"logger\":\"history\",\"uid\":\"1\",\"entries\":[\"\"]}"}]`))
	f.Fuzz(func(_ *testing.T, log []byte) {
		Read(log, log).Findings()
	})
}
