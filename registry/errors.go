package registry

import (
	"errors"
	"strings"
	"time"
	"unicode"
)

// Code is what the error of a call means to Rollcall. Without one, the outcome is unknown: the registry may have done the work.
type Code string

// The codes.
const (
	CodeTerminal       Code = "Terminal"
	CodeNotRegistered  Code = "NotRegistered"
	CodeNotApplied     Code = "NotApplied"
	CodeForeignEntry   Code = "ForeignEntry"
	CodeSeveralEntries Code = "SeveralEntries"
	CodeNotYet         Code = "NotYet"
)

// CodeOf returns the code of err, or of an error that it wraps: the outermost one. It is empty if there is none, as for nil.
func CodeOf(err error) Code {
	marked, _ := outermost(err, func(m *markedError) bool { return m.code != "" })
	return marked.code
}

// markedError is an error with what it means.
type markedError struct {
	err     error
	code    Code
	ofAgent bool
	names   []string
	after   *time.Duration
}

func (m *markedError) Error() string { return m.err.Error() }
func (m *markedError) Unwrap() error { return m.err }

func mark(err error, as markedError) error {
	if err == nil {
		return nil
	}
	as.err = err
	return &as
}

// outermost returns the first such mark.
func outermost(err error, such func(*markedError) bool) (found markedError, is bool) {
	for m := (*markedError)(nil); errors.As(err, &m); err = m.err {
		if such(m) {
			return *m, true
		}
	}
	return markedError{}, false
}

// Terminal marks an error for which an immediate retry is useless: bad credentials, or an instance that the registry refuses.
// The caller warns, and retries at the longest delay of its back-off, and immediately when the configuration changes; it never
// gives up. Terminal(nil) is nil.
func Terminal(err error) error { return mark(err, markedError{code: CodeTerminal}) }

// maxRetryAfter bounds how long a server can make a pod wait: a mistake there must not hold it for a year.
const maxRetryAfter = time.Hour

// RetryAfter marks a retryable error in which the registry told when to come back: not before d has passed, and not before
// the caller's own back-off. It applies to the same change of the same instance. RetryAfter(nil, d) is nil. A negative d
// counts as zero, and more than an hour as an hour. Such an error means that the registry has answered, so it never opens the
// circuit breaker, even with a d of zero.
func RetryAfter(err error, d time.Duration) error {
	bounded := min(max(d, 0), maxRetryAfter)
	return mark(err, markedError{after: &bounded})
}

// RetryAfterOf returns the delay that [RetryAfter] put on err, or on an error that it wraps.
func RetryAfterOf(err error) (time.Duration, bool) {
	marked, is := outermost(err, func(m *markedError) bool { return m.after != nil })
	if !is {
		return 0, false
	}
	return *marked.after, true
}

// NotRegistered marks the error of a [Heartbeater] that finds no entry to renew, and that of an [AppRegistry] that finds no
// application's entry to put back. NotRegistered(nil) is nil.
func NotRegistered(err error) error { return mark(err, markedError{code: CodeNotRegistered}) }

// NotApplied marks the error of a change in a [Batcher]'s call that was undone, or not tried, because of another change.
// NotApplied(nil) is nil.
func NotApplied(err error) error { return mark(err, markedError{code: CodeNotApplied}) }

// ForeignEntry marks the error of a change that Rollcall has made to its own entry, or of a Register that was not made, while
// clients are given the instance by an entry that somebody else wrote, such as an application that registers itself.
// ForeignEntry(nil) is nil.
func ForeignEntry(err error) error { return mark(err, markedError{code: CodeForeignEntry}) }

// SeveralEntries marks the error of an acknowledged change of an [AppRegistry] if applications have several entries at the
// instance's endpoint: the error lists them. All of them were changed. SeveralEntries(nil) is nil.
func SeveralEntries(err error) error { return mark(err, markedError{code: CodeSeveralEntries}) }

// OfAgent marks the error of a change of an [AppRegistry] that an agent did not make, although the registry itself has answered.
// OfAgent(nil) is nil.
func OfAgent(err error) error { return mark(err, markedError{ofAgent: true}) }

// IsOfAgent reports whether err, or an error that it wraps, was marked by [OfAgent].
func IsOfAgent(err error) bool {
	_, is := outermost(err, func(m *markedError) bool { return m.ofAgent })
	return is
}

// NotYet marks the error of a change that was made, or that a registry with the trait FollowsCondition waits for, while clients still see
// the previous state. Rollcall calls again until the change is acknowledged, and does not count it as a failure of the registry.
// NotYet(nil) is nil.
func NotYet(err error) error { return mark(err, markedError{code: CodeNotYet}) }

// OtherNames adds to an error that is marked by [NotRegistered] the other service names under which the application has registered
// the instance's address and port. OtherNames(nil) is nil.
func OtherNames(err error, names ...string) error { return mark(err, markedError{names: names}) }

// OtherNamesOf returns the names that [OtherNames] put on err, or on an error that it wraps.
func OtherNamesOf(err error) []string {
	marked, _ := outermost(err, func(m *markedError) bool { return m.names != nil })
	return marked.names
}

// maxExcerpt is how many characters of a server's text are shown.
const maxExcerpt = 300

// Excerpt prepares a server's text for an error: one line of printable characters, at most 300 of them. Remove secrets that the
// server may repeat first: see package driverkit.
func Excerpt(text string) string {
	text = strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(text, "?"))
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > maxExcerpt {
		return string(runes[:maxExcerpt]) + "…"
	}
	return text
}
