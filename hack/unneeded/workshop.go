package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// workshop has the test binaries, and what their tests reach.
type workshop struct {
	out             io.Writer
	folder, overlay string
	timeout         time.Duration
	conditions      []condition
	binaries        []binary
	tests           []test
}

type binary struct{ dir, path string }

type test struct {
	of    binary
	name  string
	took  time.Duration
	heard map[broken]bool // conditions with the answers that they had
}

// broken is a condition with an answer.
type broken struct {
	id int
	to bool
}

func (b broken) env() string { return fmt.Sprintf("UNNEEDED_BREAK=%d %t", b.id, b.to) }

func (w *workshop) build(ctx context.Context, dir string) error {
	of := binary{dir, filepath.Join(w.folder, fmt.Sprintf("%d.test", len(w.binaries)))}
	args := []string{"test", "-c", "-vet=off", "-overlay", w.overlay, "-o", of.path, dir}
	said, err := exec.CommandContext(ctx, "go", args...).CombinedOutput() //nolint:gosec // a package that a developer gave
	if err != nil {
		return fmt.Errorf("building the tests of %s: %w\n%s", dir, err, said)
	}
	switch _, err := os.Stat(of.path); {
	case err == nil:
		w.binaries = append(w.binaries, of)
	case !errors.Is(err, fs.ErrNotExist): // a package without tests is no error to the go command
		return fmt.Errorf("looking for the tests of %s: %w", dir, err)
	}
	return nil
}

// learn runs each test alone.
func (w *workshop) learn(ctx context.Context) error {
	for _, of := range w.binaries {
		listed, err := w.command(ctx, of, "-test.list=^Test|^Example|^Fuzz").Output()
		if err != nil {
			return fmt.Errorf("listing the tests of %s: %w", of.dir, err)
		}
		for name := range strings.FieldsSeq(string(listed)) {
			switch one, said, err := w.hear(ctx, of, name); {
			case err != nil:
				return err
			case said != "":
				fmt.Fprintf(w.out, "left out, since listening makes it fail: %s of %s\n", name, of.dir)
			default:
				w.tests = append(w.tests, one)
			}
		}
	}
	slices.SortStableFunc(w.tests, func(a, b test) int { return int(a.took - b.took) })
	fmt.Fprintf(w.out, "%d tests reach them\n", len(w.tests))
	return nil
}

// hear returns which conditions the test reaches, or what it says if it fails, such as one that counts allocations.
func (w *workshop) hear(ctx context.Context, of binary, name string) (one test, failed string, err error) {
	one = test{of: of, name: name, heard: map[broken]bool{}}
	reach := filepath.Join(w.folder, "reach")
	if err := write(reach, nil); err != nil {
		return one, "", err
	}
	begun := time.Now()
	c := w.command(ctx, of, "-test.run=^"+name+"$")
	c.Env = append(c.Env, "UNNEEDED_REACH="+reach)
	if said, err := c.CombinedOutput(); err != nil {
		return one, fmt.Sprintf("%v\n%s", err, said), nil
	}
	one.took = time.Since(begun)
	text, err := os.ReadFile(reach)
	if err != nil {
		return one, "", fmt.Errorf("reading what was reached: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		var b broken
		if _, err := fmt.Sscanf(line, "%d %t", &b.id, &b.to); err == nil {
			one.heard[b] = true
		}
	}
	return one, "", nil
}

func (w *workshop) command(ctx context.Context, of binary, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, of.path, append(args, "-test.timeout="+w.timeout.String())...) //nolint:gosec // a binary that was built here
	c.Dir = of.dir
	c.Env = append(os.Environ(), "ROLLCALL_MODEL_RECORD=off") // a recorded walk differs whether or not anybody minds
	return c
}

// breakAll breaks each condition both ways, and prints what no test notices, or none of the package's own.
func (w *workshop) breakAll(ctx context.Context) error {
	var own, others, nobody, alone int
	for id, c := range w.conditions {
		for _, to := range []bool{true, false} {
			if c.loops && to {
				continue
			}
			by, asked, err := w.notices(ctx, broken{id, to})
			switch {
			case err != nil:
				return err
			case by.name == "" && asked == 0:
				alone++
				fmt.Fprintf(w.out, "%s\n\tis always %t in tests\n", c, to)
			case by.name == "":
				nobody++
				fmt.Fprintf(w.out, "%s\n\tcan always be %t: none of the %d tests that see it otherwise notices\n", c, to, asked)
			case by.of.dir == c.dir:
				own++
			default:
				others++
				fmt.Fprintf(w.out, "%s\n\tif always %t, is noticed by %s of %s\n", c, to, by.name, by.of.dir)
			}
		}
	}
	fmt.Fprintf(w.out, "broken: %d. Noticed by tests beside them: %d, by others: %d. Not noticed: %d. Never otherwise in tests: %d.\n",
		own+others+nobody+alone, own, others, nobody, alone)
	return nil
}

// notices returns the binary whose tests notice, those of the condition's own package first, and how many tests were asked.
func (w *workshop) notices(ctx context.Context, b broken) (by test, asked int, err error) {
	own := w.conditions[b.id].dir
	order := slices.Clone(w.binaries)
	slices.SortStableFunc(order, func(x, y binary) int {
		return map[bool]int{true: 0, false: 1}[x.dir == own] - map[bool]int{true: 0, false: 1}[y.dir == own]
	})
	for _, of := range order {
		quick, slow := w.thatHear(of, broken{b.id, !b.to})
		for _, some := range [][]string{quick, slow} {
			if len(some) == 0 {
				continue
			}
			asked += len(some)
			name, err := w.fails(ctx, of, b, some)
			if err != nil {
				return test{}, asked, err
			}
			if name != "" {
				return test{of: of, name: name}, asked, nil
			}
		}
	}
	return test{}, asked, nil
}

// slowTest runs only after all others were asked.
const slowTest = 5 * time.Second

func (w *workshop) thatHear(of binary, b broken) (quick, slow []string) {
	for _, t := range w.tests {
		switch {
		case t.of != of || !t.heard[b]:
		case t.took > slowTest:
			slow = append(slow, t.name)
		default:
			quick = append(quick, t.name)
		}
	}
	return quick, slow
}

var failedTest = regexp.MustCompile(`--- FAIL: ([^ /]+)`)

// fails returns the test that fails first, or "" if none does.
func (w *workshop) fails(ctx context.Context, of binary, b broken, tests []string) (string, error) {
	c := w.command(ctx, of, "-test.failfast", "-test.run=^("+strings.Join(tests, "|")+")$")
	c.Env = append(c.Env, b.env())
	var said bytes.Buffer
	c.Stdout, c.Stderr = &said, &said
	err := c.Run()
	if ctx.Err() != nil {
		return "", fmt.Errorf("breaking conditions: %w", ctx.Err())
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return "", fmt.Errorf("running the tests of %s: %w", of.dir, err)
	}
	return firstFailed(said.Bytes(), err != nil), nil
}

func firstFailed(said []byte, failed bool) string {
	if found := failedTest.FindSubmatch(said); found != nil {
		return string(found[1])
	}
	if failed { // it panics, or runs into its limit
		return "a test that does not end"
	}
	return ""
}
