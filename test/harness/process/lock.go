package process

import "errors"

// ErrLocked is what TryLock returns where another holds the lock.
var ErrLocked = errors.New("locked by another process")
