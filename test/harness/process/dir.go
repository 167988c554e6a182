package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const ownerLock = "owner.lock"

// NewDir returns the folder of a server that begins anew. Without a name it is a temporary one, whose name begins with
// prefix and which release removes.
func NewDir(name, prefix string) (dir string, release func(), err error) {
	if name == "" {
		return tempDir(prefix)
	}
	dir, err = filepath.Abs(name)
	if err != nil {
		return "", nil, fmt.Errorf("finding the folder: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, fmt.Errorf("creating the folder: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", nil, fmt.Errorf("reading the folder: %w", err)
	}
	if len(entries) > 0 {
		return "", nil, fmt.Errorf("folder %s is not empty: name a new one", dir)
	}
	return dir, func() {}, nil
}

// tempDir makes a temporary folder and holds a lock in it for as long as it is in use.
func tempDir(prefix string) (dir string, release func(), err error) {
	sweepTempDirs(prefix)
	dir, err = os.MkdirTemp("", prefix)
	if err != nil {
		return "", nil, fmt.Errorf("creating a temporary folder: %w", err)
	}
	unlock, err := TryLock(filepath.Join(dir, ownerLock))
	if errors.Is(err, ErrLocked) {
		// The sweep of another process took it for a left-over, in the moment before it was locked.
		return tempDir(prefix)
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return "", nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, ownerLock)); errors.Is(err, os.ErrNotExist) {
		// The same, but the sweep had the lock before us and is done: what we hold is the lock of a removed folder.
		unlock()
		return tempDir(prefix)
	}
	return dir, func() {
		_ = os.RemoveAll(dir)
		unlock()
	}, nil
}

// sweepTempDirs removes the temporary folders whose owner was killed: their lock is free.
func sweepTempDirs(prefix string) {
	locks, err := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*", ownerLock))
	if err != nil {
		return
	}
	for _, lock := range locks {
		unlock, err := TryLock(lock)
		if err != nil {
			continue
		}
		_ = os.RemoveAll(filepath.Dir(lock))
		unlock()
	}
}
