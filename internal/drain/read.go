package drain

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/rollcall-dev/rollcall/internal/shorten"
	"github.com/rollcall-dev/rollcall/internal/suggest"
)

// Default is the drain of a configuration that sets none, and Min of one that sets none.
const Default = 15 * time.Second

const (
	metricsPath = "/metrics"
	maxPath     = 512
)

var (
	metricName = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*$`)
	labelName  = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
)

// Parse reads what an annotation has: a duration, or the fields of an object in YAML or JSON.
func Parse(text string) (Policy, error) {
	text = strings.TrimSpace(text)
	if !strings.Contains(text, ":") {
		length, err := time.ParseDuration(text)
		switch {
		case err != nil:
			return Policy{}, fmt.Errorf(`%s is not a duration: set "15s", "1m30s" or "0s"`, shorten.Quote(text))
		case length < 0:
			return Policy{}, fmt.Errorf(`%s is below zero: set "0s" or more`, shorten.Quote(text))
		}
		return Fixed(length), nil
	}
	var document yaml.Node // not the values: their size has no bound if the text has aliases
	if err := yaml.Unmarshal([]byte(text), &document); err != nil {
		return Policy{}, fmt.Errorf("%s is neither a duration nor valid YAML: %w", shorten.Quote(text), err)
	}
	written, err := plain(&document)
	if err != nil {
		return Policy{}, err
	}
	policy, problems := Read(nil, written, nil)
	if len(problems) == 0 {
		return policy, nil
	}
	all := make([]error, len(problems))
	for i, problem := range problems {
		all[i] = problem
	}
	return Policy{}, errors.Join(all...)
}

// plain returns the values of a document as JSON has them, with whole numbers as int64.
func plain(n *yaml.Node) (any, error) {
	switch n.Kind {
	case yaml.DocumentNode:
		return plain(n.Content[0])
	case yaml.AliasNode:
		return nil, errors.New("an alias is not allowed: write out its value")
	case yaml.SequenceNode:
		return []any{}, nil // no field is a list
	case yaml.MappingNode:
		fields := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			name := n.Content[i].Value
			if _, twice := fields[name]; twice {
				return nil, fmt.Errorf("field %s is set twice: remove one", shorten.Quote(name))
			}
			value, err := plain(n.Content[i+1])
			if err != nil {
				return nil, err
			}
			fields[name] = value
		}
		return fields, nil
	case yaml.ScalarNode:
	}
	var value any
	if err := n.Decode(&value); err != nil {
		return nil, err
	}
	switch v := value.(type) {
	case int:
		return int64(v), nil
	case string, bool, nil, int64, float64:
		return v, nil
	}
	return n.Value, nil
}

// Read reads a drain that was decoded as JSON would have it: a duration or an object; nothing is [Default]. Unknown fields are refused,
// unless unknown is there to be called with the path of each. Each problem identifies its field below at.
func Read(at *field.Path, written any, unknown func(path string)) (Policy, field.ErrorList) {
	r := &reader{unknown: unknown}
	fields, isObject := written.(map[string]any)
	if !isObject {
		return Fixed(r.duration(at, written, Default)), r.problems
	}
	o := r.object(at, fields, "min", "max", "until")
	p := Policy{Min: r.duration(at.Child("min"), o["min"], Default), Max: r.duration(at.Child("max"), o["max"], 0)}
	switch {
	case o["until"] == nil:
		r.require(at.Child("until"), `set what shows that the pod is idle, such as {path: /idle, port: 8080}, or set a duration such as "15s" `+
			"in place of the object")
	case o["max"] == nil:
		r.require(at.Child("max"), `set how long a pod that stays busy drains, such as "10m"`)
	case p.Max < p.Min && len(r.problems) == 0:
		r.invalid(at.Child("max"), p.Max.String(), fmt.Sprintf(`set "%s" or more, which is min, or lower min`, p.Min))
	}
	if o["until"] != nil {
		p.Until = r.until(at.Child("until"), o["until"])
	}
	return p, r.problems
}

// Written is a drain as [Read] reads it, with all defaults.
func (p Policy) Written() any {
	if !p.Asks() {
		return p.Max.String()
	}
	until := map[string]any{"path": p.Until.Path, "port": p.Until.Port}
	if p.Until.Metric != "" {
		until["metric"], until["allow"] = p.Until.Metric, p.Until.Allow
	}
	if len(p.Until.Labels) > 0 {
		until["labels"] = p.Until.Labels
	}
	return map[string]any{"min": p.Min.String(), "max": p.Max.String(), "until": until}
}

type reader struct {
	unknown  func(path string)
	problems field.ErrorList
}

func (r *reader) invalid(at *field.Path, value any, detail string) {
	r.problems = append(r.problems, field.Invalid(at, value, detail))
}

func (r *reader) require(at *field.Path, detail string) {
	r.problems = append(r.problems, field.Required(at, detail))
}

func (r *reader) object(at *field.Path, written any, known ...string) map[string]any {
	fields, is := written.(map[string]any)
	if !is {
		r.problems = append(r.problems, field.TypeInvalid(at, field.OmitValueType{},
			"use an object with the fields "+strings.Join(known, ", ")))
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		switch path := at.Child(name); {
		case slices.Contains(known, name):
		case r.unknown != nil:
			r.unknown(path.String())
		default:
			meant := suggest.Nearest(name, known)
			if meant != "" {
				meant = fmt.Sprintf(" (did you mean %q?)", meant)
			}
			r.invalid(path, field.OmitValueType{}, "unknown field"+meant+"; known here: "+strings.Join(known, ", "))
		}
	}
	return fields
}

func (r *reader) duration(at *field.Path, written any, def time.Duration) time.Duration {
	if written == nil {
		return def
	}
	text, _ := written.(string)
	length, err := time.ParseDuration(text)
	switch {
	case err != nil:
		r.invalid(at, written, fmt.Sprintf(`set a duration with its unit, such as "%s"`, Default))
	case length < 0:
		r.invalid(at, text, `set "0s" or more`)
	}
	return length
}

func (r *reader) until(at *field.Path, written any) Until {
	o := r.object(at, written, "path", "port", "metric", "labels", "allow")
	if o == nil {
		return Until{}
	}
	u := Until{Path: r.text(at.Child("path"), o["path"]), Metric: r.text(at.Child("metric"), o["metric"])}
	u.Port = int(r.number(at.Child("port"), o["port"], 1, 65535))
	if o["metric"] == nil {
		for _, name := range []string{"labels", "allow"} {
			if o[name] != nil {
				r.problems = append(r.problems, field.Forbidden(at.Child(name), "has no effect without metric: set metric, or remove this field"))
			}
		}
		r.path(at.Child("path"), o["path"], u.Path)
		return u
	}
	if !metricName.MatchString(u.Metric) {
		r.invalid(at.Child("metric"), u.Metric, "set the name of a gauge as the pod's metrics show it, such as http_requests_in_flight")
	}
	if o["path"] == nil {
		u.Path, o["path"] = metricsPath, metricsPath
	}
	r.path(at.Child("path"), o["path"], u.Path)
	u.Labels = r.labels(at.Child("labels"), o["labels"])
	if o["allow"] != nil {
		u.Allow = r.number(at.Child("allow"), o["allow"], 0, 1_000_000)
	}
	return u
}

func (r *reader) path(at *field.Path, written any, path string) {
	if written == nil {
		r.require(at, "set the path that answers 2xx if the pod is idle and 503 if it is busy, such as /idle; or set metric")
		return
	}
	u, err := url.Parse(path)
	if err != nil || len(path) > maxPath || !strings.HasPrefix(path, "/") || u.Host != "" || u.Fragment != "" {
		r.invalid(at, path, fmt.Sprintf("set a path such as /idle, of at most %d bytes", maxPath))
	}
}

func (r *reader) text(at *field.Path, written any) string {
	text, is := written.(string)
	if !is && written != nil {
		r.invalid(at, written, "use a string, in quotes")
	}
	return text
}

func (r *reader) number(at *field.Path, written any, least, most int64) int64 {
	number, is := written.(int64)
	switch {
	case written == nil:
		r.require(at, fmt.Sprintf("set a whole number from %d to %d", least, most))
	case !is || number < least || number > most:
		r.invalid(at, written, fmt.Sprintf("set a whole number from %d to %d, without quotes", least, most))
	}
	return number
}

func (r *reader) labels(at *field.Path, written any) map[string]string {
	if written == nil {
		return nil
	}
	fields, is := written.(map[string]any)
	if !is {
		r.invalid(at, field.OmitValueType{}, `use an object with labels and their values, such as {kind: "stream"}`)
		return nil
	}
	labels := make(map[string]string, len(fields))
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !labelName.MatchString(name) {
			r.invalid(at, name, "use labels as the pod's metrics show them")
			continue
		}
		labels[name] = r.text(at.Child(name), fields[name])
	}
	return labels
}
