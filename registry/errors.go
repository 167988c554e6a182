package registry

import (
	"errors"
	"strings"
	"time"
	"unicode"
)

// class is what an error is marked by. It is an error only so that [errors.Is] finds it.
type class string

const (
	errTerminal       class = "terminal"
	errNotRegistered  class = "not registered"
	errNotApplied     class = "not applied"
	errForeignEntry   class = "foreign entry"
	errSeveralEntries class = "several entries"
	errOfAgent        class = "of an agent"
	errNotYet         class = "not yet"
)

func (c class) Error() string { return string(c) }

type markedError struct {
	error
	class class
}

func (e *markedError) Unwrap() error        { return e.error }
func (e *markedError) Is(target error) bool { return target == error(e.class) }

// mark returns nil for nil.
func (c class) mark(err error) error {
	if err == nil {
		return nil
	}
	return &markedError{err, c}
}

// Terminal marks an error for which an immediate retry is useless: bad credentials, or an instance that the registry refuses.
// The caller warns, and retries at the longest delay of its back-off, and immediately when the configuration changes; it never
// gives up. Terminal(nil) is nil.
func Terminal(err error) error { return errTerminal.mark(err) }

// IsTerminal reports whether err, or an error that it wraps, was marked by [Terminal]. Anything else is retryable.
func IsTerminal(err error) bool { return errors.Is(err, errTerminal) }

// maxRetryAfter bounds how long a server can make a pod wait: a mistake there must not hold it for a year.
const maxRetryAfter = time.Hour

// RetryAfter marks a retryable error in which the registry told when to come back: not before d has passed, and not before
// the caller's own back-off. It applies to the same change of the same instance. RetryAfter(nil, d) is nil. A negative d
// counts as zero, and more than an hour as an hour. Such an error means that the registry has answered, so it never opens the
// circuit breaker, even with a d of zero.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &retryAfterError{err: err, after: min(max(d, 0), maxRetryAfter)}
}

// RetryAfterOf returns the delay that [RetryAfter] put on err, or on an error that it wraps.
func RetryAfterOf(err error) (time.Duration, bool) {
	var r *retryAfterError
	if !errors.As(err, &r) {
		return 0, false
	}
	return r.after, true
}

// NotRegistered marks the error of a [Heartbeater] that finds no entry to renew, and that of an [AppRegistry] that finds no
// application's entry to put back. NotRegistered(nil) is nil.
func NotRegistered(err error) error { return errNotRegistered.mark(err) }

// IsNotRegistered reports whether err, or an error that it wraps, was marked by [NotRegistered].
func IsNotRegistered(err error) bool { return errors.Is(err, errNotRegistered) }

// NotApplied marks the error of a change in a [Batcher]'s call that was undone, or not tried, because of another change.
// NotApplied(nil) is nil.
func NotApplied(err error) error { return errNotApplied.mark(err) }

// IsNotApplied reports whether err, or an error that it wraps, was marked by [NotApplied].
func IsNotApplied(err error) bool { return errors.Is(err, errNotApplied) }

// ForeignEntry marks the error of a change that Rollcall has made to its own entry, or of a Register that was not made, while
// clients are given the instance by an entry that somebody else wrote, such as an application that registers itself.
// ForeignEntry(nil) is nil.
func ForeignEntry(err error) error { return errForeignEntry.mark(err) }

// IsForeignEntry reports whether err, or an error that it wraps, was marked by [ForeignEntry].
func IsForeignEntry(err error) bool { return errors.Is(err, errForeignEntry) }

// SeveralEntries marks the error of an acknowledged change of an [AppRegistry] if applications have several entries at the
// instance's endpoint: the error lists them. All of them were changed. SeveralEntries(nil) is nil.
func SeveralEntries(err error) error { return errSeveralEntries.mark(err) }

// IsSeveralEntries reports whether err, or an error that it wraps, was marked by [SeveralEntries].
func IsSeveralEntries(err error) bool { return errors.Is(err, errSeveralEntries) }

// OfAgent marks the error of a change of an [AppRegistry] that an agent did not make, although the registry itself has answered.
// OfAgent(nil) is nil.
func OfAgent(err error) error { return errOfAgent.mark(err) }

// IsOfAgent reports whether err, or an error that it wraps, was marked by [OfAgent].
func IsOfAgent(err error) bool { return errors.Is(err, errOfAgent) }

// NotYet marks the error of a change that was made, or that a registry with the trait FollowsCondition waits for, while clients still see the previous state.
// Rollcall calls again until the change is acknowledged, and does not count it as a failure of the registry. NotYet(nil) is nil.
func NotYet(err error) error { return errNotYet.mark(err) }

// IsNotYet reports whether err, or an error that it wraps, was marked by [NotYet].
func IsNotYet(err error) bool { return errors.Is(err, errNotYet) }

// OtherNames adds to an error that is marked by [NotRegistered] the other service names under which the application has registered
// the instance's address and port. OtherNames(nil) is nil.
func OtherNames(err error, names ...string) error {
	if err == nil {
		return nil
	}
	return &otherNamesError{err: err, names: names}
}

// OtherNamesOf returns the names that [OtherNames] put on err, or on an error that it wraps.
func OtherNamesOf(err error) []string {
	var o *otherNamesError
	if !errors.As(err, &o) {
		return nil
	}
	return o.names
}

type otherNamesError struct {
	err   error
	names []string
}

func (e *otherNamesError) Error() string { return e.err.Error() }
func (e *otherNamesError) Unwrap() error { return e.err }

type retryAfterError struct {
	err   error
	after time.Duration
}

func (e *retryAfterError) Error() string { return e.err.Error() }
func (e *retryAfterError) Unwrap() error { return e.err }

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
