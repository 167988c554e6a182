package clock

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestPreload: a program that asks the C library is told another time of day. What is built in Go, test/harness/cache tests.
func TestPreload(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skipf("no C compiler: %v", err)
	}
	c, err := New(filepath.Join(t.TempDir(), "clock"))
	expect.NoError(t, err)
	library, err := c.Preload(t.Context())
	expect.NoError(t, err)
	for _, ahead := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute} {
		expect.NoError(t, c.Set(ahead))
		date := exec.CommandContext(t.Context(), "date", "+%s")
		date.Env = append(c.Env(), library...)
		said, err := date.Output()
		expect.NoError(t, err)
		seconds, err := strconv.ParseInt(strings.TrimSpace(string(said)), 10, 64)
		expect.NoError(t, err)
		if off := time.Until(time.Unix(seconds, 0)) - ahead; off.Abs() > time.Minute {
			t.Errorf("%s ahead: it is %s ahead of that", ahead, off)
		}
	}
}

// TestOtherStandardLibrary: a Go that asks for the time of day in another way is not built with what is right only by chance.
func TestOtherStandardLibrary(t *testing.T) {
	t.Parallel()
	goroot := t.TempDir()
	std := filepath.Join(goroot, "src", "time")
	expect.NoError(t, os.MkdirAll(std, 0o700))
	expect.NoError(t, os.WriteFile(filepath.Join(std, "time.go"), []byte("package time\n"), 0o600))
	_, err := Overlay(goroot, t.TempDir())
	expect.Error(t, "the file that has changed is named", err, std+"/time.go has ")
}
