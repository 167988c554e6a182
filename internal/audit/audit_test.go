package audit

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/rollcall-dev/rollcall/internal/receipt"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// open is a log on a file, with the lines that it lost.
func open(t *testing.T, path string, maxSize int64) (*Log, *atomic.Int64) {
	t.Helper()
	var lost atomic.Int64
	l, err := Open(Options{Path: path, MaxSize: maxSize, Name: "m", Version: "v1", Failed: func(n int, _ error) { lost.Add(int64(n)) }})
	expect.NoError(t, err)
	return l, &lost
}

func flips(l *Log, n int) {
	for range n {
		l.Write(receipt.Line{Kind: receipt.Flip, Entry: receipt.Entry{Pod: "web"}, Cleared: []string{"label gate=true"}})
	}
}

// read returns the log as the plugin gets it.
func read(t *testing.T, l *Log) []byte {
	t.Helper()
	var log bytes.Buffer
	expect.NoError(t, l.CopyTo(&log))
	return log.Bytes()
}

// TestAltered changes a log of two processes in one file, 4 lines each.
func TestAltered(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit")
	var l *Log
	for range 2 {
		l, _ = open(t, path, 1<<20)
		flips(l, 2)
		expect.NoError(t, l.Close(t.Context(), true))
	}
	log := strings.SplitAfter(strings.TrimSuffix(string(read(t, l)), "\n"), "\n")
	log[7] += "\n"
	with := func(i int, line string) string {
		changed := append([]string(nil), log...)
		changed[i] = line
		return strings.Join(changed, "")
	}
	second, err := receipt.Read([]byte(strings.Join(log[4:], "")))
	expect.NoError(t, err)
	first := strings.TrimSuffix(log[4][strings.LastIndex(log[4], `"hash":"`)+len(`"hash":"`):], "\"}\n")
	sealed := func(before string, line receipt.Line) string {
		line.Chain = second[0].Chain
		written, _, err := receipt.Seal(before, &line)
		expect.NoError(t, err)
		return string(written)
	}
	for name, c := range map[string]struct {
		reason, log, says string
		want              error
		lines             int
	}{
		"whole":               {"each process begins a chain", strings.Join(log, ""), "", nil, 8},
		"among others":        {"a collector mixes logs", "started\n" + strings.Join(log, "{\"level\":\"info\"}\n"), "", nil, 8},
		"goes on":             {"a manager that runs has not ended its chain", strings.Join(log[:6], ""), "", nil, 6},
		"altered":             {"one letter is enough", with(5, strings.Replace(log[5], "gate", "gaze", 1)), "line 6 ", receipt.ErrAltered, 5},
		"altered hash":        {"the hash is part of the line", with(5, strings.Replace(log[5], `"hash":"`, `"hash":"0`, 1)), "line 6 ", receipt.ErrAltered, 5},
		"no hash":             {"each line has one", with(5, `{"chain":"m","number":1}`+"\n"), "line 6 ", receipt.ErrAltered, 5},
		"twice":               {"a collector delivers a line again", with(5, log[5]+log[5]), "", nil, 8},
		"taken out":           {"the next line of the chain tells", with(5, ""), "line 6: line 1 of chain m", receipt.ErrMissing, 5},
		"cut off in a line":   {"a line ends with a newline", strings.TrimSuffix(strings.Join(log[:6], ""), "\n"), "line 6 ", receipt.ErrCutOff, 5},
		"cut off at the head": {"a chain begins with its first line", strings.Join(log[5:], ""), "line 1: line 0 of chain m", receipt.ErrMissing, 0},
		"the end twice":       {"or many", strings.Join(log, "") + strings.Join(log[2:], ""), "", nil, 8},
		"twice, and altered":  {"they differ", with(5, log[5]+strings.Replace(log[5], "gate", "gaze", 1)), "line 7 ", receipt.ErrAltered, 6},
		"twice, and sealed anew": {
			"they differ", with(6, log[6]+sealed(first, receipt.Line{Number: 1, Kind: receipt.Flip})), "line 8 ", receipt.ErrAltered, 7,
		},
		"numbered below 0": {
			"a chain begins at 0", with(6, sealed("", receipt.Line{Number: -1, Kind: receipt.Flip})), "line 7 ", receipt.ErrAltered, 6,
		},
	} {
		lines, err := receipt.Read([]byte(c.log))
		if len(lines) != c.lines || !errors.Is(err, c.want) || c.want != nil && !strings.HasPrefix(err.Error(), c.says) {
			t.Errorf("%s: %d lines, %v; want %d lines and %v at %q: %s", name, len(lines), err, c.lines, c.want, c.says, c.reason)
		}
	}
}

