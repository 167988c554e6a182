package process

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

const testPrefix = "rollcall-process-test-"

func TestNewDir(t *testing.T) {
	t.Parallel()
	full := t.TempDir()
	expect.NoError(t, os.Mkdir(filepath.Join(full, "data"), 0o700))
	_, _, err := NewDir(full, testPrefix)
	expect.Error(t, "data of an earlier server is not its own", err, "not empty")

	fresh := filepath.Join(t.TempDir(), "a", "b")
	dir, release, err := NewDir(fresh, testPrefix)
	if err != nil || dir != fresh {
		t.Fatalf("a new folder: %q, %v", dir, err)
	}
	release()
	if _, err := os.Stat(fresh); err != nil {
		t.Errorf("a folder that the caller named does not stay: %v", err)
	}
}

func TestTempDirIsRemovedUnlessInUse(t *testing.T) {
	t.Parallel()
	killed, releaseKilled, err := tempDir(testPrefix)
	expect.NoError(t, err)
	sweepTempDirs(testPrefix)
	if _, err := os.Stat(killed); err != nil {
		t.Fatalf("the sweep removed a folder that is in use: %v", err)
	}
	releaseKilled()
	if _, err := os.Stat(killed); err == nil {
		t.Error("the folder is still there after its release")
	}

	expect.NoError(t, os.MkdirAll(killed, 0o700))
	expect.NoError(t, os.WriteFile(filepath.Join(killed, ownerLock), nil, 0o600))
	sweepTempDirs(testPrefix)
	if _, err := os.Stat(killed); err == nil {
		t.Error("the sweep left a folder whose owner is gone")
	}
}

func TestTempDirsMadeAtOnce(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 { // a sweep comes between making a folder and locking it once in a few hundred times
				dir, release, err := tempDir(testPrefix + "at-once-")
				if err != nil {
					t.Error(err)
					return
				}
				if err := os.Mkdir(filepath.Join(dir, "data"), 0o700); err != nil {
					t.Errorf("the folder is gone while it is in use: %v", err)
				}
				release()
			}
		})
	}
	all.Wait()
}
