package config_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// promtool plays the scenarios of rules_test.yaml, reads the dashboard's queries as rules, and refuses what can't be read.
// It is built without Prometheus' service discoveries, which is most of it.
func TestAlerts(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	rules, err := yaml.Marshal(prometheusRule(t).Object["spec"])
	expect.NoError(t, err)
	scenarios, err := os.ReadFile("components/prometheus/rules_test.yaml")
	expect.NoError(t, err)
	var queries []map[string]string
	for _, panel := range dashboard(t).Panels {
		for _, target := range panel.Targets {
			expr := strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")
			queries = append(queries, map[string]string{"record": fmt.Sprintf("panel_%d:%s", panel.ID, target.RefID), "expr": expr})
		}
	}
	drawn, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": queries}}})
	expect.NoError(t, err)
	for _, c := range []struct{ what, file, content, refused string }{
		{what: "check", file: "rules.yaml", content: string(rules)},
		{what: "check", file: "dashboard.yaml", content: string(drawn)},
		{what: "check", file: "broken.yaml", content: strings.Replace(string(rules), "expr: ", "expr: ) ", 1), refused: "could not parse expression"},
		{what: "test", file: "rules_test.yaml", content: string(scenarios)},
	} {
		file := filepath.Join(folder, c.file)
		expect.NoError(t, os.WriteFile(file, []byte(c.content), 0o600))
		command := exec.CommandContext(t.Context(), "go", "tool", "-modfile=../hack/tools/go.mod", "promtool", c.what, "rules", file)
		// As in render: so the tool is built once.
		command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-tags=remove_all_sd")
		out, err := command.CombinedOutput()
		if (err != nil) != (c.refused != "") || !strings.Contains(string(out), c.refused) {
			t.Errorf("promtool %s rules %s: %v, want %q in\n%s", c.what, c.file, err, c.refused, out)
		}
	}
}

// The dashboard is one by Grafana's schema of the classic form, and no panel lies on another.
// https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model.
type grafanaDashboard struct {
	UID, Title, Description, Timezone, Refresh string
	Tags                                       []string
	Editable                                   bool
	GraphTooltip, SchemaVersion, Version       int
	Time                                       struct{ From, To string }
	Templating, Annotations                    struct{ List []map[string]any }
	Links                                      []any
	Panels                                     []struct {
		ID                       int
		Type, Title, Description string
		Collapsed                bool
		Panels                   []any
		Datasource               struct{ Type, UID string }
		GridPos                  struct{ H, W, X, Y int }
		Targets                  []struct {
			RefID, Expr, LegendFormat string
			Datasource                struct{ Type, UID string }
		}
		FieldConfig struct {
			Defaults  map[string]any
			Overrides []any
		}
		Options map[string]any
	}
}

// chosen selects the managers of the clusters that are chosen.
const chosen = `, instance=~"$instance"`

func dashboard(t *testing.T) (d grafanaDashboard) {
	t.Helper()
	text, err := os.ReadFile("components/prometheus/grafana.json")
	expect.NoError(t, err)
	strict := json.NewDecoder(bytes.NewReader(text))
	strict.DisallowUnknownFields()
	expect.NoError(t, strict.Decode(&d)) //nolint:musttag // the schema has the same names but for their case
	return d
}

