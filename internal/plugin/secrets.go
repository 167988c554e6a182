package plugin

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// masked takes the place of a secret.
const masked = "(masked)"

// Forms that a secret has in a text, whatever the configuration has.
const (
	// words are those in the name of a field, a header or a variable that holds a secret.
	words = `(?:passw|pwd|secret|token|authorization|cookie|credential|api[-_]?key|access[-_]?key|private[-_]?key)`
	// assigned is what is between a name and its value: name=value, name: value, "name":"value", "name":["value"], also with quotes that
	// are escaped.
	assigned = `\\*["']?[ \t]*[:=][ \t]*(?:\[|map\[)?[ \t]*`
	value    = `(?:\\*"(?:[^"\\]|\\[^"])*\\*"|'[^']*'|(?:(?:bearer|basic|digest|token)\s+)?[^\s"',;&\]}]+)`
)

var (
	sensitive = regexp.MustCompile(`(?i)` + words)
	named     = regexp.MustCompile(`(?i)([\w.-]*` + words + `[\w.-]*` + assigned + `)(` + value + `)`)
	// header is one whose value continues after spaces.
	header = regexp.MustCompile(`(?i)((?:authorization|cookie)` + assigned + `\\*["']?)[^\r\n"'\\\]]+`)
	scheme = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}`)
	// userinfo is that of a URL.
	userinfo = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^\s/?#"'@]+@`)
	// naming is the beginning of a field whose value is the path of a file with a secret, such as tokenFile: /etc/token, not the secret.
	naming = regexp.MustCompile(`[a-z]File` + assigned + `$`)
	jwt    = regexp.MustCompile(`\beyJ[\w-]+\.[\w-]+\.[\w-]*`)
	pem    = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----`)
)

// secrets are those that were found, to be hidden wherever they are.
type secrets struct{ values []string }

func newSecrets() *secrets { return &secrets{} }

// add has the value hidden in the whole text, unless it is too short to be told from other text.
func (s *secrets) add(value string, least int) {
	if len(value) >= least && !slices.Contains(s.values, value) {
		s.values = append(s.values, value)
	}
}

// ofPod adds the values of the environment, and what is in annotations, which are not shown.
func (s *secrets) ofPod(pod *corev1.Pod) {
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, env := range container.Env {
			s.add(env.Value, leastOf(env.Name))
		}
	}
	for name, value := range pod.Annotations {
		if sensitive.MatchString(name) {
			s.add(value, leastOf(name))
		}
	}
}

// leastOf is from how many characters on a value is hidden elsewhere too: a short one of an ordinary name is likely a common word.
func leastOf(name string) int {
	if sensitive.MatchString(name) {
		return 4
	}
	return 8
}

// ofConfig returns a part of the configuration with its secrets masked, and adds them. All texts below options are masked: a driver may
// take a secret under any name. A field that ends in File names where a secret is, and stays.
func (s *secrets) ofConfig(name string, value any, inOptions bool) any {
	switch value := value.(type) {
	case map[string]any:
		for key, part := range value {
			value[key] = s.ofConfig(key, part, inOptions || key == "options")
		}
		return value
	case []any:
		for i, part := range value {
			value[i] = s.ofConfig(name, part, inOptions)
		}
		return value
	case string:
		return s.ofText(name, value, inOptions)
	default:
		if sensitive.MatchString(name) {
			return masked
		}
		return value
	}
}

func (s *secrets) ofText(name, value string, inOptions bool) string {
	if strings.HasSuffix(name, "File") {
		return value
	}
	if inOptions || sensitive.MatchString(name) {
		s.add(value, leastOf(name))
		return masked
	}
	for one := range strings.SplitSeq(value, ",") {
		if at, err := url.Parse(strings.TrimSpace(one)); err == nil && at.User != nil {
			password, _ := at.User.Password()
			s.add(password, 4)
		}
	}
	return value // [secrets.hide] masks the userinfo itself
}

// hide returns the text without secrets.
func (s *secrets) hide(text string) string {
	text = pem.ReplaceAllString(text, masked)
	longest := slices.SortedFunc(slices.Values(s.values), func(a, b string) int { return len(b) - len(a) })
	for _, value := range longest {
		for _, form := range []string{value, url.QueryEscape(value), url.PathEscape(value)} {
			text = strings.ReplaceAll(text, form, masked)
		}
	}
	text = userinfo.ReplaceAllString(text, "${1}"+masked+"@")
	text = header.ReplaceAllString(text, "${1}"+masked)
	text = named.ReplaceAllStringFunc(text, func(found string) string {
		match := named.FindStringSubmatch(found)
		if naming.MatchString(match[1]) || match[2] == masked {
			return found
		}
		return match[1] + masked
	})
	text = scheme.ReplaceAllString(text, "${1} "+masked)
	return jwt.ReplaceAllString(text, masked)
}
