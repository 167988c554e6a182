package history

import (
	"bytes"
	"cmp"
	"testing"
	"time"

	"go.uber.org/zap/zapcore"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/logged"
)

// story is a manager that writes its log while time passes.
type story struct {
	Log

	now time.Time
	out bytes.Buffer
}

func newStory() *story {
	s := &story{now: at}
	s.Log = New(logged.JSON(&s.out, zapcore.InfoLevel, func() time.Time { return s.now }))
	s.starts()
	return s
}

// starts writes a line of another kind, such as each manager's first.
func (s *story) starts() { s.logger.WithName("else").Info("starting", "entries", 5) }

func (s *story) after(d time.Duration) *story {
	s.now = s.now.Add(d)
	return s
}

func (s *story) joins() *story { return s.joinsIn("PreparingNormal") }

func (s *story) joinsIn(state string) *story {
	s.after(time.Second).Registered(web1, entry, state, time.Millisecond)
	return s
}

func (s *story) isNew() *story {
	return s.released("preNormal", "PreparingNormal", In, "", 0)
}

func (s *story) isBack() *story { return s.released("inPlaceUpdate", "Updated", In, "", 0) }

func (s *story) released(hook, state, rotation, by string, drain time.Duration) *story {
	s.after(100*time.Millisecond).Released(web1, Release{
		Hook: hook, State: state, Rotation: rotation, By: cmp.Or(by, ByAcknowledgement), Entries: []Entry{entry}, Drain: drain, Waited: time.Second,
	})
	return s
}

func (s *story) leaves() *story {
	s.after(time.Second).TakenOut(web1, entry, time.Millisecond)
	return s
}

func (s *story) goes() *story {
	s.after(time.Second).Removed(web1, entry, "", time.Millisecond)
	return s
}

func (s *story) updates() *story   { return s.released("inPlaceUpdate", "PreparingUpdate", Out, "", 0) }
func (s *story) isDeleted() *story { return s.released("preDelete", "PreparingDelete", Gone, "", 0) }

func (s *story) drained(for_, least time.Duration) *story {
	return s.after(for_-100*time.Millisecond).released("preDelete", "PreparingDelete", Gone, "", least)
}

// ends is when the log does.
func (s *story) ends(after time.Duration) *story {
	s.after(after).starts()
	return s
}

func serving() *story { return newStory().after(time.Minute).joins().isNew() }

