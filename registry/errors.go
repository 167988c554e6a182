package registry

import (
	"errors"
	"strings"
	"time"
	"unicode"
)

// Terminal marks an error for which trying again at once is useless: bad credentials, an instance the registry refuses.
// The caller warns, tries again at the cap of its back-off, and at once when the configuration changes; it never gives
// up. Terminal(nil) is nil.
func Terminal(err error) error {
	if err == nil {
		return nil
	}
	return &terminalError{err: err}
}

// IsTerminal reports whether err, or an error that it wraps, was marked by [Terminal]. Anything else is retryable.
func IsTerminal(err error) bool {
	var t *terminalError
	return errors.As(err, &t)
}

// maxRetryAfter bounds what a server can make a pod wait: a slip there must not strand it for a year.
const maxRetryAfter = time.Hour

// RetryAfter marks a retryable error for which the registry said when to come back: not before d has passed, and not before
// the caller's own back-off. It holds for the same change of the same instance. RetryAfter(nil, d) is nil. A negative d
// counts as zero, and more than an hour as an hour.
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

// NotRegistered marks the error of a [Heartbeater] that finds no entry it could renew. NotRegistered(nil) is nil.
func NotRegistered(err error) error {
	if err == nil {
		return nil
	}
	return &notRegisteredError{err: err}
}

// IsNotRegistered reports whether err, or an error that it wraps, was marked by [NotRegistered].
func IsNotRegistered(err error) bool {
	var n *notRegisteredError
	return errors.As(err, &n)
}

// NotApplied marks the error of a change in a [Batcher]'s call that was undone, or not tried, because of another change.
// NotApplied(nil) is nil.
func NotApplied(err error) error {
	if err == nil {
		return nil
	}
	return &notAppliedError{err: err}
}

// IsNotApplied reports whether err, or an error that it wraps, was marked by [NotApplied].
func IsNotApplied(err error) bool {
	var n *notAppliedError
	return errors.As(err, &n)
}

// ForeignEntry marks the error of a change that was made as far as it is Rollcall's, while clients are given the instance by
// an entry that somebody else wrote, such as the application that registers itself. ForeignEntry(nil) is nil.
func ForeignEntry(err error) error {
	if err == nil {
		return nil
	}
	return &foreignEntryError{err: err}
}

// IsForeignEntry reports whether err, or an error that it wraps, was marked by [ForeignEntry].
func IsForeignEntry(err error) bool {
	var f *foreignEntryError
	return errors.As(err, &f)
}

type terminalError struct{ err error }

func (e *terminalError) Error() string { return e.err.Error() }
func (e *terminalError) Unwrap() error { return e.err }

type retryAfterError struct {
	err   error
	after time.Duration
}

func (e *retryAfterError) Error() string { return e.err.Error() }
func (e *retryAfterError) Unwrap() error { return e.err }

type notRegisteredError struct{ err error }

func (e *notRegisteredError) Error() string { return e.err.Error() }
func (e *notRegisteredError) Unwrap() error { return e.err }

type foreignEntryError struct{ err error }

func (e *foreignEntryError) Error() string { return e.err.Error() }
func (e *foreignEntryError) Unwrap() error { return e.err }

type notAppliedError struct{ err error }

func (e *notAppliedError) Error() string { return e.err.Error() }
func (e *notAppliedError) Unwrap() error { return e.err }

// maxExcerpt is how much is shown of a server's words, in characters.
const maxExcerpt = 300

// Excerpt makes a server's text fit for an error: one line of printable characters, not more than 300 of them. Secrets that
// the server may echo must be taken out before: see package driverkit.
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
