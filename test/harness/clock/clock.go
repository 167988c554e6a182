// Package clock sets the time of day of one process wrong, as it runs, and of no other. What measures durations, the monotonic clock, stays
// right, as it does on a machine whose clock is set.
//
// The process reads from a file how many seconds it is off: a program in Go that was built with [Overlay], and a program that asks the C
// library, such as a JVM, into which [Preload] was loaded. libfaketime has JVMs wait for too short a time, also if it leaves the monotonic
// clock alone.
package clock

import (
	"context"
	_ "embed" // the sources of what reads the file
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// variable has the path of the file, as overlay.txt and preload.c.txt know.
const variable = "ROLLCALL_TEST_CLOCK"

//go:embed overlay.txt
var overlay string

//go:embed preload.c.txt
var preload string

// Clock is that of one process.
type Clock struct{ path string }

// New makes a clock that is right, in a file.
func New(path string) (Clock, error) {
	c := Clock{path}
	return c, c.Set(0)
}

// Set has the process be ahead by so much from now on, or behind.
func (c Clock) Set(ahead time.Duration) error {
	// Not truncated: the process has the file in its memory.
	file, err := os.OpenFile(c.path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		defer file.Close()
		_, err = file.Write(binary.NativeEndian.AppendUint64(nil, uint64(ahead/time.Second)))
	}
	if err != nil {
		return fmt.Errorf("setting a clock: %w", err)
	}
	return nil
}

// Env is what a process needs that is built with [Overlay].
func (c Clock) Env() []string { return []string{variable + "=" + c.path} }

// Preload is what any other process needs in addition to Env. It takes a C compiler.
func (c Clock) Preload(ctx context.Context) ([]string, error) {
	library := c.path + ".so"
	build := exec.CommandContext(ctx, "cc", "-shared", "-fPIC", "-O2", "-o", library, "-x", "c", "-", "-ldl")
	build.Stdin = strings.NewReader(preload)
	if said, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building what sets a clock, which takes a C compiler: %w: %s", err, said)
	}
	return []string{"LD_PRELOAD=" + library}, nil
}

// IsReadBy returns nil if the process takes its time of day from this clock.
func (c Clock) IsReadBy(pid int) error {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err == nil && !strings.Contains(string(maps), c.path+"\n") {
		err = fmt.Errorf("process %d does not read %s", pid, c.path)
	}
	return err //nolint:wrapcheck // it has the path
}

// Go's standard library asks for the time of day in this line of [time.Now], and what is put behind it adds how far that is ahead.
const (
	asks = "\tsec, nsec, mono := runtimeNow()\n"
	adds = "\tsec += *secondsAhead\n"
)

// Edition changes with what [Overlay] makes of the same standard library.
func Edition() string { return asks + adds + overlay }

// Overlay writes a file for `go build -overlay`, and what it refers to, into a folder: with that, a program takes its time of day from a
// clock. goroot is that of the build.
func Overlay(goroot, dir string) (file string, err error) {
	std := filepath.Join(goroot, "src", "time")
	source, err := os.ReadFile(filepath.Join(std, "time.go"))
	if err != nil {
		return "", fmt.Errorf("reading the standard library: %w", err)
	}
	if n := strings.Count(string(source), asks); n != 1 {
		return "", fmt.Errorf("%s/time.go has %q %d times, want once: this version of Go asks for the time of day in another way", std, asks, n)
	}
	files := map[string][]byte{
		"time.go": []byte(strings.Replace(string(source), asks, asks+adds, 1)), "zrollcall.go": []byte(overlay),
	}
	replace := map[string]string{}
	for name := range files {
		replace[filepath.Join(std, name)] = filepath.Join(dir, name)
	}
	const list = "overlay.json"
	if files[list], err = json.Marshal(map[string]any{"Replace": replace}); err != nil {
		return "", fmt.Errorf("encoding an overlay: %w", err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return "", fmt.Errorf("writing an overlay: %w", err)
		}
	}
	return filepath.Join(dir, list), nil
}
