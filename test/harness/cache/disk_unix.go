//go:build unix

package cache

import (
	"errors"
	"path/filepath"
	"syscall"
)

func freeDisk(dir string) (uint64, error) {
	for {
		var stat syscall.Statfs_t
		err := syscall.Statfs(dir, &stat)
		if errors.Is(err, syscall.ENOENT) && dir != "/" {
			dir = filepath.Dir(dir)
			continue
		}
		if err != nil {
			return 0, err
		}
		return stat.Bavail * uint64(stat.Bsize), nil
	}
}
