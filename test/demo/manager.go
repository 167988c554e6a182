package main

import (
	"fmt"

	"github.com/rollcall-dev/rollcall/test/harness/traffic"
)

// drain exceeds all that a client may be behind: one refresh of what it knows, and one request.
const drain = 2 * (traffic.RefreshEvery + traffic.RequestTimeout)

func managerConfig(section string) string {
	return fmt.Sprintf(`cluster: demo
registry: %s
hooks:
  owned: [example.com/*]
service:
  name: "{label:app}"
drain: %s
`, section, drain)
}
