package history

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap/zapcore"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/logged"
)

// at is when all lines of a test are written.
var at = time.Date(2026, 11, 23, 14, 48, 53, 120_000_000, time.UTC)

// logTo is a Log at that time.
func logTo(out io.Writer, level zapcore.Level) Log {
	return New(logged.JSON(out, level, func() time.Time { return at }))
}

var (
	web1  = Pod{Namespace: "prod", Name: "web-1", UID: "9e11", Workload: "CloneSet/web", Revision: "web-64f7c"}
	entry = Entry{Registry: "default", Service: "web", Endpoint: "10.0.0.1:8080"}
	byApp = Entry{Registry: "default", Service: "web", Endpoint: "10.0.0.1:8080", Writer: App}
)

// writeAll writes one line of each function, and of each form that it has.
func writeAll(l Log) {
	l.Registered(web1, entry, "PreparingNormal", 4*time.Millisecond)
	l.Registered(web1, byApp, "PreparingNormal", 4*time.Millisecond)
	l.Released(web1, Release{
		Hook: "preNormal", State: "PreparingNormal", Rotation: In, By: ByAcknowledgement, Entries: []Entry{entry, byApp}, Waited: 2 * time.Second,
	})
	l.TakenOut(web1, entry, 3*time.Millisecond)
	l.DrainBegun(web1, at.Add(-time.Minute), 5*time.Second, 10*time.Minute)
	l.DrainEnded(web1, "idle", "idle", 12*time.Second+345678*time.Microsecond)
	l.Released(web1, Release{
		Hook: "preDelete", State: "PreparingDelete", Rotation: Gone, By: ByProceedAfter, Drain: 5 * time.Second, Waited: time.Minute,
	})
	l.Removed(web1, entry, "", 2*time.Millisecond)
	l.Removed(web1, byApp, ByAnother, 0)
	l.Removed(Pod{Namespace: "prod", Name: "web-1", UID: "9e11"}, entry, ByResync, 2*time.Millisecond)
	l.Renamed("default", "consul-1")
	l.Called(Call{Pod: web1, Entry: entry, Operation: "register", Outcome: "timeout", Err: errors.New("connection refused"), Took: 5 * time.Second})
	l.Called(Call{Entry: Entry{Registry: "default"}, Operation: "list", Outcome: "ok", Took: 80 * time.Millisecond})
}

// TestFormat holds the form of each line, which people's queries and other versions of the plugin read: a field may be added, and none
// renamed. ROLLCALL_TEST_GOLDEN=1 writes it again.
func TestFormat(t *testing.T) {
	t.Parallel()
	var got bytes.Buffer
	writeAll(logTo(&got, zapcore.DebugLevel))
	path := filepath.Join("testdata", "lines.jsonl")
	if os.Getenv("ROLLCALL_TEST_GOLDEN") != "" {
		expect.NoError(t, os.WriteFile(path, got.Bytes(), 0o600))
	}
	want, err := os.ReadFile(path)
	expect.NoError(t, err)
	expect.Equal(t, string(want), got.String(), "the lines")
}

// TestLevels: calls are for debugging, and changes are not.
func TestLevels(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		level  zapcore.Level
		calls  bool
		lines  int
	}
	expect.Each(t, map[string]row{
		"debug": {"every call is shown", zapcore.DebugLevel, true, 13},
		"info":  {"every change is shown", zapcore.InfoLevel, false, 11},
		"error": {"who wants only errors gets no history", zapcore.ErrorLevel, false, 0},
	}, func(t *testing.T, c row) {
		var out bytes.Buffer
		l := logTo(&out, c.level)
		writeAll(l)
		if got := bytes.Count(out.Bytes(), []byte("\n")); got != c.lines || l.Calls() != c.calls {
			t.Errorf("%s: %d lines, calls %t; want %d and %t", c.reason, got, l.Calls(), c.lines, c.calls)
		}
	})
	writeAll(Log{}) // and no line is no reason to fail
}

// processor is the time that the process has taken of all processors: others may take them too.
func processor(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	expect.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkUpdate is what one update of a pod writes: out, drained, released, in and released.
func BenchmarkUpdate(b *testing.B) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	expect.NoError(b, err)
	b.Cleanup(func() { _ = null.Close() })
	for name, l := range map[string]Log{"on": logTo(null, zapcore.InfoLevel), "off": {}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			before := processor(b)
			for b.Loop() {
				l.TakenOut(web1, entry, time.Millisecond)
				l.DrainBegun(web1, at, time.Second, time.Second)
				l.DrainEnded(web1, "fixed", "", time.Second)
				l.Released(web1, Release{Hook: "inPlaceUpdate", State: "PreparingUpdate", Rotation: Out, By: ByAcknowledgement, Entries: []Entry{entry}})
				l.Registered(web1, entry, "Updated", time.Millisecond)
				l.Released(web1, Release{Hook: "inPlaceUpdate", State: "Updated", Rotation: In, By: ByAcknowledgement, Entries: []Entry{entry}})
			}
			b.ReportMetric(float64(processor(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}
