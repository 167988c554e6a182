// Pictures draws the pictures of the README, each for a light and a dark page: the life of a pod, who talks to whom, and a
// real make demo as a terminal shows it. It also has Chromium, which has to be installed, make screenshots of the status page and of the
// dashboard.
//
//	pictures life DIR
//	pictures parts DIR
//	make demo | pictures terminal DIR
//	pictures status DIR
//	pictures dashboard DIR PROMETHEUS PAGE
package main

//go:generate go run . life ../../docs/pictures
//go:generate go run . parts ../../docs/pictures

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
	name                                      string
	text, faint, line, box, serves, no, fails string
}

func themes() []theme {
	return []theme{
		{"light", "#1f2328", "#59636e", "#d1d9e0", "#f6f8fa", "#1a7f37", "#bf8700", "#cf222e"},
		{"dark", "#f0f6fc", "#9198a1", "#3d444d", "#151b23", "#3fb950", "#d29922", "#f85149"},
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
		return errors.New("usage: pictures life|parts|terminal|status DIR, or " + dashboardUsage)
	}
	var draw func(theme) string
	switch args[0] {
	case "life":
		draw = life
	case "parts":
		draw = parts
	case "terminal":
		lines, err := record(in)
		if err != nil {
			return err
		}
		draw = func(t theme) string { return terminal(t, lines) }
	case "status":
		return status(ctx, args[1])
	default:
		return fmt.Errorf("unknown picture %q: write life, parts, terminal or status", args[0])
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

// parts draws who talks to whom while a pod is updated.
func parts(t theme) string {
	const (
		wide, gap, high  = 168.0, 150.0, 60.0
		first, second    = 10.0, 160.0
		step, head       = wide + gap, 7.0
		right            = 3 * step
		last, size       = right + wide, second + high + 10
		above, below, at = first + 20, first + 42, second + high/2
	)
	c := &canvas{theme: t}
	box := func(x, y float64, name, does string) {
		c.rect(x+0.5, y+0.5, wide-1, high, t.box, t.line)
		c.label(x+wide/2, y+25, "name", name)
		c.label(x+wide/2, y+45, "does", does)
	}
	across := func(from, to, y float64, class string) {
		tip := head
		if to < from {
			tip = -head
		}
		fmt.Fprintf(c, `<path class="%s" d="M%g %gH%gm%g -4l%g 4l%g 4"/>`+"\n", class, from, y, to, -tip, tip, -tip)
	}
	down := func(x float64, class string) {
		fmt.Fprintf(c, `<path class="%s" d="M%g %gV%gm-4 %gl4 %gl4 %g"/>`+"\n", class, x, first+high+4, second-4, -head, head, -head)
	}
	box(0, first, "OpenKruise", "runs the rollout")
	box(step, first, "API server", "has pods and hooks")
	box(2*step, first, "Rollcall", "in your cluster")
	box(right, first, "Registry", "Consul, Nacos, …")
	box(0, second, "Pods", "of a CloneSet")
	box(right, second, "Clients", "inside and outside")
	for i, words := range [][2]string{
		{"1. waits at a hook", "6. may continue"}, {"2. sees that it waits", "5. releases the hook"}, {"3. takes the pod out", "4. acknowledges"},
	} {
		x := float64(i)*step + wide
		across(x+4, x+gap-4, above, "flow")
		across(x+gap-4, x+4, below, "flow")
		c.label(x+gap/2, above-8, "says", words[0])
		c.label(x+gap/2, below+18, "says", words[1])
	}
	down(wide/2, "flow")
	c.label(wide/2+12, (first+high+second)/2+4, "next", "7. updates the pod")
	down(right+wide/2, "calls")
	c.label(right+wide/2-12, (first+high+second)/2+4, "before", "which pods to call")
	across(right-4, wide+4, at, "calls")
	c.label(last/2, at-10, "served", "requests, only to pods in rotation")
	return c.picture(last, size, "Who talks to whom in an update: OpenKruise waits at a hook of the pod in the API server. "+
		"Rollcall takes the pod out of the registry, whose clients stop calling it, and releases the hook once the registry has acknowledged",
		fmt.Sprintf(".name,.does,.says,.served{text-anchor:middle}.name{font-weight:600}.does,.says,.next,.before{font-size:12px}.does{fill:%s}"+
			".before{text-anchor:end}.before,.served{fill:%s}path{fill:none;stroke-width:1.5}.flow{stroke:%s}.calls{stroke:%s}",
			t.faint, t.serves, t.no, t.serves))
}

// recording is what the picture keeps of the demo's output: how each way updates its first pod, and the result.
type recording struct {
	updates, result []string
	// title is that of a way whose update is still to come, and pod the first one of the update that is shown.
	title, pod string
	updating   bool
}

// isTitle reports the title of one way to keep the registry in step.
func isTitle(line string) bool {
	_, title, numbered := strings.Cut(line, ". ")
	return numbered && strings.HasPrefix(title, "WITH")
}

// add takes the next line of the demo's output.
func (r *recording) add(line string) {
	switch {
	case isTitle(line):
		r.title = line
	case strings.HasPrefix(line, "==> Result"):
		r.updating, r.result = false, []string{"", line}
	case strings.HasPrefix(line, "==> "):
		r.updating, r.pod = strings.HasPrefix(line, "==> Update") && r.title != "", ""
		if r.updating {
			r.updates, r.title = append(r.updates, "", r.title), ""
		}
	case r.updating:
		r.update(line)
	case r.result != nil && !strings.HasPrefix(r.result[len(r.result)-1], "demo:"):
		r.result = append(r.result, line)
	}
}

func (r *recording) update(line string) {
	fields := strings.Fields(line)
	if len(fields) < 2 {
		return
	}
	isPod := fields[0] != "time" && fields[0] != "done:"
	if isPod && r.pod == "" {
		r.pod = fields[1]
	}
	if !isPod || fields[1] == r.pod {
		r.updates = append(r.updates, line)
	}
}

func record(in io.Reader) ([]string, error) {
	r := &recording{}
	scanner := bufio.NewScanner(in)
	for scanner.Scan() {
		r.add(scanner.Text())
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("reading the demo's output: %w", err)
	}
	if r.updates == nil || r.result == nil {
		return nil, errors.New("this is not the output of make demo: pipe that into this command")
	}
	return slices.Concat(r.updates, r.result), nil
}

// shaded is a line in which colour shows whether clients are given the pod, and whether it can serve them then.
func shaded(line string) string {
	before, words, class := line, "", ""
	for _, end := range []struct{ words, class string }{
		{"out of rotation", "out"}, {"absent", "out"}, {"in rotation", "in"},
	} {
		if rest, found := strings.CutSuffix(line, "  "+end.words); found {
			before, words, class = rest+"  ", end.words, end.class
		}
	}
	if class == "in" && (strings.Contains(before, " not ready ") || strings.Contains(before, " stopped ")) {
		class = "fails"
	}
	if pod, failed, found := strings.Cut(line, "REQUEST FAILED"); found {
		before, words, class = pod, "REQUEST FAILED"+failed, "fails"
	}
	if class == "" {
		return html.EscapeString(line)
	}
	return fmt.Sprintf(`%s<tspan class="%s">%s</tspan>`, html.EscapeString(before), class, html.EscapeString(words))
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
	c.label(margin, 24, "hint", "$ make demo   # the first pod of each update; the lines of the others are left out")
	for i, line := range lines {
		class := "t"
		if strings.HasPrefix(line, "demo:") {
			class = "t last"
		} else if isTitle(line) {
			class = "t arm"
		}
		fmt.Fprintf(c, `<text x="%g" y="%g" class="%s" xml:space="preserve" style="animation-delay:%.2fs">%s</text>`+"\n",
			margin, top+lineHeight*float64(i), class, pace*float64(i), shaded(line))
	}
	return c.picture(w, h, "The update of one pod in make demo, in three ways, and the result", fmt.Sprintf(
		"text{font:12px ui-monospace,monospace;white-space:pre}.hint{fill:%s}.last{fill:%s;font-weight:600}"+
			".arm{font-weight:600}.in{fill:%s}.out{fill:%s;font-weight:600}.fails{fill:%s;font-weight:600}"+
			".t{animation:a .1s both}@keyframes a{from{opacity:0}}@media(prefers-reduced-motion){.t{animation:none}}",
		t.faint, t.serves, t.serves, t.no, t.fails))
}
