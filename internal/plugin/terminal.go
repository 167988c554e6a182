package plugin

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"golang.org/x/term"
	eastasian "golang.org/x/text/width"
)

// tone is how a line looks in a terminal with colours.
type tone string

const (
	plain   tone = ""
	heading tone = "\x1b[1m"
	good    tone = "\x1b[32m"
	waits   tone = "\x1b[33m"
	bad     tone = "\x1b[31m"
)

// terminal is what a command prints on. The zero terminal is a pipe or a file: no colours, and lines as long as they are.
type terminal struct {
	width, height int
	colours       bool
}

func terminalOf(out io.Writer) terminal {
	file, is := out.(*os.File)
	if !is || !term.IsTerminal(int(file.Fd())) {
		return terminal{}
	}
	width, height, err := term.GetSize(int(file.Fd()))
	if err != nil || width == 0 || height == 0 {
		width, height = 80, 24
	}
	return terminal{width: width, height: height, colours: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// line returns the text as one line that the terminal does not break.
func (t terminal) line(text string, c tone) string {
	if t.width > 0 && columns(text) > t.width {
		text = text[:fitting(text, t.width-1)] + "…"
	}
	return t.paint(text, c) + "\n"
}

// columnsOf is how many columns of a terminal a character takes: two if it is a Chinese one, none if it is put over the one before.
func columnsOf(r rune) int {
	switch kind := eastasian.LookupRune(r).Kind(); {
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case kind == eastasian.EastAsianWide || kind == eastasian.EastAsianFullwidth:
		return 2
	default:
		return 1
	}
}

// columns is how many columns a text takes.
func columns(text string) (n int) {
	for _, r := range text {
		n += columnsOf(r)
	}
	return n
}

// fitting is how many bytes of a text fit into so many columns.
func fitting(text string, within int) int {
	for i, r := range text {
		if within -= columnsOf(r); within < 0 {
			return i
		}
	}
	return len(text)
}

func (t terminal) paint(text string, c tone) string {
	if !t.colours || c == plain {
		return text
	}
	return string(c) + text + "\x1b[0m"
}

// colour is what paint puts around a text.
var colour = regexp.MustCompile("\x1b\\[[0-9]*m")

// rows is how many the lines of a text take, of which the terminal breaks those that are longer than it is wide.
func (t terminal) rows(text []byte) (rows int) {
	for line := range strings.Lines(string(colour.ReplaceAll(text, nil))) {
		rest := strings.TrimSuffix(line, "\n")
		for rows++; t.width > 1 && columns(rest) > t.width; rows++ {
			rest = rest[fitting(rest, t.width):]
		}
	}
	return rows
}

// wrap breaks a sentence between words. What is indented is there to be copied, and stays whole.
func (t terminal) wrap(text string) string {
	if t.width == 0 || strings.HasPrefix(text, " ") {
		return text
	}
	var lines []string
	for word := range strings.FieldsSeq(text) {
		last := len(lines) - 1
		if last >= 0 && columns(lines[last]+" "+word) <= t.width {
			lines[last] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return strings.Join(lines, "\n")
}

// printable takes out what would steer the terminal: registries and those who write pods choose some of the text.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}

// table is printed with columns as wide as their widest text.
type table struct {
	head []string
	rows []row
	// spare are the columns that a narrow terminal does without, the first of them first.
	spare []string
}

type row struct {
	tone  tone
	cells []string
}

func (t table) write(out io.Writer, on terminal) {
	rows := append([]row{{tone: heading, cells: t.head}}, t.rows...)
	lines := t.lines(rows, nil)
	tooLong := func(line string) bool { return on.width > 0 && columns(line) > on.width }
	for n := 1; n <= len(t.spare) && slices.ContainsFunc(lines, tooLong); n++ {
		lines = t.lines(rows, t.spare[:n])
	}
	for i, row := range rows {
		fmt.Fprint(out, on.line(lines[i], row.tone))
	}
}

func (t table) lines(rows []row, without []string) []string {
	lines := make([]strings.Builder, len(rows))
	for i, head := range t.head {
		if slices.Contains(without, head) {
			continue
		}
		widest := 0
		for _, row := range rows {
			widest = max(widest, columns(printable(row.cells[i])))
		}
		for at, row := range rows {
			cell := printable(row.cells[i])
			fmt.Fprint(&lines[at], cell, strings.Repeat(" ", widest-columns(cell)+3))
		}
	}
	texts := make([]string, len(rows))
	for i := range lines {
		texts[i] = strings.TrimRight(lines[i].String(), " ")
	}
	return texts
}

// passing are the times in a text, which change each second, and the gaps that their lengths leave in a table. A part of a name, such as
// web-24h5m, is none.
var passing = regexp.MustCompile(`(?m)(^|[ (]) *((\d+(\.\d+)?(ms|[hms]))+|\d+[dhms])\b| {2,}`)

// still is a text without its times. In a pipe, the same text is not written again only because time passes.
func still(text []byte) []byte { return passing.ReplaceAll(text, []byte(" ")) }

// screen shows the latest of several texts: in the place of the one before on a terminal, below it elsewhere, if more than times changed.
type screen struct {
	out  io.Writer
	on   terminal
	last []byte
}

func (s *screen) draw(text []byte) {
	if lines := slices.Collect(bytes.Lines(text)); s.on.height > 0 && s.on.rows(text) >= s.on.height {
		kept := 0
		for rows := s.on.rows(lines[0]); rows <= s.on.height-2; rows += s.on.rows(lines[kept]) { // one for what is left, and one for the cursor
			kept++
		}
		text = fmt.Appendf(bytes.Join(lines[:kept], nil), "and %d more\n", len(lines)-kept)
	}
	if bytes.Equal(text, s.last) || s.on.height == 0 && bytes.Equal(still(text), still(s.last)) {
		return
	}
	if s.on.height > 0 && s.last != nil {
		// Up to where the last text began, and clear from there to the end of the screen.
		fmt.Fprintf(s.out, "\x1b[%dA\x1b[J", s.on.rows(s.last))
	}
	_, _ = s.out.Write(text)
	s.last = text
}

// refresh is how often a watch looks again.
const refresh = time.Second

// show draws a view once. A watch looks again until the view is done, and has the notes in the view. If it can't look
// for a moment, it shows the last view and explains why. It stops at the deadline of the context, with its error.
func (o *options) show(ctx context.Context, watch bool, view func(out, notes io.Writer, on terminal) (done bool, err error)) error {
	if !watch {
		_, err := view(o.Out, o.ErrOut, terminalOf(o.Out))
		return err
	}
	s := screen{out: o.Out}
	var last []byte
	for {
		var text bytes.Buffer
		s.on = terminalOf(o.Out) // a person may change its size
		done, err := view(&text, &text, s.on)
		switch {
		case err != nil && ctx.Err() != nil:
			return ctx.Err()
		case err != nil && (last == nil || errors.As(err, new(*exitError))):
			return err
		case err != nil:
			s.draw(fmt.Appendf(nil, "Retrying: %s. Last view:\n%s", printable(err.Error()), last))
		default:
			last = text.Bytes()
			s.draw(last)
		}
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(refresh):
		}
	}
}

func dash(s string) string { return cmp.Or(s, "-") }
