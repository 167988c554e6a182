// Command cluster builds the servers of the test cluster that are not in the cache yet.
package main

import (
	"context"
	"os"

	"github.com/rollcall-dev/rollcall/test/harness/cluster"
	"github.com/rollcall-dev/rollcall/test/harness/command"
)

func main() {
	os.Exit(command.Run("cluster", func(ctx context.Context) error { return cluster.Build(ctx, os.Stderr) }))
}