func TestDashboardIsGrafanas(t *testing.T) {
	t.Parallel()
	d := dashboard(t)
	if d.UID == "" || len(d.UID) > 40 || d.Title == "" || d.SchemaVersion < 36 || len(d.Panels) == 0 {
		t.Errorf("uid %q, title %q, schemaVersion %d, %d panels", d.UID, d.Title, d.SchemaVersion, len(d.Panels))
	}
	cells, ids := map[[2]int]string{}, map[int]string{}
	for _, p := range d.Panels {
		if other := ids[p.ID]; other != "" {
			t.Errorf("%s and %s have the id %d", other, p.Title, p.ID)
		}
		ids[p.ID] = p.Title
		at := p.GridPos
		if at.W < 1 || at.H < 1 || at.X < 0 || at.X+at.W > 24 {
			t.Errorf("%s lies at %+v, outside of the 24 columns", p.Title, at)
		}
		for x := range at.W {
			for y := range at.H {
				cell := [2]int{at.X + x, at.Y + y}
				if other := cells[cell]; other != "" {
					t.Fatalf("%s lies on %s", p.Title, other)
				}
				cells[cell] = p.Title
			}
		}
		for _, target := range p.Targets {
			if of := `job="rollcall"`; strings.Count(target.Expr, of) != strings.Count(target.Expr, of+chosen) {
				t.Errorf("%s shows managers of other clusters than the chosen: %s", p.Title, target.Expr)
			}
		}
		if !slices.Contains([]string{"row", "stat", "timeseries"}, p.Type) || (p.Type == "row") == (len(p.Targets) > 0) {
			t.Errorf("%s is a %s with %d queries", p.Title, p.Type, len(p.Targets))
		}
	}
}

// A panel that is red while no alert fires, or the other way round, says the wrong thing.
func TestDashboardCountsRegistriesAsTheAlertDoes(t *testing.T) {
	t.Parallel()
	groups, _, _ := unstructured.NestedSlice(prometheusRule(t).Object, "spec", "groups")
	got, want := "", ""
	for _, rule := range groups[0].(map[string]any)["rules"].([]any) {
		if rule := rule.(map[string]any); rule["alert"] == "RollcallRegistryDown" {
			want = "count(" + rule["expr"].(string) + ") or vector(0)"
		}
	}
	for _, p := range dashboard(t).Panels {
		if p.Title == "Registries down" {
			got = strings.ReplaceAll(p.Targets[0].Expr, chosen, "")
		}
	}
	if got != want || got == "" {
		t.Errorf("Registries down shows\n%s\nwant what RollcallRegistryDown fires for:\n%s", got, want)
	}
}

func TestEveryAlertIsTestedAndExplained(t *testing.T) {
	t.Parallel()
	scenarios, err := os.ReadFile("components/prometheus/rules_test.yaml")
	expect.NoError(t, err)
	page, err := os.ReadFile("../docs/monitoring.md")
	expect.NoError(t, err)
	groups, _, _ := unstructured.NestedSlice(prometheusRule(t).Object, "spec", "groups")
	for _, rule := range groups[0].(map[string]any)["rules"].([]any) {
		alert := rule.(map[string]any)["alert"].(string)
		if !bytes.Contains(scenarios, []byte("    alertname: "+alert+"\n    exp_alerts:")) {
			t.Errorf("no scenario of rules_test.yaml makes %s fire", alert)
		}
		if !bytes.Contains(page, []byte("\n### "+alert+"\n")) {
			t.Errorf("docs/monitoring.md has no section on %s, which its runbook_url names", alert)
		}
	}
}

// A metric that was renamed leaves an alert that never fires, and a panel that is empty.
func TestAlertsAndDashboardNameMetricsThatExist(t *testing.T) {
	t.Parallel()
	reference, err := os.ReadFile("../docs/reference/metrics.md")
	expect.NoError(t, err)
	for _, file := range []string{"prometheus_rule.yaml", "rules_test.yaml", "grafana.json"} {
		text, err := os.ReadFile(filepath.Join("components/prometheus", file))
		expect.NoError(t, err)
		names := regexp.MustCompile(`rollcall_[a-z_]+`).FindAllString(string(text), -1)
		if len(names) < 7 {
			t.Errorf("%s names %d metrics, want more", file, len(names))
		}
		for _, name := range names {
			series := regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(name, "")
			if !bytes.Contains(reference, []byte("`"+series+"`")) {
				t.Errorf("%s names %s, which docs/reference/metrics.md does not have", file, name)
			}
		}
	}
}

func prometheusRule(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile("components/prometheus/prometheus_rule.yaml")
	expect.NoError(t, err)
	rule := &unstructured.Unstructured{}
	expect.NoError(t, yaml.UnmarshalStrict(text, &rule.Object))
	return rule
}
