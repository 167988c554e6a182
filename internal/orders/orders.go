// Package orders has a person's orders to the leading manager: annotations of its Lease.
package orders

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Annotation on the Lease is a list of words: "2026-11-27T12:00:00Z,1f3a90b2c4d5". A changed value starts a run of resync, and the
// digests in it approve removals. The leader takes out each digest that counts no more.
const Annotation = "rollcall.dev/resync"

// DigestBytes is how many bytes a digest has: few enough to copy by hand.
const DigestBytes = 6

var (
	digests = regexp.MustCompile(fmt.Sprintf("^[0-9a-f]{%d}$", 2*DigestBytes))
	shown   = regexp.MustCompile(regexp.QuoteMeta(Annotation) + "=([0-9a-f]+)")
	of      = regexp.MustCompile(`^\d+ of \d+ entries in registry ("(?:[^"\\]|\\.)*")`)
)

const (
	// Namespace is that of a default installation.
	Namespace = "rollcall-system"
	// Lease is what every installation calls its Lease. Several are apart by their namespaces.
	Lease = "rollcall"
)

// Command approves removals of the managers whose Lease is in the namespace.
func Command(namespace string) string {
	const command = "kubectl rollcall resync --approve"
	if namespace == "" || namespace == Namespace {
		return command
	}
	return command + " --rollcall-namespace=" + namespace
}

// HowToApprove is for the removals with the digest.
func HowToApprove(namespace, digest string) string {
	return fmt.Sprintf("approve exactly these with %s, or with kubectl -n %s annotate lease %s --overwrite %s=%s",
		Command(namespace), namespace, Lease, Annotation, digest)
}

// DigestIn finds the digest in a text with [HowToApprove], if any.
func DigestIn(text string) string {
	found := shown.FindStringSubmatch(text)
	if found == nil {
		return ""
	}
	return found[1]
}

// Holds begins a text about the removals that a registry holds back.
func Holds(held, owned int, registry string) string {
	return fmt.Sprintf("%d of %d entries in registry %q have no live pod", held, owned, registry)
}

// RegistryIn finds the registry, in quotes, in a text that begins with [Holds], if any.
func RegistryIn(text string) string {
	found := of.FindStringSubmatch(text)
	if found == nil {
		return ""
	}
	return found[1]
}

// Held are a registry's removals that wait for approval.
type Held struct {
	Digest string `json:"digest"`
	Total  int    `json:"total"`
	// Entries are at most [NamedAtMost].
	Entries []string `json:"entries"`
}

// NamedAtMost entries are shown.
const NamedAtMost = 500

// Digests are those in the value of [Annotation].
func Digests(value string) []string {
	return slices.DeleteFunc(wordsOf(value), func(word string) bool { return !digests.MatchString(word) })
}

// With returns the value of [Annotation] with one more word: what was approved before stays approved.
func With(value, word string) string {
	words := Digests(value)
	if !slices.Contains(words, word) {
		words = append(words, word)
	}
	return strings.Join(words, ",")
}

// Without returns the value of [Annotation] without these digests.
func Without(value string, spent []string) string {
	words := slices.DeleteFunc(wordsOf(value), func(word string) bool { return slices.Contains(spent, word) })
	return strings.Join(words, ",")
}

func wordsOf(value string) []string {
	return strings.FieldsFunc(value, func(c rune) bool { return c == ',' || unicode.IsSpace(c) })
}
