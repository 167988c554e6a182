package zookeeper

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain fails where a goroutine is left when all tests are done. The client takes up to a second to close: it wants to
// tell a server, and finds none.
func TestMain(m *testing.M) {
	code := m.Run()
	var err error
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		if err = goleak.Find(); err == nil {
			break
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
