package registries_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/process"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
)

func TestAServerThatEndsAtItsStart(t *testing.T) {
	t.Parallel()
	type row struct {
		reason   string
		restarts int
		want     string
	}
	expect.Each(t, map[string]row{
		"is started again":     {"the second start succeeds", 1, ""},
		"is not started again": {"its first end is the error", 0, "it ended before it was ready: exit status 1"},
	}, func(t *testing.T, tc row) {
		var started string
		server, err := registries.Run(t.Context(), registries.Spec{
			Name: "server", Restarts: tc.restarts,
			Command: func(dir string) (process.Command, error) {
				started = filepath.Join(dir, "started")
				script := `mkdir "$0" && exit 1; touch "$0/again"; exec sleep 600`
				return process.Command{Path: "sh", Args: []string{"-c", script, started}}, nil
			},
			Ready: func(context.Context) error {
				_, err := os.Stat(filepath.Join(started, "again"))
				return err
			},
		})
		t.Cleanup(server.Stop)
		expect.Error(t, tc.reason, err, tc.want)
		if err != nil && !errors.Is(err, process.ErrEnded) {
			t.Errorf("%v is not ErrEnded", err)
		}
	})
}
