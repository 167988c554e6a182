package app

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// TestLoggerIsLazy shows that values cost nothing until a line is logged, which then has them in zap's order.
func TestLoggerIsLazy(t *testing.T) {
	t.Parallel()
	var output bytes.Buffer
	f := &flags{}
	zap.WriteTo(&output)(&f.zap)
	encoded := 0
	logger := (&options{}).log(f).WithName("pods").WithValues("pod", counted{&encoded}).WithValues("try", 2)
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
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]any{}
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		delete(got, "ts")
		delete(got, "stacktrace")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("line (-want +got):\n%s", diff)
		}
	}
}

type counted struct{ times *int }

func (c counted) MarshalText() ([]byte, error) {
	*c.times++
	return []byte("web-0"), nil
}
