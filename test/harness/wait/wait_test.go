package wait

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestUntil(t *testing.T) {
	t.Parallel()
	late := errors.New("the pod is not there")
	looks := 0
	expect.NoError(t, Until(t.Context(), time.Minute, time.Millisecond, func(context.Context) error {
		if looks++; looks < 3 {
			return late
		}
		return nil
	}))
	err := Until(t.Context(), 10*time.Millisecond, time.Millisecond, func(ctx context.Context) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return late
	})
	expect.Error(t, "it says how long it waited, and for what", err, "waited 10ms in vain: the pod is not there")
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("etcd died"))
	err = Until(ended, time.Minute, time.Minute, func(context.Context) error { return late })
	expect.Error(t, "it says why its context ended", err, "etcd died")
}
