package command

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

func TestRun(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		err    error
		want   int
	}{
		{"what went well is 0", nil, 0},
		{"a play that failed is 1, whatever wraps that", fmt.Errorf("playing: %w", ErrFailed), 1},
		{"an error is 1", errors.New("the server does not start"), 1},
	} {
		if got := Run("test", func(context.Context) error { return tc.err }); got != tc.want {
			t.Errorf("%s: exit status %d", tc.reason, got)
		}
	}
}
