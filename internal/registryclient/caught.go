package registryclient

import (
	"fmt"
	"runtime/debug"
)

// caught returns a panic of the driver as an error. In a goroutine it would end the manager, and each that leads after it: the next one
// meets the same entry.
func (o Options) caught(call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the driver panicked: %v", p)
			o.Logger.Error(err, "call failed", "registry", o.Name, "stack", string(debug.Stack()))
		}
	}()
	return call()
}
