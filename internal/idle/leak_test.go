package idle

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails where a goroutine is left when all tests are done.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
