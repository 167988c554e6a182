//go:build !linux

package cluster

import (
	"fmt"
	"runtime"
)

func supported() error {
	return fmt.Errorf("the test cluster runs on Linux only, not on %s: its pods need the whole of 127.0.0.0/8 "+
		"as addresses, and its servers must end with the process that started them", runtime.GOOS)
}
