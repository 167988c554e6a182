package service

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
	"k8s.io/apimachinery/pkg/labels"
)

const namespacePlaceholder = "{" + placeholderNamespace + "}"

// Policy is which namespaces can use which names; nil allows all.
type Policy []Allowance

// Allowance gives Names to namespaces that match both Namespaces and Selector, if set. If Shared, they can have a name together.
type Allowance struct {
	Namespaces []NamespacePattern
	Selector   labels.Selector
	Names      []NamePattern
	Shared     bool
}

// Allows reports whether the namespace can use the name, ignoring case.
func (p Policy) Allows(namespace string, of labels.Set, name Name) bool {
	if p == nil {
		return true
	}
	return slices.ContainsFunc(p, func(a Allowance) bool { return a.chooses(namespace, of) && a.gives(namespace, name) })
}

// Shares reports whether the namespace can have the name together with others that can.
func (p Policy) Shares(namespace string, of labels.Set, name Name) bool {
	return slices.ContainsFunc(p, func(a Allowance) bool { return a.Shared && a.chooses(namespace, of) && a.gives(namespace, name) })
}

// SharesByLabel reports whether a namespace's labels decide which service names are shared.
func (p Policy) SharesByLabel() bool {
	return slices.ContainsFunc(p, func(a Allowance) bool { return a.Shared && a.Selector != nil })
}

// AtMost is the policy if labels are unknown: any selector may match.
func (p Policy) AtMost() Policy {
	widest := slices.Clone(p)
	for i := range widest {
		widest[i].Selector = nil
	}
	return widest
}

// NotAllowed returns the remedy for a refused name.
func NotAllowed(namespace string, name Name) string {
	return fmt.Sprintf("service.allowed in the configuration does not give service %q to namespace %s: set another name in annotation %s, "+
		"or have an entry added to service.allowed with namespaces: [%q] and names: [%q]", name, namespace, AnnotationServices, namespace, name)
}

func (a Allowance) chooses(namespace string, of labels.Set) bool {
	matches := func(pattern NamespacePattern) bool { return globMatches(string(pattern), namespace) }
	return (len(a.Namespaces) == 0 || slices.ContainsFunc(a.Namespaces, matches)) &&
		(a.Selector == nil || a.Selector.Matches(of))
}

func (a Allowance) gives(namespace string, name Name) bool {
	return slices.ContainsFunc(a.Names, func(pattern NamePattern) bool { return pattern.matches(namespace, name) })
}

// DefaultsOf are the registries of the pods that choose none: those for the namespace, else those for all. Sorted, as all is.
func DefaultsOf(all []string, some map[string]Allowance, namespace string, of labels.Set) (defaults []string) {
	for name, a := range some {
		if a.chooses(namespace, of) {
			defaults = append(defaults, name)
		}
	}
	if len(defaults) == 0 {
		return all
	}
	slices.Sort(defaults)
	return defaults
}

// NamespacePattern is a namespace with * for any text.
type NamespacePattern string

// ParseNamespacePattern parses "team-a" and "team-*".
func ParseNamespacePattern(s string) (NamespacePattern, error) {
	odd := func(r rune) bool { return r != '*' && r != '-' && (r < 'a' || r > 'z') && (r < '0' || r > '9') }
	if s == "" || strings.ContainsFunc(s, odd) {
		return "", errors.New(`set the name of a namespace, or a pattern such as "team-*"`)
	}
	return NamespacePattern(s), nil
}

// NamePattern is a service name with * for any text, and {namespace}.
type NamePattern string

// ParseNamePattern parses "payments", "team-a-*" and "{namespace}.*".
func ParseNamePattern(s string) (NamePattern, error) {
	if s == "" {
		return "", errors.New(`use a service name, or a pattern such as "payments-*" or "{namespace}.*"`)
	}
	if strings.ContainsAny(strings.ReplaceAll(s, namespacePlaceholder, ""), "{}") {
		return "", fmt.Errorf("%q has a placeholder that is not known here: use {namespace}, * or plain text", s)
	}
	return NamePattern(s), checkName(s)
}

func (p NamePattern) matches(namespace string, name Name) bool {
	pattern := strings.ReplaceAll(string(p), namespacePlaceholder, namespace)
	return globMatches(Fold(pattern), Fold(string(name)))
}

// Fold makes equal what clients don't tell apart: Web and web in Consul's DNS; ſ and S, ß and SS in Eureka's clients (Netflix's
// Applications.java), which compare in capitals.
func Fold(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return r > unicode.MaxASCII }) {
		name = cases.Upper(language.Und).String(strings.ToLower(name)) // ẞ is its own capital, ß gives SS
	}
	return strings.ToLower(name)
}

func globMatches(pattern, s string) bool {
	parts := strings.Split(pattern, "*")
	last := len(parts) - 1
	if last == 0 {
		return pattern == s
	}
	rest, begins := strings.CutPrefix(s, parts[0])
	if !begins {
		return false
	}
	for _, part := range parts[1:last] {
		_, after, found := strings.Cut(rest, part)
		if !found {
			return false
		}
		rest = after
	}
	return strings.HasSuffix(rest, parts[last])
}
