package registrytest_test

import (
	"os"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/registry/registrytest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// Cases are skipped for what a harness has not, so who writes a driver has to know all there is to have.
func TestEveryCapabilityStandsInTheGuide(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../docs/writing-a-driver.md")
	expect.NoError(t, err)
	_, table, _ := strings.Cut(string(guide), "| capability | is |")
	for _, c := range registrytest.Capabilities() {
		if !strings.Contains(table, "`"+string(c)+"`") {
			t.Errorf("docs/writing-a-driver.md does not say what %s is", c)
		}
	}
}
