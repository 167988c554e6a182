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

// namespacePlaceholder stands for the namespace's own name in a [NamePattern].
const namespacePlaceholder = "{" + placeholderNamespace + "}"

// Policy says which namespaces may use which service names. A nil Policy allows every name to every namespace.
type Policy []Allowance

// Allowance gives some names to some namespaces. Both of its ways to choose namespaces have to agree, where both are there.
type Allowance struct {
	// Namespaces are the patterns of their names; empty where Selector alone chooses.
	Namespaces []NamespacePattern
	// Selector chooses by the labels of the namespace; nil where Namespaces alone choose.
	Selector labels.Selector
	Names    []NamePattern
}

// Allows reports whether a namespace with these labels may use the service name. Capital and small letters are the same.
func (p Policy) Allows(namespace string, of labels.Set, name string) bool {
	if p == nil {
		return true
	}
	return slices.ContainsFunc(p, func(a Allowance) bool { return a.chooses(namespace, of) && a.gives(namespace, name) })
}

// AtMost returns the policy of a namespace whose labels are not known: they may match every selector.
func (p Policy) AtMost() Policy {
	widest := slices.Clone(p)
	for i := range widest {
		widest[i].Selector = nil
	}
	return widest
}

// NotAllowed says what to write where a policy does not give a name to a namespace.
func NotAllowed(namespace, name string) string {
	return fmt.Sprintf("service.allowed in the configuration does not give service %q to namespace %s: write another name in annotation %s, "+
		"or have an entry added to service.allowed with namespaces: [%q] and names: [%q]", name, namespace, AnnotationServices, namespace, name)
}

func (a Allowance) chooses(namespace string, of labels.Set) bool {
	matches := func(pattern NamespacePattern) bool { return globMatches(string(pattern), namespace) }
	return (len(a.Namespaces) == 0 || slices.ContainsFunc(a.Namespaces, matches)) &&
		(a.Selector == nil || a.Selector.Matches(of))
}

func (a Allowance) gives(namespace, name string) bool {
	return slices.ContainsFunc(a.Names, func(pattern NamePattern) bool { return pattern.matches(namespace, name) })
}

// NamespacePattern is the name of a namespace, in which * stands for any text. Make one with [ParseNamespacePattern].
type NamespacePattern string

// ParseNamespacePattern parses "team-a" and "team-*".
func ParseNamespacePattern(s string) (NamespacePattern, error) {
	odd := func(r rune) bool { return r != '*' && r != '-' && (r < 'a' || r > 'z') && (r < '0' || r > '9') }
	if s == "" || strings.ContainsFunc(s, odd) {
		return "", errors.New(`write the name of a namespace, or a pattern such as "team-*"`)
	}
	return NamespacePattern(s), nil
}

// NamePattern is a service name, in which * stands for any text and {namespace} for the name of the namespace that asks.
// Make one with [ParseNamePattern].
type NamePattern string

// ParseNamePattern parses "payments", "team-a-*" and "{namespace}.*".
func ParseNamePattern(s string) (NamePattern, error) {
	if s == "" {
		return "", errors.New(`write a service name, or a pattern such as "payments-*" or "{namespace}.*"`)
	}
	if strings.ContainsAny(strings.ReplaceAll(s, namespacePlaceholder, ""), "{}") {
		return "", fmt.Errorf("%q has a placeholder that is not known here: write {namespace}, * or plain text", s)
	}
	return NamePattern(s), checkName(s)
}

func (p NamePattern) matches(namespace, name string) bool {
	pattern := strings.ReplaceAll(string(p), namespacePlaceholder, namespace)
	return globMatches(Fold(pattern), Fold(name))
}

// Fold returns the same text for names that registries' clients take for one: Consul's DNS does not tell capital and small letters
// apart, and Eureka's clients write names in capitals before they compare them, by which ſ is S and ß is SS (Netflix's Applications.java).
func Fold(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return r > unicode.MaxASCII }) {
		name = cases.Upper(language.Und).String(strings.ToLower(name)) // capital ẞ has no other capital, and its small form has
	}
	return strings.ToLower(name)
}

// globMatches reports whether the pattern, in which * stands for any text, matches the whole of s.
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
