// Pictures draws the pictures of the README, each for a light and a dark page: the life of a pod, and a real
// make demo as a terminal shows it. It also has Chromium, which has to be installed, make screenshots of the status page and of the
// dashboard.
//
//	pictures life DIR
//	make demo | pictures terminal DIR
//	pictures status DIR
//	pictures dashboard DIR PROMETHEUS PAGE
package main

//go:generate go run . life ../../docs/pictures

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// theme is the colours of a page.
type theme struct {
	name                               string
	text, faint, line, box, serves, no string
}

func themes() []theme {
	return []theme{
		{"light", "#1f2328", "#59636e", "#d1d9e0", "#f6f8fa", "#1a7f37", "#bf8700"},
		{"dark", "#f0f6fc", "#9198a1", "#3d444d", "#151b23", "#3fb950", "#d29922"},
	}
}

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader) error {
	if len(args) > 0 && args[0] == "dashboard" {
		return dashboard(ctx, args[1:])
	}
	if len(args) != 2 {
		return errors.New("usage: pictures life|terminal|status DIR, or " + dashboardUsage)
	}
	var draw func(theme) string
	switch args[0] {
	case "life":
		draw = life
	case "terminal":
		lines, err := partsOf(in)
		if err != nil {
			return err
		}
		draw = func(t theme) string { return terminal(t, lines) }
	case "status":
		return status(ctx, args[1])
	default:
		return fmt.Errorf("unknown picture %q: write life, terminal or status", args[0])
	}
	for _, t := range themes() {
		path := filepath.Join(args[1], fmt.Sprintf("%s-%s.svg", args[0], t.name))
		if err := os.WriteFile(path, []byte(draw(t)), 0o644); err != nil { //nolint:gosec // a page's reader reads it
			return fmt.Errorf("writing the picture: %w", err)
		}
	}
	return nil
}

// canvas collects the elements of a picture.
type canvas struct {
	strings.Builder

	theme theme
}

func (c *canvas) rect(x, y, width, height float64, fill, stroke string) {
	fmt.Fprintf(c, `<rect x="%g" y="%g" width="%g" height="%g" rx="6" fill="%s" stroke="%s"/>`+"\n",
		x, y, width, height, fill, stroke)
}

// label writes lines of text around the middle of x, from y down.
func (c *canvas) label(x, y float64, class, text string) {
	const lineHeight = 16
	for i, line := range strings.Split(text, "\n") {
		fmt.Fprintf(c, `<text x="%g" y="%g" class="%s">%s</text>`+"\n", x, y+float64(i)*lineHeight, class, html.EscapeString(line))
	}
}

