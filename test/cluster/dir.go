package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const (
	tempPattern = "rollcall-cluster-"
	ownerLock   = "owner.lock"
)

// clusterDir returns the folder of a new cluster. Without a name it is a temporary one, which release removes.
func clusterDir(name string) (dir string, release func(), err error) {
	if name == "" {
		return tempDir()
	}
	dir, err = filepath.Abs(name)
	if err != nil {
		return "", nil, fmt.Errorf("finding Options.Dir: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, fmt.Errorf("creating Options.Dir: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", nil, fmt.Errorf("reading Options.Dir: %w", err)
	}
	if len(entries) > 0 {
		return "", nil, fmt.Errorf("Options.Dir %s is not empty: name a new folder, each cluster begins anew", dir)
	}
	return dir, func() {}, nil
}

// tempDir makes a temporary folder and holds a lock in it for as long as it is in use.
func tempDir() (dir string, release func(), err error) {
	sweepTempDirs()
	dir, err = os.MkdirTemp("", tempPattern)
	if err != nil {
		return "", nil, fmt.Errorf("creating a temporary folder: %w", err)
	}
	unlock, err := tryLock(filepath.Join(dir, ownerLock))
	if errors.Is(err, errLocked) {
		// The sweep of another process took it for a left-over, in the moment before it was locked.
		return tempDir()
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return "", nil, err
	}
	return dir, func() {
		_ = os.RemoveAll(dir)
		unlock()
	}, nil
}

// sweepTempDirs removes the temporary folders whose owner was killed: nobody holds their lock.
func sweepTempDirs() {
	locks, err := filepath.Glob(filepath.Join(os.TempDir(), tempPattern+"*", ownerLock))
	if err != nil {
		return
	}
	for _, lock := range locks {
		unlock, err := tryLock(lock)
		if err != nil {
			continue
		}
		_ = os.RemoveAll(filepath.Dir(lock))
		unlock()
	}
}
