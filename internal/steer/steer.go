// Package steer has the annotations by which a person steers the leading manager: they stand on its Lease, which only a person
// and the manager write. It imports no other package of the project.
package steer

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

const (
	// AnnotationApprove holds the digests of the removals that a person approves of, separated by commas.
	AnnotationApprove = "rollcall.dev/approve-removals"
	// AnnotationRun has a run of resync begin whenever its value changes.
	AnnotationRun = "rollcall.dev/resync"
)

// Namespace is the one in which Rollcall is installed where nothing says otherwise.
const Namespace = "rollcall-system"

// Command returns the command by which a person approves of removals of the managers whose Lease is in the namespace.
func Command(namespace string) string {
	const command = "kubectl rollcall resync --approve"
	if namespace == "" || namespace == Namespace {
		return command
	}
	return command + " --rollcall-namespace=" + namespace
}

// HowToApprove says how a person approves of the removals with the digest. [DigestIn] finds the digest in it again.
func HowToApprove(command, digest string) string {
	return fmt.Sprintf("approve exactly these with %s, or with the annotation %s=%s on the manager's Lease",
		command, AnnotationApprove, digest)
}

// DigestIn returns the digest that a text with [HowToApprove] in it names, or nothing.
func DigestIn(text string) string {
	found := regexp.MustCompile(regexp.QuoteMeta(AnnotationApprove) + "=([0-9a-f]+)").FindStringSubmatch(text)
	if found == nil {
		return ""
	}
	return found[1]
}

// Approved returns the digests in a value of [AnnotationApprove].
func Approved(value string) []string {
	return strings.FieldsFunc(value, func(c rune) bool { return c == ',' || c == ' ' })
}

// Approve returns the value of [AnnotationApprove] with a digest more.
func Approve(value, digest string) string {
	all := Approved(value)
	if !slices.Contains(all, digest) {
		all = append(all, digest)
	}
	return strings.Join(all, ",")
}
