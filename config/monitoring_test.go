package config_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// promtool plays the scenarios of rules_test.yaml. It is built without Prometheus' service discoveries, which is most of it.
func TestAlerts(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	rules, err := yaml.Marshal(prometheusRule(t).Object["spec"])
	expect.NoError(t, err)
	scenarios, err := os.ReadFile("components/prometheus/rules_test.yaml")
	expect.NoError(t, err)
	for name, content := range map[string][]byte{"rules.yaml": rules, "rules_test.yaml": scenarios} {
		expect.NoError(t, os.WriteFile(filepath.Join(folder, name), content, 0o600))
	}
	for _, arguments := range [][]string{{"check", "rules", "rules.yaml"}, {"test", "rules", "rules_test.yaml"}} {
		arguments[2] = filepath.Join(folder, arguments[2])
		command := exec.CommandContext(t.Context(), "go", append([]string{"tool", "promtool"}, arguments...)...)
		command.Dir = "../hack/tools/promtool"
		// As in render: so the tool is built once.
		command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-tags=remove_all_sd")
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(arguments, " "), err, out)
		}
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
