package app

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestLoggerIsLazy shows that values cost nothing until a line is logged, which then has them in zap's order.
func TestLoggerIsLazy(t *testing.T) {
	t.Parallel()
	var output bytes.Buffer
	f := &flags{}
	zap.WriteTo(&output)(&f.zap)
	encoded := 0
	log, _ := (&options{}).log(f)
	logger := log.WithName("pods").WithValues("pod", counted{&encoded}).WithValues("try", 2)
	sibling := logger.WithValues("other", true)
	logger.V(1).Info("not at this level")
	if encoded != 0 {
		t.Errorf("a value was encoded %d times, and no line was logged", encoded)
	}
	logger.Info("looked at", "row", 7)
	sibling.Error(errors.New("refused"), "cannot go on")
	for _, want := range []map[string]any{
		{"level": "info", "logger": "pods", "msg": "looked at", "pod": "web-0", "try": 2.0, "row": 7.0},
		{"level": "error", "logger": "pods", "msg": "cannot go on", "pod": "web-0", "try": 2.0, "other": true, "error": "refused"},
	} {
		line, err := output.ReadBytes('\n')
		expect.NoError(t, err)
		got := map[string]any{}
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		delete(got, "ts")
		delete(got, "stacktrace")
		expect.Equal(t, want, got, "line")
	}
}

type counted struct{ times *int }

func (c counted) MarshalText() ([]byte, error) {
	*c.times++
	return []byte("web-0"), nil
}

func TestRestingGivesMemoryBackAfterAStorm(t *testing.T) {
	t.Parallel()
	const quiet, busy = restBelow, restFor
	type row struct {
		reason    string
		allocates []uint64
		want      int
	}
	expect.Each(t, map[string]row{
		"storm":        {"the memory may be used again at once", []uint64{busy, busy, busy, quiet}, 0},
		"after it":     {"nothing will use it soon", []uint64{busy, busy, quiet, quiet}, 1},
		"still quiet":  {"there is nothing more to give back", []uint64{busy, quiet, quiet, quiet, quiet}, 1},
		"small matter": {"collecting garbage costs more than that is worth", []uint64{quiet, quiet, quiet, quiet}, 0},
		"second storm": {"it has made garbage of its own", []uint64{busy, quiet, quiet, busy, quiet, quiet}, 2},
	}, func(t *testing.T, tc row) {
		released, allocated := 0, uint64(0)
		r := &resting{release: func() { released++ }}
		for _, bytes := range tc.allocates {
			allocated += bytes
			r.look(allocated)
		}
		if released != tc.want {
			t.Errorf("memory was given back %d times, want %d\nreason: %s", released, tc.want, tc.reason)
		}
	})
}
