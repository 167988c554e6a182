package main

import (
	"context"
	"fmt"
	"os"

	"github.com/rollcall-dev/rollcall/test/harness/command"
)

func main() { os.Exit(command.Run("demo", start)) }

func start(ctx context.Context) error {
	keep, err := isOn("KEEP", "keep everything running after the demo")
	if err != nil {
		return err
	}
	driver, err := driverFrom(os.Getenv("REGISTRY"))
	if err != nil {
		return err
	}
	adopt, err := isOn("ADOPT", "have applications register themselves")
	if err != nil {
		return err
	}
	app := ""
	if adopt {
		if app, err = appFrom(driver, os.Getenv("APP")); err != nil {
			return err
		}
	}
	return run(ctx, newScreen(os.Stdout), options{driver: driver, keep: keep, app: app})
}

// isOn reads a variable that is 1 or left out.
func isOn(name, todo string) (bool, error) {
	switch value := os.Getenv(name); value {
	case "", "0":
		return false, nil
	case "1":
		return true, nil
	default:
		return false, fmt.Errorf("%s is %q: set it to 1 to %s, or leave it out", name, value, todo)
	}
}