func TestFindings(t *testing.T) {
	t.Parallel()
	moved := Entry{Registry: "default", Service: "web", Endpoint: "10.0.0.2:8080"}
	type row struct {
		reason string
		told   *story
		want   string
	}
	expect.Each(t, map[string]row{
		"an update":       {"each step waited for the one before", serving().leaves().updates().joins().isBack(), ""},
		"a deletion":      {"it was out, drained, and then released", serving().goes().drained(30*time.Second, 30*time.Second).ends(time.Hour), ""},
		"no lines before": {"what came before is not known", newStory().updates().isBack(), ""},

		"new, and released before it is in": {
			"the log has all lines of the pod", newStory().after(time.Minute).isNew().joins(),
			"released before acknowledged: hook preNormal was released although no registry had acknowledged default web 10.0.0.1:8080, " +
				"which was registered 1s later",
		},
		"new, and the log begins later": {"a line may be in the log before", newStory().isNew().joins(), ""},
		"back before it is in": {
			"clients can't be given it", serving().leaves().updates().isBack().joins(),
			"released before acknowledged: hook inPlaceUpdate was released although default web 10.0.0.1:8080 was taken out 200ms before, " +
				"which was registered 1s later",
		},
		"updated in rotation": {
			"clients are given it", serving().updates().leaves(),
			"released before acknowledged: hook inPlaceUpdate was released although default web 10.0.0.1:8080 was in rotation, which was taken out 1s later",
		},
		"deleted in rotation": {
			"and it stays there", serving().isDeleted().ends(time.Minute),
			"released before acknowledged: hook preDelete was released although default web 10.0.0.1:8080 was in rotation\n" +
				"left in rotation: default web 10.0.0.1:8080 is in rotation since 14:49:54.120, and no line shows that it was removed after hook preDelete " +
				"was released at 14:49:54.320",
		},
		"moved": {
			"a place that it has left is none that it must be in", func() *story {
				s := serving()
				s.after(time.Second).Registered(web1, moved, "Updated", 0)
				s.goes().after(time.Second).Released(web1, Release{
					Hook: "preNormal", State: "Updated", Rotation: In, By: ByAcknowledgement, Entries: []Entry{moved},
				})
				return s
			}(), "",
		},

		"a drain that is too short": {
			"clients may not have noticed", serving().leaves().drained(20*time.Second, 30*time.Second),
			"drain cut short: hook preDelete was released 20s after default web 10.0.0.1:8080 was taken out, and its drain is 30s",
		},
		"a drain, and the entry removed at its end": {
			"it counts from when it was out", serving().leaves().after(30*time.Second).goes().drained(time.Second, 30*time.Second), "",
		},
		"a drain that another manager began": {
			"its log is gone", func() *story {
				s := serving()
				s.after(time.Minute).TakenOut(web1, entry, 0)
				s.DrainBegun(web1, s.now.Add(-20*time.Second), 30*time.Second, 30*time.Second)
				return s.drained(11*time.Second, 30*time.Second)
			}(), "",
		},
		"the drain of the time before": {
			"the pod was in rotation since", func() *story {
				s := serving().leaves()
				s.DrainBegun(web1, s.now, 30*time.Second, 30*time.Second)
				return s.joins().leaves().drained(20*time.Second, 30*time.Second)
			}(), "drain cut short: hook preDelete was released 20s after default web 10.0.0.1:8080 was taken out, and its drain is 30s",
		},

		"proceedAfter": {
			"nobody had acknowledged it", serving().released("preDelete", "PreparingDelete", Gone, ByProceedAfter, 0).after(29 * time.Second).goes(),
			"left in rotation: hook preDelete was released by proceedAfter although default web 10.0.0.1:8080 was in rotation, which was removed 30s later",
		},
		"proceedAfter, and it stays": {
			"nobody has removed it", serving().released("preDelete", "PreparingDelete", Gone, ByProceedAfter, 0).ends(time.Minute),
			"left in rotation: default web 10.0.0.1:8080 is in rotation since 14:49:54.120, and no line shows that it was removed after hook preDelete " +
				"was released at 14:49:54.320",
		},
		"proceedAfter, just now": {"it may be removed soon", serving().released("preDelete", "PreparingDelete", Gone, ByProceedAfter, 0).ends(time.Second), ""},
		"a person's skip of an update": {
			"clients were given a pod that restarts", serving().released("inPlaceUpdate", "PreparingUpdate", Out, BySkip, 0),
			"left in rotation: hook inPlaceUpdate was released by skip although default web 10.0.0.1:8080 was in rotation",
		},
		"put back after the release": {
			"a deleted pod has no place there", serving().goes().isDeleted().joinsIn("PreparingDelete").ends(time.Minute),
			"left in rotation: default web 10.0.0.1:8080 is in rotation since 14:49:56.320, and no line shows that it was removed after hook preDelete " +
				"was released at 14:49:55.320",
		},
		"acknowledged after the release": {
			"the call was on its way", func() *story {
				s := serving().goes().isDeleted()
				s.after(time.Second).Registered(web1, entry, "Normal", 2*time.Second)
				return s.ends(time.Minute)
			}(),
			"left in rotation: default web 10.0.0.1:8080 is in rotation since 14:49:56.320, and no line shows that it was removed after hook preDelete " +
				"was released at 14:49:55.320",
		},
		"kept after the release": {
			"its deletion was cancelled", serving().goes().isDeleted().joins().ends(time.Minute), "",
		},

		"a registry with a new name": {
			"its entries are the same", func() *story {
				s := serving()
				s.Renamed("consul", "default")
				now := entry
				now.Registry = "consul"
				s.after(time.Second).Removed(web1, now, "", 0)
				s.Released(web1, Release{Hook: "preDelete", State: "PreparingDelete", Rotation: Gone, By: ByAcknowledgement, Entries: []Entry{now}})
				return s.ends(time.Minute)
			}(), "",
		},
	}, func(t *testing.T, c row) {
		got := ""
		for _, f := range Read(c.told.out.Bytes()).Findings() {
			if f.Pod != web1 {
				t.Errorf("it is about %+v", f.Pod)
			}
			got += f.Rule + ": " + f.Text + "\n"
		}
		expect.Equal(t, c.want, string(bytes.TrimSpace([]byte(got))), "%s", c.reason)
	})
}

// TestSeveralLogs: a pod's lines are in the logs of those who led, which a copy can have twice.
func TestSeveralLogs(t *testing.T) {
	t.Parallel()
	first, second := serving().leaves(), newStory()
	second.now = first.now.Add(20 * time.Second)
	second.starts()
	second.drained(time.Second, 30*time.Second)
	for name, logs := range map[string][][]byte{
		"in order":  {first.out.Bytes(), second.out.Bytes()},
		"reversed":  {second.out.Bytes(), first.out.Bytes()},
		"and again": {first.out.Bytes(), second.out.Bytes(), first.out.Bytes()},
	} {
		h := Read(logs...)
		if got := h.Findings(); len(h.Lines()) != 4 || len(got) != 1 || got[0].Rule != DrainCutShort {
			t.Errorf("%s: %d lines and %+v, want 4 lines and a drain that was cut short", name, len(h.Lines()), got)
		}
	}
}
