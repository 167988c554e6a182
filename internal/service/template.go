package service

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rollcall-dev/rollcall/internal/shorten"
)

// maxNameLength is a DNS name's, in bytes; no known registry allows less.
const maxNameLength = 253

const (
	placeholderNamespace = "namespace"
	placeholderWorkload  = "workload"
	placeholderNode      = "node"
	placeholderZone      = "zone"
	placeholderRegion    = "region"
	placeholderPod       = "pod"
	placeholderPodIP     = "podIP"
	placeholderPodIPv4   = "podIPv4"
	placeholderPodIPv6   = "podIPv6"
	placeholderHostIP    = "hostIP"
	placeholderSubdomain = "subdomain"
	labelPrefix          = "label:"
	nsLabelPrefix        = "nsLabel:"
)

func checkTemplate(s string, known ...string) error {
	help := fmt.Sprintf("use {%s}, {label:KEY} or plain text", strings.Join(known, "}, {"))
	for rest := s; rest != ""; {
		literal, after, found := strings.Cut(rest, "{")
		if strings.Contains(literal, "}") {
			return fmt.Errorf("%q has a } without a {: %s", s, help)
		}
		if !found {
			return nil
		}
		placeholder, behind, closed := strings.Cut(after, "}")
		key, isLabel := strings.CutPrefix(placeholder, labelPrefix)
		switch {
		case !closed:
			return fmt.Errorf("%q has a { without a }: %s", s, help)
		case isLabel && len(validation.IsQualifiedName(key)) > 0:
			return fmt.Errorf("{%s} does not name a label: use {label:KEY} with a label's key, such as {label:app}", placeholder)
		case !isLabel && !slices.Contains(known, placeholder):
			return fmt.Errorf("{%s} is not a known placeholder: %s", placeholder, help)
		}
		rest = behind
	}
	return nil
}

func render(template string, s Subject) (text string, empty []string) {
	var b strings.Builder
	for rest := template; rest != ""; {
		literal, after, found := strings.Cut(rest, "{")
		b.WriteString(literal)
		if !found {
			break
		}
		placeholder, behind, _ := strings.Cut(after, "}")
		value := valueOf(placeholder, s)
		if value == "" {
			empty = append(empty, placeholder)
		}
		b.WriteString(value)
		rest = behind
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
	case placeholderPod:
		return s.Pod
	case placeholderPodIP, placeholderPodIPv4, placeholderPodIPv6, placeholderHostIP:
		return addressIn(placeholder).of(s)
	case placeholderSubdomain:
		return stableName(s)
	}
	if key, ofNamespace := strings.CutPrefix(placeholder, nsLabelPrefix); ofNamespace {
		return s.NamespaceLabels[key]
	}
	return s.Labels[strings.TrimPrefix(placeholder, labelPrefix)]
}

func addressIn(placeholder string) Address {
	switch placeholder {
	case placeholderPodIPv4:
		return ipv4
	case placeholderPodIPv6:
		return ipv6
	case placeholderHostIP:
		return hostIP
	default:
		return podIP
	}
}

// stableName is what Kubernetes' DNS has for a pod of a StatefulSet.
func stableName(s Subject) string {
	if s.Pod == "" || s.Spec == nil || s.Spec.Subdomain == "" || s.Spec.Hostname != s.Pod {
		return ""
	}
	return s.Pod + "." + s.Spec.Subdomain + "." + s.Namespace + ".svc"
}

// NameTemplate is a service name with {namespace}, {workload} and {label:KEY}; the zero value is the workload's name.
type NameTemplate string

// ParseNameTemplate parses "{namespace}-{label:app}".
func ParseNameTemplate(s string) (NameTemplate, error) {
	if err := checkName(s); err != nil {
		return "", err
	}
	return NameTemplate(s), checkTemplate(s, placeholderNamespace, placeholderWorkload)
}

// nameOf falls back to the workload's name. One empty placeholder is an error: "prod-" would join all pods without the label.
func (t NameTemplate) nameOf(s Subject) (string, error) {
	name, empty := render(string(t), s)
	switch {
	case name == "" && s.Workload != "":
		return s.Workload, nil
	case name == "":
		return "", fmt.Errorf("no service name: %s", remedyFor(empty))
	case len(empty) > 0:
		return "", fmt.Errorf("service.name %q gives %q, because {%s} is empty for this pod: %s", t, name, empty[0], remedyFor(empty[:1]))
	}
	if err := checkName(name); err != nil {
		return "", fmt.Errorf("service.name %q: %w", t, err)
	}
	return name, nil
}

func remedyFor(empty []string) string {
	for _, placeholder := range empty {
		if key, isLabel := strings.CutPrefix(placeholder, labelPrefix); isLabel {
			return fmt.Sprintf("set label %s, or annotation %s: %q", key, AnnotationServices, "name=port")
		}
	}
	return fmt.Sprintf("set annotation %s: %q", AnnotationServices, "name=port")
}

// PlaceOf renders a PlaceTemplate of [registry.Traits]. An empty placeholder is an error, as for a name.
func PlaceOf(template string, s Subject) (string, error) {
	place, empty := render(template, s)
	if len(empty) == 0 {
		return place, nil
	}
	of, key := "the pod", strings.TrimPrefix(empty[0], labelPrefix)
	if ns, is := strings.CutPrefix(key, nsLabelPrefix); is {
		of, key = "namespace "+s.Namespace, ns
	}
	return "", fmt.Errorf("the registry has pods in %q, and %s has no label %s: set it", template, of, key)
}

// checkName allows an empty name.
func checkName(name string) error {
	return checkText("the service name", name, maxNameLength)
}

// checkText refuses what breaks a log or a protocol.
func checkText(what, text string, limit int) error {
	if len(text) > limit {
		return fmt.Errorf("%s has %d bytes: use at most %d", what, len(text), limit)
	}
	if !utf8.ValidString(text) {
		return fmt.Errorf("%s is not valid UTF-8", what)
	}
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("%s %s has a character that can't be printed: remove it", what, shorten.Quote(text))
	}
	return nil
}
