//go:build !linux

package cache

import "github.com/rollcall-dev/rollcall/test/harness/process"

func freeDisk(string) (uint64, error) { return 0, process.Supported() }
