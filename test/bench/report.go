package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

func (o observation) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%-9s %-13s", o.Who, o.Case)
	for _, name := range slices.Sorted(maps.Keys(o.Values)) {
		fmt.Fprintf(&text, "  %s %s", name, short(o.Values[name]))
	}
	return text.String()
}

func short(v float64) string {
	if math.Abs(v) >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// results are what the JSON file has.
type results struct {
	Began        time.Time     `json:"began"`
	Seconds      float64       `json:"seconds"`
	Sizes        string        `json:"sizes"`
	Cores        int           `json:"cores"`
	Go           string        `json:"go"`
	Exponent     float64       `json:"growthExponent,omitempty"`
	Rows         [][]string    `json:"rows"`
	Observations []observation `json:"observations"`
}

// report prints the table, and writes the files.
func (b *bench) report(began time.Time) error {
	all := observations(b.found)
	exponent := all.exponent(theRollcall)
	rows := all.table(b.sizes, exponent)
	for _, table := range [][][]string{rows, all.cut(b.sizes)} {
		if len(table) > 1 {
			fmt.Println("\n" + markdown(table))
		}
	}
	encoded, err := json.MarshalIndent(results{
		Began: began, Seconds: time.Since(began).Seconds(), Sizes: b.name, Cores: runtime.NumCPU(), Go: runtime.Version(),
		Exponent: exponent, Rows: rows, Observations: all,
	}, "", " ")
	if err != nil {
		return fmt.Errorf("encoding the results: %w", err)
	}
	if err := os.WriteFile(filepath.Join(b.out, "results.json"), append(encoded, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	if err := all.plot(b.sizes, exponent, b.out); err != nil {
		return err
	}
	b.say("everything is in %s", b.out)
	return nil
}

type observations []observation

// of are the values of one contestant in one case, by round.
func (all observations) of(name, who, value string) []float64 {
	var values []float64
	for _, o := range all {
		if v, found := o.Values[value]; found && o.Case == name && o.Who == who {
			values = append(values, v)
		}
	}
	return values
}

// each divides the values of one by those of the other.
func each(one, other []float64) []float64 {
	ratios := make([]float64, 0, len(one))
	for i := range min(len(one), len(other)) {
		ratios = append(ratios, one[i]/other[i])
	}
	return ratios
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// spread is the median, with the least and the most where there are several.
func spread(values []float64) string {
	switch len(values) {
	case 0:
		return "–"
	case 1:
		return short(values[0])
	default:
		return fmt.Sprintf("%s (%s–%s)", short(median(values)), short(slices.Min(values)), short(slices.Max(values)))
	}
}

// possible are the transitions a second of the floor, if all pods waited for one call of the registry first.
func (all observations) possible(s storm) (rates []float64) {
	for _, floor := range all.of(s.String(), theFloor, rate) {
		rates = append(rates, 1/(1/floor+s.delay.Seconds()/float64(s.pods)))
	}
	return rates
}

// rivals are whom Rollcall is measured beside.
func (all observations) rivals() []string {
	rivals := []string{theFloor, theRecipe}
	if slices.ContainsFunc(all, func(o observation) bool { return o.Who == theBefore }) {
		rivals = append(rivals, theBefore)
	}
	return rivals
}

// table has a row for each figure: what it is, each contestant's, Rollcall against what is possible, and the goal.
func (all observations) table(s sizes, exponent float64) [][]string {
	rivals := all.rivals()
	rows := [][]string{append(append([]string{""}, rivals...), "Rollcall", "Rollcall/possible", "goal")}
	add := func(title, name, value string, possible []float64, goal string) {
		if len(all.of(name, theRollcall, value)) == 0 {
			return // its part was not asked for
		}
		row := []string{title}
		for _, who := range rivals {
			row = append(row, spread(all.of(name, who, value)))
		}
		row = append(row, spread(all.of(name, theRollcall, value)))
		rows = append(rows, append(row, spread(each(all.of(name, theRollcall, value), possible)), goal))
	}
	alone := func(title, value, goal string) {
		row := append([]string{title}, slices.Repeat([]string{"–"}, len(rivals))...)
		rows = append(rows, append(row, value, "–", goal))
	}
	usual := stormCase(usualDelay)
	for _, storm := range s.storms {
		of := ""
		if storm.oneService {
			of = " of one service"
		}
		add(fmt.Sprintf("%d at once%s, registry %s, transitions/s", storm.pods, of, storm.delay), storm.String(), rate,
			all.possible(storm), "≥ 0.95")
	}
	add("40 a second, registry 5 ms, p50 ms", pacedCase, p50, nil, "≤ floor + 6")
	add("40 a second, registry 5 ms, p99 ms", pacedCase, p99, nil, "")
	add("own CPU, ms a transition", usual, cpu, all.of(usual, theFloor, cpu), "≤ 0.6 ms")
	add("API server's CPU, ms a transition", usual, apiCPU, all.of(usual, theFloor, apiCPU), "≤ 1.08")
	add("etcd's CPU, ms a transition", usual, etcdCPU, all.of(usual, theFloor, etcdCPU), "")
	add("API writes a transition", usual, writes, nil, "1")
	add(fmt.Sprintf("%d foreign pods come and go, CPU s", s.foreign), foreignCase, totalCPU, nil, "≤ 0.4 at 10,000")
	add(fmt.Sprintf("resident with %d foreign pods, MB", s.foreign), foreignCase, resident, nil, "≤ 40")
	for _, pods := range append([]int{0}, s.growth...) {
		goal := map[int]string{10_000: "≤ 90"}[pods]
		add(fmt.Sprintf("resident, %d managed pods, MB", pods), sized(idleCase, pods), resident, nil, goal)
	}
	for _, pods := range s.growth {
		name := sized(growthCase, pods)
		floor := slices.Repeat(all.of(name, theFloor, rate), len(all.of(name, theRollcall, rate)))
		add(fmt.Sprintf("%d at once, transitions/s", pods), name, rate, floor, "")
	}
	if exponent != 0 {
		alone("time for n at once grows with n to the", short(exponent), "1")
	}
	restart, restarted := fmt.Sprintf("restart with %d: ", s.restart), sized(restartCase, s.restart)
	add(restart+"ready after s", restarted, seconds, nil, "1")
	add(restart+"writes", restarted, allWrites, nil, "0")
	add(restart+"changing calls", restarted, calls, nil, "0")
	add(restart+"lists", restarted, lists, nil, "≤ 2")
	add(restart+"resident, MB", restarted, resident, nil, "")
	for _, row := range all.ofRollcall(s) {
		alone(row[0], row[1], row[2])
	}
	return rows
}

// ofRollcall has a title, a figure and a goal for each case in which nothing else is measured.
func (all observations) ofRollcall(s sizes) (rows [][3]string) {
	for _, row := range []struct {
		title, name, value, goal string
		each                     float64
	}{
		{"with batches: changing calls for 1,000 at once", batchCase, calls, "≤ 40", 500 / float64(s.batch)},
		{"with batches: 40 a second, p50 ms", pacedCase, p50, "as without", 1},
	} {
		if values := all.of(row.name, theBatching, row.value); len(values) > 0 {
			rows = append(rows, [3]string{row.title, short(values[0] * row.each), row.goal})
		}
	}
	for _, row := range [][2]string{{"transitions/s", rate}, {"CPU of both, ms a transition", cpu}, {"resident, both, MB", resident}} {
		one, two := all.of(sized(managerCase, 1), theRollcall, row[1]), all.of(sized(managerCase, 2), theRollcall, row[1])
		if ratios := each(two, one); len(ratios) > 0 {
			text := fmt.Sprintf("%s to %s: %s", short(median(two)), short(median(one)), spread(ratios))
			rows = append(rows, [3]string{"two managers to one: " + row[0], text})
		}
	}
	return rows
}

func markdown(rows [][]string) string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	var b strings.Builder
	for i, row := range rows {
		for j, cell := range row {
			b.WriteString("| " + cell + strings.Repeat(" ", widths[j]-len([]rune(cell))+1))
		}
		b.WriteString("|\n")
		if i == 0 {
			for _, width := range widths {
				b.WriteString("|" + strings.Repeat("-", width+2))
			}
			b.WriteString("|\n")
		}
	}
	return b.String()
}

// exponent is that of the time for one contestant's storms by their pods: 1 is linear, 0 not measured.
func (all observations) exponent(who string) float64 {
	var x, y []float64
	for _, p := range all.grown(growthCase, who, seconds) {
		x, y = append(x, math.Log(p.x)), append(y, math.Log(p.y))
	}
	if len(x) < 2 {
		return 0
	}
	return slope(x, y)
}

// slope is that of the straight line with the least squares.
func slope(x, y []float64) float64 {
	var sumX, sumY, sumXX, sumXY float64
	for i := range x {
		sumX, sumY, sumXX, sumXY = sumX+x[i], sumY+y[i], sumXX+x[i]*x[i], sumXY+x[i]*y[i]
	}
	n := float64(len(x))
	return (n*sumXY - sumX*sumY) / (n*sumXX - sumX*sumX)
}

// grown are one contestant's points of a case whose name ends with the number of pods.
func (all observations) grown(name, who, value string) []point {
	var points []point
	for _, o := range all {
		var pods float64
		if v, found := o.Values[value]; found && o.Who == who {
			if n, err := fmt.Sscanf(o.Case, name+" %g", &pods); n == 1 && err == nil {
				points = append(points, point{pods, v})
			}
		}
	}
	return points
}

// byDelay is a line through the medians of rates, by the registry's delay, or none if nothing was measured.
func byDelay(name string, storms []storm, rates func(storm) []float64) []series {
	var points []point
	for _, s := range storms {
		if found := rates(s); len(found) > 0 {
			points = append(points, point{milliseconds(s.delay), median(found)})
		}
	}
	if len(points) == 0 {
		return nil
	}
	return []series{{name, points}}
}

func (all observations) plot(s sizes, exponent float64, dir string) error {
	three := []string{theFloor, theRecipe, theRollcall}
	throughput := chart{
		title: "Hooks released or set per second, by how slow the registry is", x: "response time of the registry, ms", y: "hooks per second",
		logX: true,
	}
	shares := chart{title: "CPU time to release or set one hook, in ms", groups: []string{"the controller's", "the API server's", "etcd's"}}
	storms := slices.SortedFunc(slices.Values(s.storms), func(a, b storm) int { return int(a.delay - b.delay) })
	storms = slices.DeleteFunc(storms, func(s storm) bool { return s.oneService })
	throughput.series = byDelay(thePossible, storms, all.possible)
	for _, who := range three {
		if len(all.of(stormCase(usualDelay), who, rate)) == 0 {
			continue
		}
		throughput.series = append(throughput.series, byDelay(who, storms, func(s storm) []float64 { return all.of(s.String(), who, rate) })...)
		var bars []point
		for _, value := range []string{cpu, apiCPU, etcdCPU} {
			bars = append(bars, point{y: median(all.of(stormCase(usualDelay), who, value))})
		}
		shares.series = append(shares.series, series{who, bars})
	}
	for name, c := range map[string]chart{
		"throughput": throughput, "cpu": shares,
		"memory": {
			title: "Memory of one Rollcall manager at rest", x: "managed pods", y: "MB",
			series: []series{{theRollcall, all.grown(idleCase, theRollcall, resident)}},
		},
		"growth": {
			title: fmt.Sprintf("Time until all waiting pods have continued: grows like n^%.2f", exponent), x: "pods", y: "seconds",
			logX: true, logY: true, series: []series{{theRollcall, all.grown(growthCase, theRollcall, seconds)}},
		},
	} {
		if len(c.values(func(p point) float64 { return p.y })) == 0 {
			continue // its part was not asked for
		}
		if err := c.write(dir, name); err != nil {
			return err
		}
	}
	return nil
}
