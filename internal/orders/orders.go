// Package orders has a person's orders to the leading manager: annotations of its Lease.
package orders

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

const (
	// AnnotationApprove lists digests of approved removals: "1f3a,9c27".
	AnnotationApprove = "rollcall.dev/approve-removals"
	// AnnotationRun starts a resync run when its value changes.
	AnnotationRun = "rollcall.dev/resync"
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
func HowToApprove(command, digest string) string {
	return fmt.Sprintf("approve exactly these with %s, or with the annotation %s=%s on the manager's Lease",
		command, AnnotationApprove, digest)
}

// DigestIn finds the digest in a text with [HowToApprove], if any.
func DigestIn(text string) string {
	found := regexp.MustCompile(regexp.QuoteMeta(AnnotationApprove) + "=([0-9a-f]+)").FindStringSubmatch(text)
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

// Approved splits [AnnotationApprove].
func Approved(value string) []string {
	return strings.FieldsFunc(value, func(c rune) bool { return c == ',' || c == ' ' })
}

// Approve adds a digest to [AnnotationApprove].
func Approve(value, digest string) string {
	all := Approved(value)
	if !slices.Contains(all, digest) {
		all = append(all, digest)
	}
	return strings.Join(all, ",")
}
