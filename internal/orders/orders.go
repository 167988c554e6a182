// Package orders has the annotations by which a person gives the leading manager orders: they stand on its Lease, which only a person
// and the manager write. It imports no other package of the project.
package orders

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

// Namespace is the one in which Rollcall is installed where nothing says otherwise, and Lease the name of the Lease there.
const (
	Namespace = "rollcall-system"
	Lease     = "rollcall"
)

// Command returns the command by which a person approves of removals of the managers with this Lease. [LeaseIn] finds its name in it
// again.
func Command(namespace, lease string) string {
	command := "kubectl rollcall resync --approve"
	if namespace != "" && namespace != Namespace {
		command += " --rollcall-namespace=" + namespace
	}
	if lease != "" && lease != Lease {
		command += " --leader-election-id=" + lease
	}
	return command
}

var leaseIn = regexp.MustCompile(`resync --approve(?: --rollcall-namespace=\S+)? --leader-election-id=([a-z0-9.-]+)`)

// LeaseIn returns the name of the Lease by which a text with a [Command] in it approves.
func LeaseIn(text string) string {
	if found := leaseIn.FindStringSubmatch(text); found != nil {
		return found[1]
	}
	return Lease
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

// Held are removals from one registry that wait for a person's approval.
type Held struct {
	// Digest is of all of them, and Total how many there are.
	Digest string `json:"digest"`
	Total  int    `json:"total"`
	// Entries names them, at most [NamedAtMost].
	Entries []string `json:"entries"`
}

// NamedAtMost is how many entries a person is shown.
const NamedAtMost = 500

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
