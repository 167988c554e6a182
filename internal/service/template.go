package service

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"
)

// maxNameLength bounds a service name, in bytes. It is that of a DNS name, which no known registry goes below.
const maxNameLength = 253

const (
	placeholderNamespace = "namespace"
	placeholderWorkload  = "workload"
	placeholderNode      = "node"
	placeholderZone      = "zone"
	placeholderRegion    = "region"
	labelPrefix          = "label:"
)

// template is literal text with placeholders.
type template struct {
	text  string
	parts []part
}

// part is either literal text or a placeholder.
type part struct {
	literal     string
	placeholder string
}

// parseTemplate allows the placeholders in known, and {label:KEY}.
func parseTemplate(s string, known ...string) (template, error) {
	t := template{text: s}
	for rest := s; rest != ""; {
		open := strings.IndexAny(rest, "{}")
		if open < 0 {
			t.parts = append(t.parts, part{literal: rest})
			break
		}
		if rest[open] == '}' {
			return template{}, fmt.Errorf("%q has a } without a {: %s", s, placeholderHelp(known))
		}
		if open > 0 {
			t.parts = append(t.parts, part{literal: rest[:open]})
		}
		name, after, closed := strings.Cut(rest[open+1:], "}")
		if !closed {
			return template{}, fmt.Errorf("%q has a { without a }: %s", s, placeholderHelp(known))
		}
		if err := checkPlaceholder(name, known); err != nil {
			return template{}, err
		}
		t.parts = append(t.parts, part{placeholder: name})
		rest = after
	}
	return t, nil
}

func placeholderHelp(known []string) string {
	return fmt.Sprintf("write {%s}, {label:KEY} or plain text", strings.Join(known, "}, {"))
}

func checkPlaceholder(name string, known []string) error {
	if slices.Contains(known, name) {
		return nil
	}
	key, isLabel := strings.CutPrefix(name, labelPrefix)
	if !isLabel {
		return fmt.Errorf("{%s} is not a known placeholder: %s", name, placeholderHelp(known))
	}
	if problems := validation.IsQualifiedName(key); len(problems) > 0 {
		return fmt.Errorf("{%s} does not name a label: write {label:KEY} with a label's key, such as {label:app}", name)
	}
	return nil
}

// render returns the text for s, and which of the parts were empty.
func (t template) render(s Subject) (text string, empty []string) {
	var b strings.Builder
	for _, p := range t.parts {
		value := p.literal
		if p.placeholder != "" {
			value = valueOf(p.placeholder, s)
		}
		if value == "" {
			empty = append(empty, p.placeholder)
		}
		b.WriteString(value)
	}
	return b.String(), empty
}

func valueOf(placeholder string, s Subject) string {
	switch placeholder {
	case placeholderNamespace:
		return s.Namespace
	case placeholderWorkload:
		return s.Workload
	case placeholderNode:
		return s.Node.Name
	case placeholderZone:
		return s.Node.Zone
	case placeholderRegion:
		return s.Node.Region
	default:
		return s.Labels[strings.TrimPrefix(placeholder, labelPrefix)]
	}
}

// NameTemplate makes a service name from a pod: literal text and the placeholders {namespace}, {workload} and
// {label:KEY}. Make one with [ParseNameTemplate]; the zero value gives every pod its workload's name.
type NameTemplate struct{ template template }

// ParseNameTemplate parses "{namespace}-{label:app}". The error says which placeholders there are.
func ParseNameTemplate(s string) (NameTemplate, error) {
	if err := checkName(s); err != nil {
		return NameTemplate{}, err
	}
	t, err := parseTemplate(s, placeholderNamespace, placeholderWorkload)
	return NameTemplate{template: t}, err
}

// String returns the template as it was written.
func (t NameTemplate) String() string { return t.template.text }

// Equal reports whether both templates were written the same.
func (t NameTemplate) Equal(other NameTemplate) bool { return t.String() == other.String() }

// nameOf returns the service name of s, and the workload's name where the template gives an empty one. Where only some
// of its placeholders are empty it is an error: "prod-" would put all who lack the label into one service.
func (t NameTemplate) nameOf(s Subject) (string, error) {
	name, empty := t.template.render(s)
	if name == "" {
		return workloadName(t, s)
	}
	if len(empty) > 0 {
		return "", fmt.Errorf("service.name %q gives %q, because {%s} is empty for this pod: %s",
			t, name, empty[0], remedyFor(empty[0]))
	}
	if err := checkName(name); err != nil {
		return "", fmt.Errorf("service.name %q: %w", t, err)
	}
	return name, nil
}

func workloadName(t NameTemplate, s Subject) (string, error) {
	if s.Workload != "" {
		return s.Workload, nil
	}
	for _, p := range t.template.parts {
		if key, isLabel := strings.CutPrefix(p.placeholder, labelPrefix); isLabel {
			return "", fmt.Errorf("no service name: set label %s, or annotation %s: %q", key, AnnotationServices, "name=port")
		}
	}
	return "", fmt.Errorf("no service name: set annotation %s: %q", AnnotationServices, "name=port")
}

func remedyFor(placeholder string) string {
	if key, isLabel := strings.CutPrefix(placeholder, labelPrefix); isLabel {
		return fmt.Sprintf("set label %s, or annotation %s: %q", key, AnnotationServices, "name=port")
	}
	return fmt.Sprintf("set annotation %s: %q", AnnotationServices, "name=port")
}

// checkName refuses what no registry takes. An empty name is the caller's affair.
func checkName(name string) error {
	return checkText("the service name", name, maxNameLength)
}

// checkText refuses a text of more than so many bytes, and one that a log or a protocol would break on.
func checkText(what, text string, limit int) error {
	if len(text) > limit {
		return fmt.Errorf("%s has %d bytes: write at most %d", what, len(text), limit)
	}
	if !utf8.ValidString(text) {
		return fmt.Errorf("%s is not valid UTF-8", what)
	}
	if i := slices.IndexFunc([]rune(text), func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
		return fmt.Errorf("%s %q has a character that can't be printed: remove it", what, text)
	}
	return nil
}
