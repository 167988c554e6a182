package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// fields are those that the chart's schema knows of an object, without those that it refuses (false). Users set an object without any,
// such as a pod's resources, as a whole.
type fields map[string]any

func (f fields) of(name string) fields {
	object, _ := f[name].(map[string]any)
	below, _ := object["properties"].(map[string]any)
	known := maps.Clone(fields(below))
	maps.DeleteFunc(known, func(_ string, schema any) bool { return schema == any(false) })
	return known
}

// valuesPage has the values of the chart with their comments, and a section for each object with fields.
func valuesPage() (string, error) {
	chart := filepath.Join(root, "charts", "rollcall")
	values, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		return "", err
	}
	schema, err := os.ReadFile(filepath.Join(chart, "values.schema.json"))
	if err != nil {
		return "", err
	}
	var file yaml.Node
	var object map[string]any
	if err := errors.Join(yaml.Unmarshal(values, &file), yaml.Unmarshal(schema, &object)); err != nil {
		return "", err
	}
	known := fields{"": object}.of("")
	delete(known, "config") // has a page of its own
	return pageOfValues(file.Content[0], known)
}

func pageOfValues(values *yaml.Node, known fields) (string, error) {
	var general [][]string
	var sections strings.Builder
	for i := 0; i < len(values.Content); i += 2 {
		key, value := values.Content[i], values.Content[i+1]
		rows, err := valueRows(key.Value, key, value, known.of(key.Value))
		if err != nil {
			return "", err
		}
		if len(known.of(key.Value)) == 0 {
			general = append(general, rows...)
			continue
		}
		fmt.Fprintf(&sections, "\n## %s\n\n%s\n\n%s", key.Value, meaning(key), valueTable(rows))
	}
	return begin("Helm values", "`helm show values` prints the same. The chart refuses a value that it does not know.") +
		"\n" + valueTable(general) + sections.String(), nil
}

func valueTable(rows [][]string) string { return table([]string{"value", "default", "meaning"}, rows) }

// valueRows has a row for the value, or for each field of it.
func valueRows(path string, key, value *yaml.Node, known fields) (rows [][]string, err error) {
	if len(known) == 0 {
		row, err := valueRow(path, key, value)
		return [][]string{row}, err
	}
	for i := 0; i < len(value.Content); i += 2 {
		key, value := value.Content[i], value.Content[i+1]
		below, err := valueRows(path+"."+key.Value, key, value, known.of(key.Value))
		if err != nil {
			return nil, err
		}
		rows = append(rows, below...)
	}
	return rows, nil
}

func valueRow(path string, key, value *yaml.Node) ([]string, error) {
	if key.HeadComment == "" {
		return nil, fmt.Errorf("values.yaml: set a comment above %s: what it does, and when to set it", path)
	}
	withoutComments(value)
	value.Style |= yaml.FlowStyle
	byDefault, err := yaml.Marshal(value)
	return []string{code(path), code(strings.TrimSpace(string(byDefault))), meaning(key)}, err
}

func withoutComments(node *yaml.Node) {
	node.HeadComment, node.FootComment = "", ""
	for _, below := range node.Content {
		withoutComments(below)
	}
}

// docsPage matches a page of the documentation, to which a comment has no link.
var docsPage = regexp.MustCompile(`\bdocs/([a-z/-]+\.md)\b`)

func meaning(key *yaml.Node) string {
	text := strings.Join(strings.Fields(strings.ReplaceAll("\n"+key.HeadComment, "\n#", " ")), " ")
	return docsPage.ReplaceAllString(text, "[docs/$1](../$1)")
}
