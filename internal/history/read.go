package history

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"
)

// deepest is how deep lines can be in an export, some of which have JSON in strings.
const deepest = 8

// Read returns the history's lines of several logs in the order of time, and the first time in each, of any line. A log is what managers
// have written, or a collector's export of that: the lines may be behind other text, or in JSON, as objects or as strings. Calls are left
// out. A line that several logs have counts once.
func Read(logs ...[]byte) *History {
	h := &History{}
	seen := map[string]bool{}
	for source, log := range logs {
		h.begin = append(h.begin, time.Time{})
		r := reader{history: h, source: source, seen: seen}
		if whole := bytes.TrimSpace(log); json.Valid(whole) {
			r.value(whole, deepest)
			continue
		}
		for text := range bytes.Lines(log) {
			r.text(text, deepest)
		}
	}
	slices.SortStableFunc(h.lines, func(a, b Line) int { return a.At.Compare(b.At) })
	h.rename()
	return h
}

type reader struct {
	history *History
	source  int
	seen    map[string]bool
}

// text reads JSON that may be behind a time or a pod's name.
func (r reader) text(text []byte, depth int) {
	if start := bytes.IndexAny(text, "{["); start >= 0 && depth > 0 {
		if json.Valid(text[start:]) {
			r.value(text[start:], depth)
		} else if start = bytes.IndexByte(text, '{'); start >= 0 && json.Valid(text[start:]) {
			r.value(text[start:], depth)
		}
	}
}

func (r reader) value(text json.RawMessage, depth int) {
	text = bytes.TrimSpace(text)
	switch {
	case depth == 0 || len(text) == 0:
	case text[0] == '{':
		if !r.line(text) {
			var object map[string]json.RawMessage
			_ = json.Unmarshal(text, &object) // it is valid
			for _, value := range object {
				r.value(value, depth-1)
			}
		}
	case text[0] == '[':
		var list []json.RawMessage
		_ = json.Unmarshal(text, &list)
		for _, value := range list {
			r.value(value, depth-1)
		}
	case text[0] == '"' && bytes.IndexByte(text, '{') > 0:
		var inner string
		_ = json.Unmarshal(text, &inner)
		r.text([]byte(inner), depth-1)
	}
}

// line reports whether the object is a line of any log, and takes it if it is the history's.
func (r reader) line(text json.RawMessage) bool {
	var l struct {
		Time    json.RawMessage `json:"ts"`
		Logger  string          `json:"logger"`
		Message Kind            `json:"msg"`
		Line
	}
	if err := json.Unmarshal(text, &l); l.Message == "" || len(l.Time) == 0 || err != nil && l.Logger == Name {
		return false
	}
	at, known := timeOf(l.Time)
	if !known {
		return false
	}
	if begin := &r.history.begin[r.source]; begin.IsZero() || at.Before(*begin) {
		*begin = at
	}
	if at.After(r.history.until) {
		r.history.until = at
	}
	if !strings.HasSuffix("."+l.Logger, "."+Name) || l.Message == Called || r.seen[string(text)] {
		return true
	}
	r.seen[string(text)] = true
	l.At, l.Kind, l.source = at, l.Message, r.source
	r.history.lines = append(r.history.lines, l.Line)
	return true
}

// timeOf reads what zap's encoders write: a time as text, or seconds, milliseconds or nanoseconds since 1970.
func timeOf(text json.RawMessage) (at time.Time, known bool) {
	var number float64
	if json.Unmarshal(text, &number) == nil {
		for number > 1e11 { // after the year 5138
			number /= 1000
		}
		whole, part := math.Modf(number)
		return time.Unix(int64(whole), int64(part*1e9)).UTC(), true
	}
	var written string
	_ = json.Unmarshal(text, &written)
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.000Z0700"} {
		if at, err := time.Parse(layout, written); err == nil {
			return at.UTC(), true
		}
	}
	return at, false
}
