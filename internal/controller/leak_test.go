package controller

import (
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// TestMain fails where a goroutine is left when all tests are done.
func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // without one, the library writes a stack after 30 s, into whichever test runs
	goleak.VerifyTestMain(m)
}
