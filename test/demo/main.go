package main

import (
	"context"
	"fmt"
	"os"

	"github.com/rollcall-dev/rollcall/test/harness/command"
)

func main() { os.Exit(command.Run("demo", start)) }

func start(ctx context.Context) error {
	keep, err := keepFrom(os.Getenv("KEEP"))
	if err != nil {
		return err
	}
	driver, err := driverFrom(os.Getenv("REGISTRY"))
	if err != nil {
		return err
	}
	app, err := adoptFrom(os.Getenv("ADOPT"), driver, os.Getenv("APP"))
	if err != nil {
		return err
	}
	return run(ctx, newScreen(os.Stdout), options{driver: driver, keep: keep, app: app})
}

// keepFrom reads the variable KEEP.
func keepFrom(value string) (bool, error) {
	switch value {
	case "", "0":
		return false, nil
	case "1":
		return true, nil
	default:
		return false, fmt.Errorf("KEEP is %q: write 1 to keep everything running after the demo, or leave it out", value)
	}
}