// TestCrash: a manager that was killed within a line leaves a log that the next one accounts for, also where the file is full.
func TestCrash(t *testing.T) {
	t.Parallel()
	type row struct {
		flips   int
		maxSize int64
	}
	expect.Each(t, map[string]row{
		"the file goes on": {2, 1 << 20},
		"the file is full": {50, 8 << 10},
	}, func(t *testing.T, tc row) {
		path := filepath.Join(t.TempDir(), "audit")
		first, _ := open(t, path, 1<<20)
		flips(first, tc.flips)
		expect.NoError(t, first.Close(t.Context(), true))
		whole := read(t, first)
		expect.NoError(t, os.WriteFile(path, whole[:len(whole)-40], 0o600))
		second, _ := open(t, path, tc.maxSize)
		flips(second, 1)
		expect.NoError(t, second.Close(t.Context(), true))
		lines, err := receipt.Read(read(t, second))
		begun := tc.flips + 1 // lines of the first chain that are whole
		if err != nil || len(lines) != begun+3 || !lines[begun].Torn {
			t.Errorf("%d lines, %v: want those of both chains, and the second to say that the first was torn", len(lines), err)
		}
	})
}

// TestRotates: the file before is kept, and a receipt reads both.
func TestRotates(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit")
	l, lost := open(t, path, 8<<10)
	flips(l, 50)
	expect.NoError(t, l.Close(t.Context(), true))
	lines, err := receipt.Read(read(t, l))
	begun := 0
	for _, line := range lines {
		if line.Kind == receipt.Begin {
			if line.Continues != (begun > 0) {
				t.Errorf("chain %d says that a file before it has lines too: %t", begun, line.Continues)
			}
			begun++
		}
	}
	if err != nil || begun != 2 || lost.Load() != 0 || lines[len(lines)-1].Kind != receipt.End {
		t.Errorf("%d lines in %d chains, %d lost, %v: want two whole chains", len(lines), begun, lost.Load(), err)
	}
}

// TestMovedAway: a person moves the file away, as docs/receipts.md says after lines were lost. The next one has a chain of its own.
func TestMovedAway(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit")
	l, lost := open(t, path, 8<<10)
	flips(l, 2)
	expect.Becomes(t, "the chain has begun", func() bool { return bytes.Count(read(t, l), []byte("\n")) == 3 })
	expect.NoError(t, os.Rename(path, path+".away"))
	flips(l, 50) // more than the file may have
	expect.NoError(t, l.Close(t.Context(), true))
	lines, err := receipt.Read(read(t, l))
	if err != nil || len(lines) < 50 || lines[0].Kind != receipt.Begin || !lines[0].Continues || lost.Load() != 0 {
		t.Errorf("%d lines, %d lost, %v: want all since then, from the beginning of a chain that continues another", len(lines), lost.Load(), err)
	}
}

// TestFullDisk: nothing waits, and the next line counts what is lost.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	l, lost := open(t, "/dev/full", 1<<20)
	flips(l, 3)
	expect.NoError(t, l.Close(t.Context(), true))
	if lost.Load() != 4 {
		t.Errorf("%d lines were reported as lost, want 4", lost.Load())
	}
}

// TestStuckDisk: a disk that takes nothing holds no caller, and the gap is in the chain.
func TestStuckDisk(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pipe")
	expect.NoError(t, syscall.Mkfifo(path, 0o600))
	reader, err := os.OpenFile(path, os.O_RDWR, 0)
	expect.NoError(t, err)
	defer reader.Close()
	var lost atomic.Int64
	l := &Log{
		Options: Options{Path: path, MaxSize: 1 << 40, Failed: func(n int, _ error) { lost.Add(int64(n)) }},
		lines:   make(chan receipt.Line, 4), done: make(chan struct{}),
	}
	flips(l, 10) // it would never end if Write waited
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	expect.NoError(t, err)
	go l.run(&chain{log: l, file: file})
	expect.Becomes(t, "what waits is written once the disk takes it", func() bool { return len(l.lines) == 0 })
	flips(l, 1)
	expect.NoError(t, l.Close(t.Context(), true))
	text := make([]byte, 1<<20)
	n, err := reader.Read(text)
	expect.NoError(t, err)
	if _, err := receipt.Read(text[:n]); !errors.Is(err, receipt.ErrLost) || lost.Load() != 6 {
		t.Errorf("%d lines lost, %v: want 6, and the chain to say so", lost.Load(), err)
	}
}

// TestClosedBeforeAllWorkHasEnded: a manager that lost its lease does not wait for its calls.
func TestClosedBeforeAllWorkHasEnded(t *testing.T) {
	t.Parallel()
	l, lost := open(t, filepath.Join(t.TempDir(), "audit"), 1<<20)
	flips(l, 1)
	expect.NoError(t, l.Close(t.Context(), false))
	flips(l, 2)
	if log := string(read(t, l)); strings.Contains(log, `"kind":"end"`) || !strings.Contains(log, `"kind":"flip"`) {
		t.Errorf("the chain is to break off after the flip: %s", log)
	}
	if got := lost.Load(); got != 2 {
		t.Errorf("%d lines are counted as lost, want the 2 that came late", got)
	}
}
