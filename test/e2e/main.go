// Command e2e plays rollouts on real nodes while clients send requests, and counts those that are lost with Rollcall,
// with what a careful team does without it, and with a mirror of readiness alone. docs/e2e.md describes it.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/rollcall-dev/rollcall/test/harness/command"
)

// insideArg is the argument of the process that runs in namespaces of its own.
const insideArg = "inside"

func main() { os.Exit(command.Run("e2e", start)) }

func start(ctx context.Context) error {
	short, err := shortFrom(os.Getenv("E2E"))
	if err != nil {
		return err
	}
	if len(os.Args) > 1 && os.Args[1] == insideArg {
		return inside(ctx, short)
	}
	if err := prepare(ctx); err != nil {
		return err
	}
	return isolated(ctx, insideArg)
}

// shortFrom reads the variable E2E.
func shortFrom(value string) (bool, error) {
	switch value {
	case "":
		return false, nil
	case "short":
		return true, nil
	default:
		return false, fmt.Errorf("E2E is %q: write short for the scenarios that CI plays, or leave it out for all", value)
	}
}
