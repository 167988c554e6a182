package main

import (
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// chart is lines, or bars where it has groups: a group for each of the points of the series.
type chart struct {
	title, x, y string
	logX, logY  bool
	groups      []string
	series      []series
}

type series struct {
	name   string
	points []point
}

type point struct{ x, y float64 }

// theme is a palette: a colour for each contestant, told apart by people who see few colours too.
type theme struct {
	name, paper, ink, grid string
	colors                 map[string]string
}

func themes() []theme {
	return []theme{
		{"light", "#ffffff", "#1f2328", "#d1d9e0", map[string]string{
			theFloor: "#6e7781", theRecipe: "#bc4c00", theRollcall: "#0969da", thePossible: "#8250df",
		}},
		{"dark", "#0d1117", "#e6edf3", "#30363d", map[string]string{
			theFloor: "#8b949e", theRecipe: "#f0883e", theRollcall: "#58a6ff", thePossible: "#d2a8ff",
		}},
	}
}

// legends are the contestants' names for a stranger.
func legends() map[string]string {
	return map[string]string{
		theFloor: "floor: no registry", theRecipe: "recipe of OpenKruise", theRollcall: "Rollcall", thePossible: "possible: floor + 1 call",
	}
}

const (
	plotWidth, plotHeight                    = 720.0, 400.0
	plotLeft, plotRight, plotTop, plotBottom = 64.0, 24.0, 72.0, 56.0
)

// write writes the chart in each theme.
func (c chart) write(dir, name string) error {
	for _, t := range themes() {
		file := filepath.Join(dir, fmt.Sprintf("%s-%s.svg", name, t.name))
		if err := os.WriteFile(file, []byte(c.draw(t)), 0o644); err != nil {
			return fmt.Errorf("writing a plot: %w", err)
		}
	}
	return nil
}

// axis maps values to places.
type axis struct {
	low, high, from, to float64
	log                 bool
	ticks               []float64
}

func (a axis) at(v float64) float64 {
	low, high := a.low, a.high
	if a.log {
		v, low, high = math.Log(v), math.Log(low), math.Log(high)
	}
	return a.from + (v-low)/(high-low)*(a.to-a.from)
}

func (c chart) draw(t theme) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" `+
		`font-family="system-ui,sans-serif" font-size="13" fill="%s">`+"\n", plotWidth, plotHeight, t.ink)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="%s"/>`+"\n", t.paper)
	text := func(x, y float64, anchor, more, words string) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>`+"\n", x, y, anchor, more, html.EscapeString(words))
	}
	text(plotLeft, 26, "start", ` font-size="16" font-weight="600"`, c.title)
	text((plotLeft+plotWidth-plotRight)/2, plotHeight-14, "middle", "", c.x)
	text(16, (plotTop+plotHeight-plotBottom)/2, "middle",
		fmt.Sprintf(` transform="rotate(-90 16 %.1f)"`, (plotTop+plotHeight-plotBottom)/2), c.y)
	legend := plotLeft
	for _, s := range c.series {
		fmt.Fprintf(&b, `<rect x="%.1f" y="44" width="14" height="4" fill="%s"/>`+"\n", legend, t.colors[s.name])
		text(legend+20, 51, "start", "", legends()[s.name])
		legend += 44 + 7*float64(len(legends()[s.name]))
	}
	y := c.yAxis()
	for _, tick := range y.ticks {
		fmt.Fprintf(&b, `<path d="M%g %.1fH%g" stroke="%s"/>`+"\n", plotLeft, y.at(tick), plotWidth-plotRight, t.grid)
		text(plotLeft-8, y.at(tick)+4, "end", "", number(tick))
	}
	if c.groups != nil {
		c.bars(&b, t, y, text)
	} else {
		c.lines(&b, t, y, text)
	}
	return b.String() + "</svg>\n"
}

func (c chart) lines(b *strings.Builder, t theme, y axis, text func(x, y float64, anchor, more, words string)) {
	x := c.xAxis()
	const apart = 44 // two labels, at least
	last := 0.0
	for _, tick := range x.ticks {
		if at := x.at(tick); at >= last+apart {
			text(at, plotHeight-plotBottom+20, "middle", "", number(tick))
			last = at
		}
	}
	for _, s := range c.series {
		var path strings.Builder
		for j, p := range s.points {
			fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(j, 1)], x.at(p.x), y.at(p.y))
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"/>`+"\n", x.at(p.x), y.at(p.y), t.colors[s.name])
		}
		fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", path.String(), t.colors[s.name])
	}
}

func (c chart) bars(b *strings.Builder, t theme, y axis, text func(x, y float64, anchor, more, words string)) {
	group := (plotWidth - plotLeft - plotRight) / float64(len(c.groups))
	width := group / float64(len(c.series)+1)
	for g, name := range c.groups {
		left := plotLeft + float64(g)*group + width/2
		text(left+group/2-width/2, plotHeight-plotBottom+20, "middle", "", name)
		for i, s := range c.series {
			top, at := y.at(s.points[g].y), left+float64(i)*width
			fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n",
				at+2, top, width-4, y.at(0)-top, t.colors[s.name])
			text(at+width/2, top-5, "middle", "", number(s.points[g].y))
		}
	}
}

// values are those of all points, in their order.
func (c chart) values(of func(point) float64) []float64 {
	var all []float64
	for _, s := range c.series {
		for _, p := range s.points {
			all = append(all, of(p))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// xAxis has a tick at each point.
func (c chart) xAxis() axis {
	all := c.values(func(p point) float64 { return p.x })
	return axis{
		low: all[0], high: all[len(all)-1], from: plotLeft + 16, to: plotWidth - plotRight - 16, log: c.logX, ticks: all,
	}
}

// yAxis begins at 0 and has about five ticks; a logarithmic one has a tick at each power of ten.
func (c chart) yAxis() axis {
	all := c.values(func(p point) float64 { return p.y })
	a := axis{high: all[len(all)-1], from: plotHeight - plotBottom, to: plotTop, log: c.logY}
	if c.logY {
		a.low, a.high = math.Pow(10, math.Floor(math.Log10(all[0]))), math.Pow(10, math.Ceil(math.Log10(a.high)))
		for tick := a.low; tick <= a.high; tick *= 10 {
			a.ticks = append(a.ticks, tick)
		}
		return a
	}
	step := math.Pow(10, math.Floor(math.Log10(a.high/2)))
	for a.high/step > 5 {
		step *= 2
	}
	for tick := 0.0; tick < a.high+step; tick += step {
		a.ticks = append(a.ticks, tick)
	}
	a.high = a.ticks[len(a.ticks)-1]
	return a
}

func number(v float64) string {
	if v >= 100 || v == math.Trunc(v) {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2g", v)
}
