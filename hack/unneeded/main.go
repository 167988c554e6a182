// Unneeded breaks each condition of some packages, one at a time, and shows which no test notices, and which only the tests of another
// package do: it is untested, not needed, or far from its test.
//
//	go run ./hack/unneeded -tests ./internal/controller ./internal/plan ./internal/visit
//
// A condition is what an if, a for, a case, or an operand of && and || asks. It is made true where it was false, and false where it was
// true. All of it is compiled once, with an overlay, and each run of a test binary breaks one. First each test runs alone, to learn which
// conditions it reaches with which answer. Nothing is written beside the files of the cache folder.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"
)

func main() {
	tests := flag.String("tests", "", "packages whose tests run too, separated by commas; each package's own always do")
	timeout := flag.Duration("timeout", time.Minute, "how long a test can take with a broken condition; longer counts as noticed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, flag.Args(), splitList(*tests), *timeout); err != nil {
		fmt.Fprintln(os.Stderr, "unneeded: "+err.Error())
		stop()
		os.Exit(1) //nolint:gocritic // stop was called
	}
}

func splitList(text string) []string {
	return slices.DeleteFunc(strings.Split(text, ","), func(one string) bool { return one == "" })
}

func run(ctx context.Context, out io.Writer, rooms, more []string, timeout time.Duration) error {
	if len(rooms) == 0 {
		return fmt.Errorf("give the packages whose conditions to break, such as ./internal/plan")
	}
	folder, err := os.MkdirTemp("", "unneeded-")
	if err != nil {
		return fmt.Errorf("making a folder for the binaries: %w", err)
	}
	defer os.RemoveAll(folder)
	overlay, all, err := instrument(folder, rooms)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d conditions in %s\n", len(all), strings.Join(rooms, " "))
	w := &workshop{out: out, folder: folder, overlay: overlay, timeout: timeout, conditions: all}
	dirs := append(slices.Clone(rooms), more...)
	for i, dir := range dirs {
		if slices.Contains(dirs[:i], dir) {
			continue
		}
		if err := w.build(ctx, dir); err != nil {
			return err
		}
	}
	if err := w.learn(ctx); err != nil {
		return err
	}
	return w.breakAll(ctx)
}
