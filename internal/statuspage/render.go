package statuspage

import (
	"fmt"
	"html"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/orders"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/statuspage/entries"
)

// view writes what a person sees. It is not an html/template: with that in the program the linker keeps every exported method of
// every type, which makes the manager 11 MB larger.
type view struct {
	strings.Builder
	Snapshot

	filter Filter
	now    time.Time
}

// put is the only way into the view. It escapes every argument, which may be a registry's text, and so is safe in an element
// and in a quoted attribute. The format is the page's own; its verbs are all %s.
func (v *view) put(format string, arguments ...any) {
	safe := make([]any, 0, len(arguments))
	for _, a := range arguments {
		safe = append(safe, html.EscapeString(fmt.Sprint(a)))
	}
	fmt.Fprintf(v, format, safe...)
}

func (v *view) putIf(condition bool, format string, arguments ...any) {
	if condition {
		v.put(format, arguments...)
	}
}

func (v *view) page() {
	v.put(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Rollcall</title>
<link rel="stylesheet" href="status/style.css">
<script src="status/live.js" defer></script>
</head>
<body>
<header>
<h1>Rollcall</h1>
<p id="live" role="status">Reload the page to see what has changed.</p>
<form>
<label>Namespace <input name="namespace" value="%s" autocomplete="off" spellcheck="false"></label>
<label>Text <input name="q" type="search" value="%s" autocomplete="off" spellcheck="false"></label>
<button>Filter</button>
</form>
</header>
<main>
`, v.filter.Namespace, v.filter.Text)
	v.content()
	v.put("</main>\n</body>\n</html>\n")
}

// content writes what changes.
func (v *view) content() {
	v.put(`<div id="taken" data-now="%s"></div>`+"\n", v.now.UnixMilli())
	m := v.Manager
	v.putIf(m.NotReady != "", `<p class="notice bad">This manager is not ready: %s</p>`+"\n", m.NotReady)
	v.putIf(m.DryRun, `<p class="notice">This is a dry run: the manager writes nothing.</p>`+"\n")
	if !m.Leads {
		v.put(`<p class="notice">This manager %s does not lead, so it knows nothing of pods and registries. `, m.Name)
		v.putIf(m.Leader != "", "<strong>%s</strong> leads: look there.", m.Leader)
		v.putIf(m.Leader == "", "None is known to lead.")
		v.put("</p>\n")
		return
	}
	v.pods()
	v.registries()
	v.services()
}

func (v *view) pods() {
	v.put(`<section>
<h2>Pods that wait <span class="count">%s</span></h2>
`, v.PodsTotal)
	if v.Withheld != "" {
		v.put("<p class=\"notice\">Pods and services are not shown: %s</p>\n</section>\n", v.Withheld)
		return
	}
	if len(v.Pods) == 0 {
		v.put("<p class=\"faint\">No pod waits.</p>\n</section>\n")
		return
	}
	v.head("Waited", "Pod", "Hook", "Reason", "Registries")
	for _, p := range v.Pods {
		v.row(p.Warning)
		v.put(`<td data-of="Waited">`)
		v.age(p.Since)
		v.put(`</td>
<td data-of="Pod"><span class="faint">%s/</span><b>%s</b></td>
<td data-of="Hook">%s</td>
<td data-of="Reason">`, p.Namespace, p.Pod, p.Hook)
		v.putIf(p.Warning, `<span class="mark" title="a person should look">!</span> `)
		v.put(`<a href="%s" rel="noreferrer">%s</a><p>%s</p></td>
<td data-of="Registries">`, reason.Reason(p.Reason).Page(v.Manager.Version), p.Reason, p.Message)
		for _, i := range p.Instances {
			v.put(`<p><span class="state %s">%s</span> %s at %s in %s</p>`, i.State, i.State, i.Service, i.Endpoint, sourceOf(i.Registry, i.Writer))
		}
		v.putIf(len(p.Instances) == 0, `<span class="faint">nothing yet</span>`)
		v.put("</td>\n</tr>\n")
	}
	v.foot(v.PodsTotal - len(v.Pods))
}

func (v *view) registries() {
	v.put(`<section>
<h2>Registries <span class="count">%s</span></h2>
`, len(v.Registries))
	v.head("Registry", "Circuit breaker", "Calls under way", "Queued", "Last resync")
	for _, r := range v.Registries {
		v.row(r.Breaker != "closed" || r.Failure != "" || r.RemovalsBlocked)
		v.put(`<td data-of="Registry"><b>%s</b> <span class="faint">%s</span></td>
<td data-of="Circuit breaker"><span class="state %s">%s</span></td>
<td data-of="Calls under way">%s <span class="faint">of %s</span></td>
<td data-of="Queued">%s</td>
<td data-of="Last resync">`, r.Name, r.Driver, r.Breaker, r.Breaker, r.InUse, r.Slots, r.Queued)
		v.resync(r)
		v.put("</td>\n</tr>\n")
	}
	v.foot(0)
}

func (v *view) resync(r entries.Registry) {
	switch {
	case !r.Lists:
		v.put(`<span class="faint">the driver can't list</span>`)
	case r.Succeeded.IsZero():
		v.put(`<span class="faint">not yet</span>`)
	default:
		v.age(r.Succeeded)
		v.put(" ago")
	}
	v.putIf(r.Failure != "", "<p>The last run failed: %s</p>", r.Failure)
	v.putIf(r.RemovalsBlocked, `<p>Removals are blocked: <a href="status.json">status.json</a> names up to %s entries under `+
		"heldRemovals, and %s approves all of them.</p>", orders.NamedAtMost, v.Manager.Approve)
}

func (v *view) services() {
	if v.Withheld != "" {
		return
	}
	v.put(`<section>
<h2>Services <span class="count">%s</span></h2>
`, v.ServicesTotal)
	v.head("Service", "Registry", "In rotation", "Out", "Unacknowledged")
	for _, s := range v.Services {
		v.row(false)
		v.put(`<td data-of="Service"><span class="faint">%s/</span><b>%s</b></td>
<td data-of="Registry">%s</td>
<td data-of="In rotation">%s</td>
<td data-of="Out">%s</td>
<td data-of="Unacknowledged">%s</td>
</tr>
`, s.Namespace, s.Name, sourceOf(s.Registry, s.Writer), s.In, s.Out, s.Unacknowledged)
	}
	v.foot(v.ServicesTotal - len(v.Services))
}

func sourceOf(registry, writer string) string {
	return lifecycle.Source{Registry: registry, Writer: lifecycle.Writer(writer)}.String()
}

// head begins a table. A narrow page repeats the names of the columns in each cell.
func (v *view) head(columns ...string) {
	v.put("<table>\n<thead><tr>")
	for _, column := range columns {
		v.put("<th>%s</th>", column)
	}
	v.put("</tr></thead>\n<tbody>\n")
}

func (v *view) row(warning bool) {
	v.putIf(warning, "<tr class=\"warning\">\n")
	v.putIf(!warning, "<tr>\n")
}

// foot ends a table and its section, and shows how many rows are not shown.
func (v *view) foot(left int) {
	v.put("</tbody>\n</table>\n")
	v.putIf(left > 0, "<p class=\"faint\">%s more: filter to find one.</p>\n", left)
	v.put("</section>\n")
}

// age writes how long ago something was. The page's script keeps it right.
func (v *view) age(t time.Time) {
	v.put(`<time datetime="%s">%s</time>`, t.UTC().Format(time.RFC3339), duration.ShortHumanDuration(max(v.now.Sub(t), 0)))
}