// picture wraps the elements.
func (c *canvas) picture(width, height float64, title, style string) string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" role="img">
<title>%s</title>
<style>text{font:13px system-ui,sans-serif;fill:%s}%s</style>
%s</svg>
`, width, height, title, c.theme.text, style, c.String())
}

// stage is a state of a pod, as OpenKruise has it.
type stage struct {
	// why the pod is there, at the first state of several.
	why   string
	state string
	// hook is what OpenKruise waits for in the state.
	hook string
	// rollcall is what Rollcall does in it.
	rollcall string
	// clients says whether they are given the pod.
	clients bool
}

func stages() []stage {
	return []stage{
		{"a new pod", "PreparingNormal", "preNormal", "register,\nthen release", false},
		{"", "Normal", "", "", true},
		{"an update in place", "PreparingUpdate", "inPlaceUpdate", "take out, drain,\nthen release", false},
		{"", "Updating", "", "the container restarts", false},
		{"", "Updated", "inPlaceUpdate", "register,\nthen release", false},
		{"", "Normal", "", "", true},
		{"scale in, recreate", "PreparingDelete", "preDelete", "deregister, drain,\nthen release", false},
	}
}

// life draws the states of a pod from left to right, what Rollcall does in each, and when clients send it requests.
func life(t theme) string {
	const (
		left, wide, gap     = 100.0, 134.0, 8.0
		states, acts, band  = 34.0, 110.0, 168.0
		boxHeight, bandHigh = 56.0, 22.0
	)
	c := &canvas{theme: t}
	c.label(0, states+33, "row", "OpenKruise")
	c.label(0, acts+20, "row", "Rollcall")
	c.label(0, band+16, "row", "clients")
	all := stages()
	for i, s := range all {
		x := left + float64(i)*(wide+gap)
		middle := x + wide/2
		c.label(x, states-12, "why", s.why)
		stroke := t.line
		if s.hook != "" {
			stroke = t.no
		}
		c.rect(x, states, wide, boxHeight, t.box, stroke)
		c.label(middle, states+24, "state", s.state)
		if s.hook != "" {
			c.label(middle, states+43, "hook", "waits: "+s.hook)
			c.label(middle, acts+12, "act", s.rollcall)
		} else {
			c.label(middle, acts+12, "hook", s.rollcall)
		}
		if s.clients {
			c.rect(x-wide/2, band, 2*wide, bandHigh, t.serves, "none") // from the registration to the taking out
			c.label(middle, band+16, "served", "in rotation")
		}
	}
	return c.picture(left+float64(len(all))*(wide+gap), band+bandHigh+8, "The life of a pod: OpenKruise waits at each hook, "+
		"Rollcall tells the registry and then lets OpenKruise continue, and clients are given the pod only while it can serve",
		fmt.Sprintf(".row{font-weight:600}.state,.act,.hook,.served{text-anchor:middle}.state{font-weight:600}"+
			".hook,.row,.why{fill:%s}.hook{font-size:12px}.served{fill:%s;font-weight:600}", t.faint, t.box))
}

// partsOf returns the demo's first update, which is Rollcall's, and its result.
func partsOf(in io.Reader) ([]string, error) {
	var update, result, rest []string
	part := &rest
	scanner := bufio.NewScanner(in)
	for scanner.Scan() {
		line := scanner.Text()
		switch {
		case strings.HasPrefix(line, "==> Update") && update == nil:
			part = &update
		case strings.HasPrefix(line, "==> Result"):
			part = &result
		case line == "" || strings.HasPrefix(line, "==> "):
			part = &rest
		}
		*part = append(*part, line)
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("reading the demo's output: %w", err)
	}
	if update == nil || result == nil {
		return nil, errors.New("this is not the output of make demo: pipe that into this command")
	}
	return slices.Concat(update, []string{""}, result), nil
}

// terminal draws the lines, one appearing after the other.
func terminal(t theme, lines []string) string {
	const (
		margin, top, lineHeight = 16.0, 44.0, 18.0
		charWidth               = 7.25
		pace                    = 0.12 // seconds from line to line
	)
	c := &canvas{theme: t}
	width := 0
	for _, line := range lines {
		width = max(width, len([]rune(line)))
	}
	w, h := 2*margin+charWidth*float64(width), top+lineHeight*float64(len(lines)+1)
	c.rect(0.5, 0.5, w-1, h-1, t.box, t.line)
	c.label(margin, 24, "hint", "$ make demo")
	for i, line := range lines {
		class := "t"
		if strings.HasPrefix(line, "demo:") {
			class = "t last"
		}
		fmt.Fprintf(c, `<text x="%g" y="%g" class="%s" xml:space="preserve" style="animation-delay:%.2fs">%s</text>`+"\n",
			margin, top+lineHeight*float64(i), class, pace*float64(i), html.EscapeString(line))
	}
	return c.picture(w, h, "An update in make demo, and its result", fmt.Sprintf(
		"text{font:12px ui-monospace,monospace;white-space:pre}.hint{fill:%s}.last{fill:%s;font-weight:600}"+
			".t{animation:a .1s both}@keyframes a{from{opacity:0}}@media(prefers-reduced-motion){.t{animation:none}}", t.faint, t.serves))
}
