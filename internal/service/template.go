package service

import (
	"errors"
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
	labelPrefix          = "label:"
)

// NameTemplate makes a service name from a pod: literal text and the placeholders {namespace}, {workload} and
// {label:KEY}. Make one with [ParseNameTemplate]; the zero value gives every pod its workload's name.
type NameTemplate struct {
	text  string
	parts []part
}

// part is either literal text or a placeholder.
type part struct {
	literal     string
	placeholder string
}

// ParseNameTemplate parses "{namespace}-{label:app}". The error says which placeholders there are.
func ParseNameTemplate(s string) (NameTemplate, error) {
	if err := checkName(s); err != nil {
		return NameTemplate{}, err
	}
	t := NameTemplate{text: s}
	for rest := s; rest != ""; {
		open := strings.IndexAny(rest, "{}")
		if open < 0 {
			t.parts = append(t.parts, part{literal: rest})
			break
		}
		if rest[open] == '}' {
			return NameTemplate{}, fmt.Errorf("%q has a } that closes nothing: %s", s, placeholderHelp)
		}
		if open > 0 {
			t.parts = append(t.parts, part{literal: rest[:open]})
		}
		name, after, closed := strings.Cut(rest[open+1:], "}")
		if !closed {
			return NameTemplate{}, fmt.Errorf("%q has a { that is not closed: %s", s, placeholderHelp)
		}
		if err := checkPlaceholder(name); err != nil {
			return NameTemplate{}, err
		}
		t.parts = append(t.parts, part{placeholder: name})
		rest = after
	}
	return t, nil
}

const placeholderHelp = "write {namespace}, {workload}, {label:KEY} or plain text"

func checkPlaceholder(name string) error {
	if name == placeholderNamespace || name == placeholderWorkload {
		return nil
	}
	key, isLabel := strings.CutPrefix(name, labelPrefix)
	if !isLabel {
		return fmt.Errorf("{%s} is not known: %s", name, placeholderHelp)
	}
	if problems := validation.IsQualifiedName(key); len(problems) > 0 {
		return fmt.Errorf("{%s} does not name a label: write {label:KEY} with a label's key, such as {label:app}", name)
	}
	return nil
}

// String returns the template as it was written.
func (t NameTemplate) String() string { return t.text }

// Equal reports whether both templates were written the same.
func (t NameTemplate) Equal(other NameTemplate) bool { return t.text == other.text }

// nameOf returns the service name of s, and the workload's name where the template gives an empty one. Where only some
// of its placeholders are empty it is an error: "prod-" would put all who lack the label into one service.
func (t NameTemplate) nameOf(s Subject) (string, error) {
	var name strings.Builder
	var empty []string
	for _, p := range t.parts {
		value := p.literal
		if p.placeholder != "" {
			value = valueOf(p.placeholder, s)
		}
		if value == "" {
			empty = append(empty, p.placeholder)
		}
		name.WriteString(value)
	}
	if name.Len() == 0 {
		return workloadName(t, s)
	}
	if len(empty) > 0 {
		return "", fmt.Errorf("service.name %q gives %q, since {%s} is empty here: %s",
			t.text, name.String(), empty[0], remedyFor(empty[0]))
	}
	if err := checkName(name.String()); err != nil {
		return "", fmt.Errorf("service.name %q: %w", t.text, err)
	}
	return name.String(), nil
}

func workloadName(t NameTemplate, s Subject) (string, error) {
	if s.Workload != "" {
		return s.Workload, nil
	}
	for _, p := range t.parts {
		if key, isLabel := strings.CutPrefix(p.placeholder, labelPrefix); isLabel {
			return "", fmt.Errorf("no service name: set label %s, or annotation %s: %q", key, AnnotationServices, "name=port")
		}
	}
	return "", fmt.Errorf("no service name: set annotation %s: %q", AnnotationServices, "name=port")
}

func valueOf(placeholder string, s Subject) string {
	switch placeholder {
	case placeholderNamespace:
		return s.Namespace
	case placeholderWorkload:
		return s.Workload
	default:
		return s.Labels[strings.TrimPrefix(placeholder, labelPrefix)]
	}
}

func remedyFor(placeholder string) string {
	if key, isLabel := strings.CutPrefix(placeholder, labelPrefix); isLabel {
		return fmt.Sprintf("set label %s, or annotation %s: %q", key, AnnotationServices, "name=port")
	}
	return fmt.Sprintf("set annotation %s: %q", AnnotationServices, "name=port")
}

// checkName refuses what no registry takes. An empty name is the caller's affair.
func checkName(name string) error {
	if len(name) > maxNameLength {
		return fmt.Errorf("the service name has %d bytes: write at most %d", len(name), maxNameLength)
	}
	if !utf8.ValidString(name) {
		return errors.New("the service name is not valid UTF-8")
	}
	if i := slices.IndexFunc([]rune(name), func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
		return fmt.Errorf("the service name %q has a character that cannot be printed: remove it", name)
	}
	return nil
}
